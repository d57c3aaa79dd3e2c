//! The decision: what is needed now, and whether the number of replicas may follow.
//!
//! Growing is never put off. Shrinking takes a longer look ahead, a cool-down and whole figures: a replica too many
//! costs its hour, one too few breaks promises for as long as another takes to start.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::{Moment, float, whole};

use super::asked::Asked;
use super::forecast::{Ahead, Forecast};
use super::history::{BUCKET, History, buckets};
use super::rules::Rules;
use super::sample::Sample;
use super::start_up::StartUp;
use super::{Advice, Reason, Terms};

/// A replica is let go this many start-up times after the last one was asked for, at the earliest: so no step is
/// undone twice in that time.
const STEADY_FOR: u32 = 3;
/// A replica is planned to do this part of what it can. Within a bucket work comes unevenly: one that is just large
/// enough for the mean is too small for half of the time.
const FILL: f64 = 0.8;
/// What a forecast is wrong by anyway, in replicas.
const SLACK: f64 = 0.1;
/// A replica is let go only if the rest would be enough for this much more work: else noise at the edge of a replica
/// would let it go and ask for it again and again.
const KEPT_FACTOR: f64 = 1.1;

/// Sizes one pool.
#[derive(Clone, Debug)]
pub struct Scaler {
    rules: Rules,
    history: History,
    to_grow: Forecast,
    to_let_go: Forecast,
    start_up: StartUp,
    asked: Asked,
    latest: Option<Sample>,
    capacity_mu_per_min: Option<f64>,
    /// What was needed lately, by when.
    needed: VecDeque<(Moment, usize)>,
    /// When work last came.
    busy_at: Option<Moment>,
    refused: Fading,
    beyond: Fading,
    target: Option<usize>,
    grown_at: Moment,
    shrunk_at: Moment,
}

/// A sum of what came lately: what is older counts less.
#[derive(Clone, Copy, Debug, Default)]
struct Fading {
    sum: f64,
    at: Moment,
}

impl Fading {
    fn add(&mut self, now: Moment, amount: f64, half: Duration) {
        self.sum = self.left(now, half) + amount;
        self.at = now;
    }

    fn left(&self, now: Moment, half: Duration) -> f64 {
        self.sum * (-now.since(self.at).as_secs_f64() / half.as_secs_f64().max(1.0)).exp2()
    }
}

impl Scaler {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            history: History::default(),
            to_grow: Forecast::new(),
            to_let_go: Forecast::new(),
            start_up: StartUp::new(rules.start_up),
            asked: Asked::default(),
            latest: None,
            capacity_mu_per_min: None,
            needed: VecDeque::new(),
            busy_at: None,
            refused: Fading::default(),
            beyond: Fading::default(),
            target: None,
            grown_at: Moment::ZERO,
            shrunk_at: Moment::ZERO,
        }
    }

    /// Takes other rules, and keeps what was learned.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        self.start_up.set_fixed(rules.start_up);
    }

    /// How long a replica takes to start, as far as is known.
    pub fn start_up(&self) -> Duration {
        self.start_up.span()
    }

    /// Takes in that a replica is ready, some time after it was asked for or was first seen starting.
    pub fn on_ready(&mut self, took: Duration) {
        self.start_up.on_ready(took);
    }

    /// Takes in what the pool was like since the sample before.
    pub fn observe(&mut self, now: Moment, sample: &Sample) {
        let sample = sample.sensible();
        self.history.observe(now, sample.offered_mu, sample.is_missing);
        if 0.0 < sample.offered_mu + sample.held_mu {
            self.busy_at = Some(now);
        }
        let half = self.start_up.span();
        self.refused.add(now, sample.refused_mu, half);
        self.beyond.add(now, sample.beyond_contract_mu, half);
        self.capacity_mu_per_min = sample.capacity_mu_per_min.or(self.capacity_mu_per_min);
        if self.target.is_none() {
            self.target = Some(sample.there());
            (self.grown_at, self.shrunk_at) = (now, now);
        }
        self.latest = Some(sample);
    }

    /// Says how many replicas there should be, and holds on to it: what it says more than before counts as asked for.
    /// To be called after each sample, by the one that acts on it.
    pub fn decide(&mut self, now: Moment) -> Advice {
        self.settle(now, None)
    }

    /// Says the number that another one decided on, which is the one that counts, and holds on to that: so the number
    /// does not jump when this one decides. To be called in the place of [`Scaler::decide`].
    pub fn follow(&mut self, now: Moment, replicas: usize, reason: Reason) -> Advice {
        self.settle(now, Some((replicas, reason)))
    }

    fn settle(&mut self, now: Moment, led: Option<(usize, Reason)>) -> Advice {
        let led = led.map(|(replicas, reason)| (self.rules.clamp(replicas), reason));
        let Some(sample) = self.latest else {
            let wanted = self.rules.clamp(self.target.unwrap_or(0));
            let (wanted, reason) = led.unwrap_or((wanted, Reason::DataMissing));
            let start_up = self.start_up.span();
            let terms = Terms { start_up, ..Terms::default() };
            return Advice { wanted, reason, terms };
        };
        let before = self.rules.clamp(self.target.unwrap_or_else(|| sample.there()));
        let mut terms = self.terms(now, before, &sample);
        let need = ReplicaNeed::of(&terms, &self.rules);
        self.remember(now, need.replicas);
        terms.enough = self.needed.iter().map(|it| it.1).fold(terms.enough, usize::max);
        let (wanted, reason) = led.unwrap_or_else(|| self.weigh(before, need, &terms, &sample));
        self.adopt(now, before, wanted);
        (terms.coming, terms.overdue) = self.asked.count(now, terms.start_up);
        Advice { wanted, reason, terms }
    }

    fn terms(&mut self, now: Moment, before: usize, sample: &Sample) -> Terms {
        let start_up = self.start_up.span();
        self.asked.on_missing(before.saturating_sub(sample.ready + sample.unhealthy));
        let (coming, overdue) = self.asked.count(now, start_up);
        let lag = buckets(start_up);
        let grow = self.to_grow.look(&self.history, Ahead { first: lag, last: lag });
        // One that is let go and asked for again is not there for a start-up time: it must not be needed in all of it.
        let let_go = self.to_let_go.look(&self.history, Ahead { first: 1, last: lag });
        let refused_mu = self.refused.left(now, start_up);
        let beyond_mu = self.beyond.left(now, start_up);
        let minutes = start_up.max(BUCKET).as_secs_f64() / 60.0;
        let mut terms = Terms {
            demand_mu_per_min: self.history.mean(buckets(start_up / 2)),
            spread_mu_per_min: grow.spread,
            forecast_mu_per_min: grow.upper(),
            held_mu: sample.held_mu,
            refused_mu,
            // A sum that halves in a start-up time is worth that much over ln 2 of a steady rate.
            beyond_contract_mu_per_min: beyond_mu * std::f64::consts::LN_2 / minutes,
            capacity_mu_per_min: self.capacity_mu_per_min,
            kv_tokens_needed: sample.kv_tokens_needed,
            kv_tokens_per_replica: sample.kv_tokens_per_replica,
            floor: sample.floor,
            ready: sample.ready,
            starting: sample.starting,
            unhealthy: sample.unhealthy,
            coming,
            overdue,
            start_up,
            cool_down_left: self.cool_down_left(now, start_up),
            ..Terms::default()
        };
        if let Some(per_replica) = sample.kv_tokens_per_replica {
            let share = float(sample.kv_tokens_needed) / float(per_replica);
            terms.by_memory = whole_replicas(share - SLACK);
            // What lives needs a replica to live on.
            terms.by_memory = terms.by_memory.max(usize::from(0 < sample.kv_tokens_needed));
        }
        let is_idle = self.busy_at.is_none_or(|at| start_up * STEADY_FOR <= now.since(at));
        let least = usize::from(!is_idle);
        if let Some(capacity) = self.capacity_mu_per_min.map(|it| FILL * it) {
            terms.by_demand = whole_replicas(grow.upper() / capacity - SLACK).max(least);
            let rate = grow.expected + backlog_rate(&terms, grow.expected, capacity, minutes);
            terms.by_backlog = whole_replicas(rate / capacity - SLACK);
            let enough = KEPT_FACTOR * let_go.upper() / capacity;
            terms.enough = whole_replicas(enough - SLACK).max(least);
        } else {
            // Whatever it can do, work needs one.
            (terms.by_demand, terms.enough) = (least, before.max(least));
        }
        terms
    }

    /// Notes what is needed now, for as long as it must not be forgotten.
    fn remember(&mut self, now: Moment, need: usize) {
        let span = self.start_up.span();
        while self.needed.front().is_some_and(|it| span < now.since(it.0)) {
            self.needed.pop_front();
        }
        // Only what is more than all that came after it matters.
        while self.needed.back().is_some_and(|it| it.1 <= need) {
            self.needed.pop_back();
        }
        if self.needed.len() < NEEDED_MAX {
            self.needed.push_back((now, need));
        }
    }

    /// Decides whether the number of replicas may follow the need.
    fn weigh(
        &self,
        before: usize,
        need: ReplicaNeed,
        terms: &Terms,
        sample: &Sample,
    ) -> (usize, Reason) {
        let half_out = 0 < sample.unhealthy && sample.there() <= 2 * sample.unhealthy;
        // Those that are out are made up for, unless something takes them all.
        let make_up = if half_out { 0 } else { sample.unhealthy };
        let full = self.rules.clamp(need.replicas.saturating_add(make_up));
        if before < full {
            let is_short = full < need.replicas.saturating_add(make_up);
            return (full, if is_short { Reason::MaxReached } else { need.reason });
        }
        if let Some(reason) = trouble(terms, sample, half_out) {
            return (before, reason);
        }
        if full < need.replicas {
            return (before, Reason::MaxReached);
        }
        let enough = self.rules.clamp(terms.enough.max(need.replicas));
        let excess = before.saturating_sub(enough);
        if excess == 0 {
            return (before, steady(terms, need, before));
        }
        if 0 < terms.coming && sample.ready < before {
            return (before, Reason::Starting);
        }
        if !terms.cool_down_left.is_zero() {
            return (before, Reason::CoolingDown);
        }
        (before - excess.div_ceil(2), need.reason)
    }

    fn cool_down_left(&self, now: Moment, start_up: Duration) -> Duration {
        let after_growth = (self.grown_at + start_up * STEADY_FOR).since(now);
        let after_step = (self.shrunk_at + start_up).since(now);
        after_growth.max(after_step)
    }

    fn adopt(&mut self, now: Moment, before: usize, wanted: usize) {
        if before < wanted {
            self.asked.ask(now, wanted - before);
            self.grown_at = now;
        }
        if wanted < before {
            self.shrunk_at = now;
        }
        self.target = Some(wanted);
    }
}

/// How many figures of what was needed are kept.
const NEEDED_MAX: usize = 1_024;

/// How many replicas the terms ask for, and which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReplicaNeed {
    replicas: usize,
    reason: Reason,
}

impl ReplicaNeed {
    fn of(terms: &Terms, rules: &Rules) -> Self {
        let all = [
            (rules.min, Reason::Minimum),
            (terms.by_demand, Reason::Forecast),
            (terms.by_backlog, Reason::Backlog),
            (terms.by_memory, Reason::Memory),
            (terms.floor, Reason::Floor),
        ];
        let mut need = Self { replicas: 0, reason: Reason::Minimum };
        for (replicas, reason) in all {
            if need.replicas < replicas {
                need = Self { replicas, reason };
            }
        }
        need
    }
}

/// Says why none may be taken away, if something is wrong.
fn trouble(terms: &Terms, sample: &Sample, half_out: bool) -> Option<Reason> {
    if sample.is_missing {
        return Some(Reason::DataMissing);
    }
    if half_out {
        return Some(Reason::HalfOut);
    }
    if 0 < sample.unhealthy {
        return Some(Reason::Fault);
    }
    if sample.is_frozen {
        return Some(Reason::ReportsFrozen);
    }
    if terms.capacity_mu_per_min.is_none() {
        return Some(Reason::CapacityUnknown);
    }
    None
}

/// Says why the number stays as it is, where that is right.
fn steady(terms: &Terms, need: ReplicaNeed, before: usize) -> Reason {
    if 0 < terms.overdue && terms.ready < need.replicas {
        return Reason::NotComing;
    }
    let abused = terms.capacity_mu_per_min.is_some_and(|capacity| {
        let asked = terms.forecast_mu_per_min + terms.beyond_contract_mu_per_min;
        0.0 < terms.beyond_contract_mu_per_min && before < whole_replicas(asked / capacity - SLACK)
    });
    if abused { Reason::ContractExceeded } else { Reason::Steady }
}

/// The model units a minute that clear, within a start-up time, what will still wait when a replica asked for now
/// would be ready. Those that were asked for before are subtracted, as ready for half of that time.
fn backlog_rate(terms: &Terms, expected: f64, capacity: f64, minutes: f64) -> f64 {
    let ready = float(u64::try_from(terms.ready).unwrap_or(u64::MAX)) * capacity;
    let coming = float(u64::try_from(terms.coming).unwrap_or(u64::MAX)) * capacity / 2.0;
    let waiting = terms.held_mu + terms.refused_mu;
    let left = waiting + (expected - ready - coming) * minutes;
    if waiting <= 0.0 { 0.0 } else { left.clamp(0.0, waiting) / minutes }
}

fn whole_replicas(replicas: f64) -> usize {
    usize::try_from(whole(replicas.ceil())).unwrap_or(usize::MAX)
}
