//! Where should it go? Each policy is one small file: a function of plain data, with its own memory
//! where the rule needs one, and chance passed in. A policy never sees sockets, clocks, other
//! policies or the queue, so the router and the simulator drive it alike.
//!
//! Those that a router offers are here; the peers' rules, against which they are measured, are in the
//! simulator. To add one: write its file and add it to `kind.rs`.

mod adapters;
#[cfg(test)]
mod bench;
mod congestion;
mod kind;
mod least_requests;
mod load_model;
mod power_of_two;
mod priced;
mod random;
mod rendezvous;
mod residency;
mod round_robin;
mod session;

use std::fmt::Debug;

use rand_pcg::Pcg64Mcg;

use crate::domain::{Moment, Outline, Place, Promise, ReplicaId, Report, RequestId, SliceKey};

#[cfg(test)]
use crate::domain::{float, whole};

pub use kind::{PolicyKind, UnknownPolicy};
pub use load_model::{LoadModel, Terms};
pub use rendezvous::{lot_of, mix};
pub use residency::{BYTES_MAX, Residency};

/// What a policy may know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub now: Moment,
    pub key: SliceKey,
    pub outline: &'a Outline,
    /// The replica that served its session last, if that is remembered.
    pub home: Option<ReplicaId>,
    /// What its class promises.
    pub promise: Promise,
}

/// What a policy may know of a replica that could take the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub id: ReplicaId,
    pub place: Place,
    /// Its share of sessions; above 0.
    pub weight: f64,
    /// What this router and those it hears of sent there and has not ended.
    pub in_flight: u32,
    /// What its engine said last, as old as it is; `None` when it never said anything.
    pub report: Option<Report>,
    pub load: LoadModel,
}

/// A rule for choosing one of several replicas. The caller also reports what became of each choice, so
/// that a rule can keep its own account of what is cached where; it never sees the state of an engine.
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
    /// among those in flight there. Returns how many leading blocks of the prompt the rule believes
    /// to be there already, for the books; none if it does not keep track.
    fn on_sent(&mut self, _: RequestId, _: &Ask<'_>, _: &Candidate) -> usize {
        0
    }

    /// Shows how the rule weighs every candidate, for explanations. Changes nothing that later
    /// choices depend on. A rule that does not weigh in time shows nothing.
    fn terms(&mut self, _: &Ask<'_>, _: &[Candidate], _: &mut Vec<Terms>) {}

    /// Shows what the rule believes to be cached where, to tell other routers and to hear of theirs; nothing if it
    /// does not keep track.
    fn residency(&mut self) -> Option<&mut Residency> {
        None
    }

    /// Notes that another router sent a request to that replica, where its prompt takes `work_ms`.
    fn on_heard(&mut self, _: Moment, _: &Candidate, _work_ms: f64, _adapter: u64) {}

    /// Notes the first sign of an answer; said at most once for each time it was sent.
    fn on_first_token(&mut self, _: Moment, _: RequestId, _: ReplicaId) {}

    /// Notes that nothing more comes from there; said once for each time it was sent.
    fn on_ended(&mut self, _: Moment, _: RequestId, _: ReplicaId) {}

    /// Notes that another process answers at the replica's address, with a cold cache. What is in flight
    /// there ends as always.
    fn on_restarted(&mut self, _: ReplicaId) {}

    /// Notes that the replica is gone for good; all its requests have ended.
    fn on_left(&mut self, _: ReplicaId) {}

    /// Measures the memory of what it remembers beyond the requests in flight.
    fn bytes(&self) -> usize {
        0
    }
}

/// Returns the position of the lowest score; ties go to the earlier candidate, so to the lower id.
pub fn lowest(candidates: &[Candidate], score: impl Fn(&Candidate) -> f64) -> usize {
    let scores = candidates.iter().map(score).enumerate();
    scores.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(position, _)| position)
}

/// Adds up what is in flight on all candidates.
pub fn in_flight_total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|it| f64::from(it.in_flight)).sum()
}

#[cfg(test)]
mod tests;
