//! Where should it go? Each policy is one small file: a function of plain data, with its own memory
//! where the rule needs one, and chance passed in. A policy never sees sockets, clocks, other
//! policies or the queue, so the router and the simulator drive it alike.
//!
//! To add one: write its file, add its name to [`PolicyName`], add a line to [`make`].

mod least_requests;
mod name;
mod power_of_two;
mod random;
mod rendezvous;
mod round_robin;
mod session;

use std::fmt::Debug;

use rand_pcg::Pcg64Mcg;

use crate::domain::{Place, ReplicaId, SliceKey};

pub use name::{PolicyName, UnknownPolicy};

/// What a policy may know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub key: SliceKey,
}

/// What a policy may know of a replica that could take the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub id: ReplicaId,
    pub place: Place,
    /// Its share of sessions; above 0.
    pub weight: f64,
    pub in_flight: u32,
}

/// A rule for choosing one of several replicas.
pub trait Policy: Debug + Send {
    /// Returns the position of the chosen candidate. There is always at least one, in order of id.
    fn pick(&mut self, ask: &Ask, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize;

    /// Tells whether the rule means to keep a session where it is. Then a replica of weight 0 goes
    /// on serving the sessions it has.
    fn keeps_sessions(&self) -> bool {
        false
    }
}

/// Makes the policy of that name; the only place that knows them all.
pub fn make(name: PolicyName) -> Box<dyn Policy> {
    match name {
        PolicyName::RoundRobin => Box::<round_robin::RoundRobin>::default(),
        PolicyName::Random => Box::new(random::Random),
        PolicyName::LeastRequests => Box::new(least_requests::LeastRequests),
        PolicyName::PowerOfTwo => Box::new(power_of_two::PowerOfTwo),
        PolicyName::Session => Box::new(session::Session),
    }
}

/// Returns the position of the lowest score; ties go to the earlier candidate, so to the lower id.
fn lowest(candidates: &[Candidate], score: impl Fn(&Candidate) -> f64) -> usize {
    let scores = candidates.iter().map(score).enumerate();
    scores.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(position, _)| position)
}

#[cfg(test)]
mod tests;
