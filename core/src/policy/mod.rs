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

use crate::domain::{Moment, Outline, Place, ReplicaId, Report, RequestId, SliceKey};

pub use name::{PolicyName, UnknownPolicy};

/// What a policy may know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub now: Moment,
    pub key: SliceKey,
    pub outline: &'a Outline,
}

/// What a policy may know of a replica that could take the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub id: ReplicaId,
    pub place: Place,
    /// Its share of sessions; above 0.
    pub weight: f64,
    /// What this router sent there and has not ended.
    pub in_flight: u32,
    /// What its engine said last, as old as it is; `None` when it never said anything.
    pub report: Option<Report>,
}

/// A rule for choosing one of several replicas. Whoever asks it also tells it what came of it, so
/// that a rule can keep its own account of what lies where; it is never told the truth of an engine.
pub trait Policy: Debug + Send {
    /// Returns the position of the chosen candidate. There is always at least one, in order of id.
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize;

    /// Tells whether the rule means to keep a session where it is. Then a replica of weight 0 goes
    /// on serving the sessions it has.
    fn keeps_sessions(&self) -> bool {
        false
    }

    /// Notes a replica of the pool, whether or not it can take anything yet.
    fn on_joined(&mut self, _: ReplicaId, _: Place) {}

    /// Notes that the request goes to that replica, by this rule or past it; the request is not yet
    /// among those in flight there.
    fn on_sent(&mut self, _: RequestId, _: &Ask<'_>, _: &Candidate) {}

    /// Notes the first sign of an answer; said at most once for each time it was sent.
    fn on_first_token(&mut self, _: Moment, _: RequestId, _: ReplicaId) {}

    /// Notes that nothing more comes from there; said once for each time it was sent.
    fn on_ended(&mut self, _: Moment, _: RequestId, _: ReplicaId) {}

    /// Notes that the replica is gone for good; all its requests have ended.
    fn on_left(&mut self, _: ReplicaId) {}
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
