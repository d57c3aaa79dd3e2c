//! Replicas that die, hang, refuse and come back, and a router that is told to stop: nothing is lost
//! that had not begun, and what had begun is told.

mod breaker;
mod cut;
mod drain;
mod hang;
mod load;
mod resume;
mod retry;
