//! Where should it go? Each policy is one small file: a function of plain data, with its own memory
//! where the rule needs one, and chance passed in. A policy never sees sockets, clocks, other
//! policies or the queue, so the router and the simulator drive it alike.
//!
//! Ours are here, and the peers' as their sources and papers give them, with their defaults, so that
//! one replay can judge them all. To add one: write its file, add a line to the table below.

#[macro_use]
mod table;

mod adapters;
#[cfg(test)]
mod bench;
mod booked;
mod books;
mod congestion;
mod ledger;
mod name;
mod rendezvous;
mod residency;
mod ring;
mod span;

use std::fmt::Debug;
use std::time::Duration;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

use crate::domain::{Moment, Outline, Place, ReplicaId, Report, RequestId, SliceKey};

pub use books::{Books, Terms};
pub use name::UnknownPolicy;

policies! {
    session: Session "session" => session::Session;
    round_robin: RoundRobin "round_robin" => round_robin::RoundRobin::default();
    random: Random "random" => random::Random;
    least_requests: LeastRequests "least_requests" => least_requests::LeastRequests;
    power_of_two: PowerOfTwo "power_of_two" => power_of_two::PowerOfTwo;
    least_work: LeastWork "least_work" => least_work::LeastWork::default();
    consistent_hash:
        ConsistentHash "consistent_hash" => ring::OnRing::<consistent_hash::ConsistentHash>::default();
    bounded_load:
        BoundedLoad "bounded_load" => ring::OnRing::<bounded_load::BoundedLoad>::default();
    sglang_cache_aware:
        SglangCacheAware "sglang_cache_aware" => sglang_cache_aware::CacheAware::default();
    smg_cache_aware: SmgCacheAware "smg_cache_aware" => smg_cache_aware::CacheAware::default();
    smg_least_load: SmgLeastLoad "smg_least_load" => smg_least_load::LeastLoad::default();
    dynamo: Dynamo "dynamo" => dynamo::Dynamo::new(1.0),
        Dynamo16 "dynamo_16" => dynamo::Dynamo::new(16.0);
    llmd: Llmd "llmd" => llmd::Llmd::new(0.0),
        LlmdNoHitLru "llmd_no_hit_lru" => llmd::Llmd::new(2.0);
    llmd_sticky:
        LlmdSticky "llmd_sticky" => booked::Booked::<llmd_sticky::LlmdSticky>::default();
    lmetric: Lmetric "lmetric" => booked::Booked::<lmetric::Lmetric>::default();
    preble: Preble "preble" => preble::Preble::default();
    mooncake: Mooncake "mooncake" => booked::Booked::<mooncake::Mooncake>::default();
    priced: Priced "priced" => priced::Priced::default();
    dicer_ring: DicerRing "dicer_ring" => dicer_ring::DicerRing::default();
}

/// What a policy may know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub now: Moment,
    pub key: SliceKey,
    pub outline: &'a Outline,
    /// Within what its first token is promised, if anything is.
    pub first_token: Option<Duration>,
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
    pub books: Books,
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
    /// among those in flight there. Returns how many leading blocks of the prompt the rule believes
    /// to be there already, for the books; none if it does not keep track.
    fn on_sent(&mut self, _: RequestId, _: &Ask<'_>, _: &Candidate) -> usize {
        0
    }

    /// Shows how the rule weighs every candidate, for people who ask why. Changes nothing that later
    /// choices depend on. A rule that does not weigh in time shows nothing.
    fn terms(&mut self, _: &Ask<'_>, _: &[Candidate], _: &mut Vec<Terms>) {}

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
fn lowest(candidates: &[Candidate], score: impl Fn(&Candidate) -> f64) -> usize {
    let scores = candidates.iter().map(score).enumerate();
    scores.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(position, _)| position)
}

/// Returns the position below `count` with the lowest score; chance decides between equals.
fn lowest_by_chance(
    count: usize,
    chance: &mut Pcg64Mcg,
    mut score: impl FnMut(usize) -> f64,
) -> usize {
    let (mut best, mut best_score, mut equals) = (0, f64::INFINITY, 0_u32);
    for position in 0..count {
        let score = score(position);
        if score < best_score || equals == 0 {
            (best, best_score, equals) = (position, score, 1);
        } else if score <= best_score {
            equals += 1;
            if chance.random_range(0..equals) == 0 {
                best = position;
            }
        }
    }
    best
}

/// Finds a replica among the candidates, which are in order of id.
fn position(candidates: &[Candidate], replica: ReplicaId) -> Option<usize> {
    candidates.binary_search_by_key(&replica, |it| it.id).ok()
}

/// Adds up what this router has in flight on all candidates.
fn in_flight_total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|it| f64::from(it.in_flight)).sum()
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
