//! What Cleave decides. Nothing here reads a clock, opens a socket, draws unseeded chance or waits:
//! every function is given what it needs and returns what should be done. So the simulator runs
//! exactly what production runs.

pub mod brain;
pub mod cluster;
pub mod cost;
pub mod domain;
pub mod fleet;
pub mod kept;
pub mod policy;
pub mod prefix;
pub mod protocol;
pub mod queue;
pub mod recording;
pub mod scaling;
pub mod sharding;
pub mod tokens;
