//! What a run was like, counted as it happens and in bounded memory. The world tells it what happens
//! to each request; it never looks into engines or brains and never steers anything, so a run with
//! other measures is the same run. Everything before [`Measures::start`] is warm-up and not counted.

mod backlog;
mod histogram;
mod series;
mod slo;
mod tally;

pub use histogram::Histogram;
pub use series::{Gauge, Series, Span};
pub use slo::{BadSlo, Slo};
pub use tally::{Tally, jain};

use std::collections::BTreeMap;
use std::time::Duration;

use cleave_core::domain::Moment;

use crate::traces::{Class, Tenant};

use backlog::Backlog;

/// Turns a count into a real number; exact below 2^53.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "counts of requests, tokens and nanoseconds of a run stay below 2^53"
)]
pub fn real(count: u64) -> f64 {
    count as f64
}

/// Divides; nothing of nothing is nothing.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if 0.0 < whole { part / whole } else { 0.0 }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Finished,
    /// Its replica stopped in the middle of the answer, or its router did.
    Cut,
    /// The router would not send it, or not send it again.
    Refused {
        reason: &'static str,
    },
    /// It needs more KV than a replica has.
    TooLong,
}

/// What a first token tells about the prompt, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefill {
    pub prompt: u32,
    /// Found in the replica's cache.
    pub cached: u32,
    /// Somewhere in the fleet's caches when the request was sent.
    pub anywhere: u32,
    /// Sent by any client at any time before.
    pub seen: u32,
}

/// What the faults of a run did to a request that did not cause them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// Nothing had failed yet, or the failing was its own tenant's.
    #[default]
    None,
    Bystander,
    /// Its replica failed under it, or no replica was left to take it.
    Struck,
}

/// A request as its end is told.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub tenant: Tenant,
    pub class: Class,
    pub arrival: Moment,
    /// When it was first sent to a replica.
    pub sent: Option<Moment>,
    /// It was sent although it could not be in time there, had the replica had nothing else to do.
    pub in_vain: bool,
    pub first_token: Option<Moment>,
    pub deadline: Option<Duration>,
    pub output_tokens: u32,
    /// What it asked for: its cost in milliseconds of a busy replica with an ideal cache.
    pub asked_ms: f64,
    /// Whether a fault was there to strike it, and whether it did.
    pub fault: Exposure,
    pub end: End,
}

/// Which requests to count apart while faults are about: those that come after the first fault and
/// are not its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Others {
    pub from: Moment,
    pub culprit: Option<Tenant>,
}

/// One replica's share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaTally {
    pub requests: u64,
    pub work_ms: f64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub kv: Gauge,
    pub waiting: Gauge,
}

/// Everything that is counted.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    pub slo: Slo,
    pub span: Span,
    pub arrived: u64,
    pub finished: u64,
    pub cut: u64,
    pub refused: u64,
    pub too_long: u64,
    pub good: u64,
    pub retries: u64,
    pub preemptions: u64,
    pub ttft: Histogram,
    pub tpot: Histogram,
    pub end_to_end: Histogram,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    /// Computed again although another replica had them.
    pub elsewhere_tokens: u64,
    /// Computed again because no replica had them any more, or yet.
    pub evicted_tokens: u64,
    /// First tokens whose prompt was sent before, at least in part, and found nothing of it.
    pub cold: u64,
    pub replicas: Vec<ReplicaTally>,
    pub tenants: BTreeMap<Tenant, Tally>,
    pub classes: BTreeMap<Class, Tally>,
    /// Work per replica over time, in milliseconds per second.
    pub work: Series,
    /// Requests that ended after the first fault and did not cause it: all, and those it struck.
    pub bystanders: u64,
    pub bystanders_struck: u64,
    /// The requests counted apart, if any, and their account.
    pub others: Option<Others>,
    pub others_tally: Tally,
    backlog: Backlog,
}

impl Measures {
    pub fn new(slo: Slo, replicas: usize) -> Self {
        let replicas = vec![ReplicaTally::default(); replicas];
        Self { slo, replicas, ..Self::default() }
    }

    /// Forgets all that was counted: measuring begins now.
    pub fn start(&mut self, now: Moment) {
        let span = Span { from: now, to: now };
        *self = Self { span, ..Self::new(self.slo, self.replicas.len()) };
    }

    pub fn on_arrival(&mut self, tenant: Tenant) {
        self.arrived += 1;
        self.backlog.on_arrival(tenant);
    }

    /// Notes that a request is sent to a replica for the first time, with the work it asks for.
    pub fn on_sent(&mut self, tenant: Tenant, asked_ms: f64) {
        if self.backlog.is_everybodys() {
            self.tenants.entry(tenant).or_default().contested_ms += asked_ms;
        }
        self.backlog.on_left(tenant);
    }

    /// Notes a first token: how long it took, and what the replica's cache was good for.
    pub fn on_first_token(
        &mut self,
        now: Moment,
        arrival: Moment,
        replica: usize,
        it: Prefill,
        work_ms: f64,
    ) {
        self.ttft.record(now.since(arrival));
        self.prompt_tokens += u64::from(it.prompt);
        self.cached_tokens += u64::from(it.cached);
        self.cold += u64::from(0 < it.seen && it.cached == 0);
        let had = it.anywhere.max(it.cached);
        self.elsewhere_tokens += u64::from(had - it.cached);
        self.evicted_tokens += u64::from(it.seen.saturating_sub(had));
        self.work.add(replica, now.since(self.span.from), work_ms);
        let tally = self.replica(replica);
        tally.requests += 1;
        tally.work_ms += work_ms;
        tally.prompt_tokens += u64::from(it.prompt);
        tally.cached_tokens += u64::from(it.cached);
    }

    pub fn on_end(&mut self, now: Moment, it: Ended) {
        self.span.to = self.span.to.max(now);
        if it.sent.is_none() {
            self.backlog.on_left(it.tenant);
        }
        let good = it.end == End::Finished && self.is_good(now, it);
        match it.end {
            End::Finished => {
                self.finished += 1;
                self.output_tokens += u64::from(it.output_tokens);
                self.end_to_end.record(now.since(it.arrival));
                if let Some(gap) = token_gap(now, it) {
                    self.tpot.record(gap);
                }
            }
            End::Cut => self.cut += 1,
            End::Refused { .. } => self.refused += 1,
            End::TooLong => self.too_long += 1,
        }
        self.good += u64::from(good);
        self.tenants.entry(it.tenant).or_default().add(&it, good);
        self.classes.entry(it.class).or_default().add(&it, good);
        if self.others.is_some_and(|o| o.from <= it.arrival && o.culprit != Some(it.tenant)) {
            self.others_tally.add(&it, good);
        }
        self.bystanders += u64::from(it.fault != Exposure::None);
        self.bystanders_struck += u64::from(it.fault == Exposure::Struck);
    }

    /// Notes the state of a replica at one of many equal distances in time.
    pub fn on_sample(&mut self, replica: usize, kv_used_share: f64, waiting: usize) {
        let waiting = real(u64::try_from(waiting).unwrap_or(u64::MAX));
        let tally = self.replica(replica);
        tally.kv.sample(kv_used_share);
        tally.waiting.sample(waiting);
    }

    /// The heaviest replica's work over the mean; one is even.
    pub fn load_max_over_mean(&self) -> f64 {
        let work = || self.replicas.iter().map(|it| it.work_ms);
        let count = real(u64::try_from(self.replicas.len()).unwrap_or(u64::MAX));
        ratio(work().fold(0.0, f64::max) * count, work().sum())
    }

    fn replica(&mut self, replica: usize) -> &mut ReplicaTally {
        if self.replicas.len() <= replica {
            self.replicas.resize(replica + 1, ReplicaTally::default());
        }
        &mut self.replicas[replica]
    }

    fn is_good(&self, now: Moment, it: Ended) -> bool {
        let Some(first) = it.first_token else { return false };
        let limit = it.deadline.map_or(self.slo.ttft, |deadline| deadline.min(self.slo.ttft));
        first.since(it.arrival) <= limit
            && token_gap(now, it).is_none_or(|gap| gap <= self.slo.tpot)
    }
}

/// The mean time between the tokens of an answer; none when there is only one.
fn token_gap(now: Moment, it: Ended) -> Option<Duration> {
    let gaps = it.output_tokens.checked_sub(1).filter(|gaps| 0 < *gaps)?;
    Some(now.since(it.first_token?) / gaps)
}
