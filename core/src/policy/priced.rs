//! Prices every replica in milliseconds and takes the cheapest. The price is the sum of the TTFT of the
//! request there (its wait and its prefill; the longer, the more a further millisecond counts), the delay
//! of later requests by its prefill, the prefill of what it pushes out of the cache, and the slower
//! decoding of the answers there. A session stays where its cache is because it is cheap there. It leaves
//! when waiting costs more than computing its prompt elsewhere costs all requests. Nothing is pinned and
//! nothing is compared with a threshold, so there is nothing to tune per workload.
//!
//! Times are those of each replica's own hardware at its own pace, so mixed fleets need no weights.

use rand_pcg::Pcg64Mcg;

use crate::cost::{StepTimes, StepWork};
use crate::domain::{Moment, Outline, ReplicaId, RequestId, float};

use super::adapters::Adapters;
use super::congestion::Congestion;
use super::residency::Residency;
use super::{Ask, Candidate, Policy, Terms, in_flight_total, rendezvous};

/// The share of the evicted tokens that are asked for again within the time they would have stayed.
/// Caches evict the oldest first, and returns thin out with age about as fast as age grows, so this
/// hardly depends on how large a cache is. On recorded conversations and agents it is a tenth to a
/// quarter.
const ASKED_AGAIN: f64 = 0.2;
/// A TTFT of this many times the usual one is long: it counts double. The usual TTFT moves with the load,
/// so that the last in a line are spared on a busy fleet and caches still decide on an overloaded one.
const LONG_TTFT_FACTOR: f64 = 2.0;
/// A pause in an answer is noticed; that it lasts longer than this part of the promised TTFT hardly makes
/// it worse. Without a bound the longest prompts would wait for a replica that writes no answer.
const PAUSE_PART: f64 = 0.1;
/// Up to this multiple of the promised gap, a gap costs its square; from there on it grows in proportion. The
/// promise is broken by then: to spare such answers would slow down those that can still keep it.
const GAP_FELT_MAX: f64 = 1.25;
/// Where work is more uneven than this, the longest prompts are so rare that they had better wait,
/// and the bound on pauses grows with the square of it.
const UNEVENNESS_USUAL: f64 = 10.0;
/// A session leaves its replica only for a gain that a client could notice. Predictions are wrong by
/// more than this, so smaller differences say nothing; and each move costs later turns their cache.
const NOTICED_MS: f64 = 50.0;
/// A new session goes to the first of its lots among replicas whose prices differ by less than is
/// noticed, so that routers agree without talking. On a busy fleet others pay for the difference: it
/// shrinks with how many a millisecond delays, and halves with this many requests on a replica.
const BUSY_REQUESTS: f64 = 5.0;
/// The assumed length of an answer for which there is no estimate.
const OUTPUT_TOKENS_UNKNOWN: u32 = 256;
/// Shorter answers are priced as if they had this many tokens: there is not much of them to pause.
const OUTPUT_TOKENS_MIN: u32 = 4;
/// Evicted context is taken to be as deep as this request's, but at least this.
const DEPTH_TOKENS_MIN: u32 = 1_000;

#[derive(Debug)]
pub(super) struct Priced {
    residency: Residency,
    adapters: Adapters,
    congestion: Congestion,
    /// What the whole prompt in question takes at each candidate, kept for its allocation.
    colds_ms: Vec<f64>,
    /// The price of each, kept likewise.
    prices_ms: Vec<f64>,
}

/// The terms of one replica's price, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Price {
    wait: f64,
    own: f64,
    evict: f64,
    hold_up: f64,
    /// Its speed at this prompt, relative to the average replica of the fleet.
    speed: f64,
    traffic: Traffic,
}

/// How the load of the whole fleet weighs a millisecond.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Traffic {
    /// How many others each millisecond of work delays.
    delayed: f64,
    /// Requests on an average replica, as a multiple of [`BUSY_REQUESTS`].
    busy: f64,
    /// The TTFT that counts double.
    long_ttft_ms: f64,
    /// How long a pause is counted for at most.
    pause_ms_max: f64,
    /// What the whole prompt takes on an average replica.
    cold_ms: f64,
    /// The time between tokens that is promised. A gap costs its square over this, up to [`GAP_FELT_MAX`]: readers
    /// hardly notice much shorter gaps, and a gap twice as long is more than twice as bad.
    gap_ms: f64,
    /// A millisecond more between all tokens of an answer counts like this many milliseconds of TTFT: what is
    /// promised of the one over what is promised of the other.
    tokens_per_first: f64,
}

impl Price {
    fn total_ms(&self) -> f64 {
        let felt = self.wait + self.own + self.late();
        felt + self.again() + self.crowd() + self.slower()
    }

    /// What is added for a long TTFT.
    fn late(&self) -> f64 {
        let ttft = self.wait + self.own;
        ttft * ttft / self.traffic.long_ttft_ms
    }

    fn again(&self) -> f64 {
        ASKED_AGAIN * self.evict
    }

    /// A slow replica gets fewer requests, so a millisecond there delays fewer.
    fn crowd(&self) -> f64 {
        self.traffic.delayed * self.speed * (self.own + self.again())
    }

    fn slower(&self) -> f64 {
        self.traffic.tokens_per_first * self.hold_up
    }
}

impl Default for Priced {
    fn default() -> Self {
        Self {
            residency: Residency::of_kv(1),
            adapters: Adapters::default(),
            congestion: Congestion::default(),
            colds_ms: Vec::new(),
            prices_ms: Vec::new(),
        }
    }
}

impl Policy for Priced {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], _: &mut Pcg64Mcg) -> usize {
        let traffic = self.weigh(ask, candidates);
        let lowest = self.prices_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let is_near = |at: usize, margin_ms: f64| self.prices_ms[at] <= lowest + margin_ms;
        let home = ask.home.and_then(|home| candidates.iter().position(|it| it.id == home));
        if let Some(home) = home.filter(|it| is_near(*it, NOTICED_MS)) {
            return home;
        }
        let margin_ms = NOTICED_MS / (1.0 + traffic.delayed) / (1.0 + traffic.busy);
        let lot = |position: &usize| rendezvous::lot(&candidates[*position], ask.key);
        let near = (0..candidates.len())
            .filter(|it| is_near(*it, margin_ms - slowness_ms(ask.outline, &candidates[*it])));
        let first = near.map(|it| (it, lot(&it))).min_by(|a, b| a.1.total_cmp(&b.1));
        first.map_or_else(|| self.cheapest(), |it| it.0)
    }

    fn keeps_sessions(&self) -> bool {
        true
    }

    fn on_sent(&mut self, _: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        let held = self.residency.on_sent(ask, to);
        self.adapters.on_sent(to.id, ask.outline.adapter);
        self.congestion.on_sent(ask.now, own_ms(ask.outline, to, held));
        held
    }

    fn residency(&mut self) -> Option<&mut Residency> {
        Some(&mut self.residency)
    }

    fn on_heard(&mut self, now: Moment, to: &Candidate, work_ms: f64, adapter: u64) {
        self.adapters.on_sent(to.id, adapter);
        self.congestion.on_sent(now, work_ms);
    }

    fn terms(&mut self, ask: &Ask<'_>, candidates: &[Candidate], into: &mut Vec<Terms>) {
        self.residency.look_up(ask, candidates);
        let traffic = self.traffic(ask, candidates);
        into.extend(candidates.iter().enumerate().map(|(position, candidate)| {
            let price = self.price(ask.outline, candidate, position, traffic);
            let cached_tokens = ask.outline.tokens_in(self.residency.blocks(position));
            let new = ask.outline.prompt_tokens - cached_tokens;
            Terms {
                replica: candidate.id,
                cached_tokens,
                ttft_ms: candidate.load.ttft_ms(new, cached_tokens)
                    + self.adapter_ms(ask.outline, candidate),
                wait_ms: price.wait,
                prefill_ms: price.own,
                late_ms: price.late(),
                evict_ms: price.again(),
                crowd_ms: price.crowd(),
                slow_ms: price.slower(),
                weight_ms: price.total_ms() * (1.0 / candidate.weight - 1.0),
                price_ms: price.total_ms() / candidate.weight,
            }
        }));
    }

    fn on_restarted(&mut self, replica: ReplicaId) {
        self.residency.forget(replica);
        self.adapters.forget(replica);
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.on_restarted(replica);
    }

    fn bytes(&self) -> usize {
        self.residency.bytes() + self.adapters.bytes()
    }
}

impl Priced {
    /// Prices every candidate; returns the traffic they were priced with.
    fn weigh(&mut self, ask: &Ask<'_>, candidates: &[Candidate]) -> Traffic {
        self.residency.look_up(ask, candidates);
        let traffic = self.traffic(ask, candidates);
        let mut prices_ms = std::mem::take(&mut self.prices_ms);
        prices_ms.clear();
        prices_ms.extend(candidates.iter().enumerate().map(|(position, candidate)| {
            let price = self.price(ask.outline, candidate, position, traffic);
            // A replica with less of a share is priced as if all its times were longer.
            price.total_ms() / candidate.weight
        }));
        self.prices_ms = prices_ms;
        traffic
    }

    fn cheapest(&self) -> usize {
        let prices = self.prices_ms.iter().enumerate();
        prices.min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |it| it.0)
    }

    /// Estimates the traffic of the fleet now, and the whole prompt's time at each candidate.
    fn traffic(&mut self, ask: &Ask<'_>, candidates: &[Candidate]) -> Traffic {
        let (own, all) = (in_flight_total(candidates), candidates.iter().map(in_flight).sum());
        let share = if own < all { own.max(1.0) / f64::max(all, 1.0) } else { 1.0 };
        let replicas: f64 = candidates.iter().map(|_| 1.0).sum();
        self.colds_ms.clear();
        // Most are of one class, so the step is worked out once for as many as follow each other.
        let mut known: Option<(StepTimes, f64)> = None;
        self.colds_ms.extend(candidates.iter().map(|it| {
            let step = it.load.step;
            let (_, step_ms) = known.filter(|it| it.0 == step).unwrap_or_else(|| {
                (step, step.step_ms(&StepWork::of(depth_tokens(ask.outline), 0)))
            });
            known = Some((step, step_ms));
            it.load.pace * step_ms
        }));
        let cold_ms: f64 = self.colds_ms.iter().sum();
        let delayed = self.congestion.delayed(ask.now, replicas, share);
        let (ttft_ms, gap_ms) = (ask.promise.first_token_ms(), ask.promise.token_gap_ms());
        // A TTFT within the promise is never long, however short the usual one is.
        let long_ttft_ms = ttft_ms.max(LONG_TTFT_FACTOR * self.congestion.usual_ms(delayed));
        let giants = (self.congestion.unevenness() / UNEVENNESS_USUAL).max(1.0);
        let pause_ms_max = PAUSE_PART * ttft_ms * giants * giants;
        let busy = f64::max(own, all) / replicas / BUSY_REQUESTS;
        let (cold_ms, tokens_per_first) = (cold_ms / replicas, ttft_ms / gap_ms);
        Traffic { delayed, busy, long_ttft_ms, pause_ms_max, cold_ms, gap_ms, tokens_per_first }
    }

    fn price(&self, outline: &Outline, to: &Candidate, position: usize, traffic: Traffic) -> Price {
        let held = self.residency.blocks(position);
        let is_cold = held == 0 && depth_tokens(outline) == outline.prompt_tokens;
        let own = if is_cold { self.colds_ms[position] } else { own_ms(outline, to, held) };
        let own = own + self.adapter_ms(outline, to);
        let output = outline.output_tokens.unwrap_or(OUTPUT_TOKENS_UNKNOWN);
        // Each answer written there pauses for this prefill, spread over all of its tokens, and then gets
        // a little slower at every token. Answers there are assumed to be as long as this one.
        let pause = own.min(traffic.pause_ms_max) / f64::from(output.max(OUTPUT_TOKENS_MIN));
        let slower = to.load.sequence_ms(outline.prompt_tokens);
        Price {
            wait: to.load.wait_ms,
            own,
            evict: self.evict_ms(outline, to, position, output),
            hold_up: in_flight(to) * felt_more_ms(to.load.gap_ms(), pause + slower, traffic.gap_ms),
            speed: traffic.cold_ms / self.colds_ms[position],
            traffic,
        }
    }

    /// Predicts how long the replica takes to load the request's adapter, if it has to.
    fn adapter_ms(&self, outline: &Outline, to: &Candidate) -> f64 {
        let loads = self.adapters.lacks(to.id, outline.adapter);
        if loads { to.load.cost.adapter_ms } else { 0.0 }
    }

    /// Predicts how long it takes to compute again what this placement pushes out of the cache.
    fn evict_ms(&self, outline: &Outline, to: &Candidate, position: usize, output: u32) -> f64 {
        let Some(room) = to.report.and_then(|it| it.kv_tokens_max) else { return 0.0 };
        let new = outline.tokens_beyond(self.residency.blocks(position)).saturating_add(output);
        let held = self.residency.held_tokens(outline, to.id);
        let evicted = (held + u64::from(new)).saturating_sub(room).min(held);
        // A token deep in a long context costs more than one at its start: attention grows.
        float(evicted) * self.colds_ms[position] / f64::from(depth_tokens(outline))
    }
}

/// Predicts how much longer the answer takes on a replica that is slower than its hardware promises.
/// The price covers the TTFT and other requests only; a client notices a slow answer too.
fn slowness_ms(outline: &Outline, to: &Candidate) -> f64 {
    let output = f64::from(outline.output_tokens.unwrap_or(OUTPUT_TOKENS_UNKNOWN));
    output * to.load.gap_ms() * (1.0 - 1.0 / to.load.pace).max(0.0)
}

/// Says how much more a gap between tokens costs when it grows by `more`, where `promised` is promised.
fn felt_more_ms(gap: f64, more: f64, promised: f64) -> f64 {
    more * (2.0 * gap.min(GAP_FELT_MAX * promised) + more) / promised
}

/// The depth that a context is priced at.
fn depth_tokens(outline: &Outline) -> u32 {
    outline.prompt_tokens.max(DEPTH_TOKENS_MIN)
}

/// Predicts how long the prompt takes there when its leading `held` blocks are cached.
fn own_ms(outline: &Outline, to: &Candidate, held: usize) -> f64 {
    to.load.prefill_ms(outline.tokens_beyond(held), outline.tokens_in(held))
}

/// Counts the requests there, those of other routers included as far as the books know of them.
fn in_flight(at: &Candidate) -> f64 {
    f64::from(at.in_flight).max(at.load.running)
}

#[cfg(test)]
mod tests;
