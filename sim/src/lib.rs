//! The world, pretended, in virtual time. Nothing here reads a clock, opens a socket or waits; the
//! same machines run a million requests in a simulator and one request behind HTTP.

pub mod bounds;
pub mod engine;
pub mod measure;
pub mod policies;
pub mod report;
pub mod results;
pub mod scalers;
pub mod swarm;
pub mod traces;
pub mod work;
pub mod world;
