//! What would have been possible, collected while the pooled replay runs: hits of larger caches,
//! first tokens of idler and faster servers. It judges nothing; `bounds` reads it off.

use std::collections::BTreeMap;
use std::time::Duration;

use cleave_core::domain::Moment;

use crate::measure::{Histogram, ratio, real};
use crate::traces::Class;
use crate::work;

use super::ReplicaSettings;
use super::edf::Edf;
use super::flight::Flight;
use super::srpt::Srpt;

/// Collects what the bounds need, arrival by arrival.
#[derive(Clone, Debug)]
pub struct Ideal {
    fastest: ReplicaSettings,
    speed: u64,
    srpt: Srpt,
    /// Each class as if it had the fleet to itself.
    deadlines: BTreeMap<Class, Edf>,
    floor: Histogram,
    prompt_tokens: u64,
    seen_tokens: u64,
    pooled_tokens: u64,
}

impl Ideal {
    /// Prepares for a fleet; in a mixed one, every replica is taken to be as fast as the fastest.
    pub(super) fn new(replicas: &[ReplicaSettings]) -> Self {
        let speed = |it: &&ReplicaSettings| work::prefill_ms(&it.engine.times, 1_000, 10_000);
        let fastest = replicas.iter().min_by(|a, b| speed(a).total_cmp(&speed(b)));
        Self {
            fastest: *fastest.expect("a world has replicas"),
            speed: u64::try_from(replicas.len()).unwrap_or(u64::MAX),
            srpt: Srpt::default(),
            deadlines: BTreeMap::new(),
            floor: Histogram::default(),
            prompt_tokens: 0,
            seen_tokens: 0,
            pooled_tokens: 0,
        }
    }

    pub(super) fn on_arrival(&mut self, now: Moment, it: &Flight, pooled: u32) {
        let engine = &self.fastest.engine;
        let (prompt, seen) = (it.prompt_tokens, it.seen_tokens);
        let alone = work::alone_ms(&engine.times, engine.batched_tokens_max, prompt - seen, seen);
        self.floor.record(span(alone));
        let needed = nanos(work::prefill_ms(&engine.times, prompt - seen, seen)) / self.speed;
        self.srpt.on_arrival(now, needed);
        if let Some(deadline) = it.deadline {
            let edf = self.deadlines.entry(it.class).or_default();
            edf.on_arrival(now, now + deadline, needed, nanos(alone));
        }
        self.prompt_tokens += u64::from(prompt);
        self.seen_tokens += u64::from(seen);
        self.pooled_tokens += u64::from(pooled);
    }

    /// Share of prompt tokens that a cache without end would have saved.
    pub fn infinite_hit(&self) -> f64 {
        ratio(real(self.seen_tokens), real(self.prompt_tokens))
    }

    /// The same for one cache as large as the fleet's together.
    pub fn pooled_hit(&self) -> f64 {
        ratio(real(self.pooled_tokens), real(self.prompt_tokens))
    }

    /// The share of each class's deadlines that no order keeps more of.
    pub fn deadlines_met_max(&self) -> impl Iterator<Item = (Class, f64)> + '_ {
        self.deadlines.iter().map(|(class, it)| (*class, it.met_max()))
    }

    /// First tokens on a replica that has nothing else to do.
    pub const fn floor(&self) -> &Histogram {
        &self.floor
    }

    /// Mean time to the first token of one server as fast as all together, shortest work first.
    pub fn shortest_first_mean_s(&self) -> f64 {
        real(self.srpt.mean_ns()) / 1e9
    }
}

fn nanos(ms: f64) -> u64 {
    u64::try_from(span(ms).as_nanos()).unwrap_or(u64::MAX)
}

fn span(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)
}
