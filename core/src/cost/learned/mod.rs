//! Costs that learn themselves: the coefficients of one class of replicas, fitted while it serves, from what
//! streams show. With `cleave calibrate` they are right at once; without it, on hardware that is not listed,
//! the built-in guess may be off by any factor, and every price with it. Here the guess is only the start.
//!
//! Three parts, none of which keeps a history: `sighting` says what an engine did in a time that was seen,
//! `filter` follows it, and `judge` decides whether what was learned is used. A class remembers less than
//! a kilobyte, and a sighting costs less than a microsecond and allocates nothing.

mod filter;
mod judge;
mod sighting;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Hardware, KneePoint, Mix, RequestCost, StepTimes};

pub use judge::Errors;
pub use sighting::{Sighting, SightingKind};

use filter::Filter;
use judge::{Bar, Judge, follow};
use sighting::{steps_of, terms_of};

/// The way to the client where it was not measured, to start from.
const OVERHEAD_MS: f64 = 1.0;
/// How far off sightings of a kind are taken to be before that is known, and the bounds of it; in
/// logarithms.
const NOISE: f64 = 0.3;
const NOISE_RANGE: (f64, f64) = (0.05, 1.0);
/// How much the newest sighting counts in what is known of a kind.
const NEW_SHARE: f64 = 1.0 / 32.0;
/// The standard deviation of a normal deviate is this many times its median error. Medians, because a tenth or a
/// quarter of all times may have been held up by something unseen.
const SPREAD_OF_MEDIAN: f64 = 1.48;
/// The engine is taken to be another when sightings are off by this much at the median, in logarithms, and
/// nearly all to one side.
const DRIFT: f64 = 0.25;
const DRIFT_SIDE: f64 = 0.75;
/// Sightings before the first such finding; twice as many before each next one, up to a limit.
const DRIFT_PAUSE: u32 = 64;
const DRIFT_DOUBLINGS: u32 = 5;
/// How unsure learned coefficients are after that, and after a restart, beside a start from nothing.
const DOUBT: f64 = 0.25;
const DOUBT_RESUMED: f64 = 0.05;
/// What another router learned is taken over where it has seen this many times as much.
const HEARD_FACTOR: u64 = 2;
/// Prices are made anew when a usual step or prompt has changed by this share.
const NOTICED: f64 = 0.02;

/// What is known of one kind of sightings.
#[derive(Clone, Copy, Debug)]
struct Noise {
    /// How far one is usually off, as a standard deviation of logarithms.
    spread: f64,
    /// To which side, from −1 to 1.
    side: f64,
    seen: u32,
}

impl Noise {
    const UNKNOWN: Self = Self { spread: NOISE, side: 0.0, seen: 0 };
}

/// The coefficients of one class: those given, those learned, and which of them are used.
#[derive(Clone, Debug)]
pub struct Learner {
    given: Arc<Hardware>,
    used: Arc<Hardware>,
    filter: Filter,
    judge: Judge,
    noise: [Noise; 3],
    seen: u64,
    changes: u32,
    pause: u32,
}

/// What was learned of a class, as it is kept and shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    pub class: String,
    /// What the class was given; what was learned beside other coefficients is of no use.
    pub given: StepTimes,
    pub step: StepTimes,
    pub overhead_ms: f64,
    /// Whether prices and predictions are made with it.
    pub is_used: bool,
    /// Sightings since the start.
    pub seen: u64,
    /// How often the engine was found to be another.
    pub changes: u32,
    /// By kind, in the order of [`SightingKind::ALL`].
    pub errors: [Errors; 3],
}

impl Learned {
    /// Tells whether its figures can be times at all; what another router tells may be anything.
    fn is_sound(&self) -> bool {
        let StepTimes { floor_ms, new_token_ms, attention_ms, context_ms } = self.step;
        let all = [floor_ms, new_token_ms, attention_ms, context_ms, self.overhead_ms];
        all.iter().all(|it| it.is_finite() && 0.0 <= *it) && 0.0 < floor_ms
    }

    /// The errors of one kind of sightings.
    pub const fn errors_of(&self, kind: SightingKind) -> Errors {
        self.errors[kind.index()]
    }
}

impl Learner {
    pub fn new(given: Arc<Hardware>) -> Self {
        let overhead_ms = if 0.0 < given.overhead_ms { given.overhead_ms } else { OVERHEAD_MS };
        let bar = if given.is_measured { Bar::MEASURED } else { Bar::GUESS };
        Self {
            filter: Filter::new(terms_of(&given.step, overhead_ms)),
            judge: Judge::new(bar),
            used: Arc::clone(&given),
            given,
            noise: [Noise::UNKNOWN; 3],
            seen: 0,
            changes: 0,
            pause: DRIFT_PAUSE,
        }
    }

    pub const fn given(&self) -> &Arc<Hardware> {
        &self.given
    }

    /// What prices and predictions are made with.
    pub const fn used(&self) -> &Arc<Hardware> {
        &self.used
    }

    /// Takes in what was seen of a replica of the class.
    pub fn see(&mut self, kind: SightingKind, sighting: &Sighting) {
        if !sighting.is_sound() {
            return;
        }
        let given_ms = sighting.predict_ms(&terms_of(&self.given.step, self.given.overhead_ms));
        let given = (sighting.ms / given_ms).ln();
        let noise = self.noise[kind.index()];
        let (miss, was_sure) = self.filter.see(sighting, noise.spread);
        if !given.is_finite() {
            return;
        }
        self.seen = self.seen.saturating_add(1);
        self.judge.note(kind, given, miss);
        self.on_miss(kind, miss, was_sure);
    }

    /// Learns how far off a kind usually is, and whether it is off to one side: then the engine has changed.
    fn on_miss(&mut self, kind: SightingKind, miss: f64, was_sure: bool) {
        self.pause = self.pause.saturating_sub(1);
        if !was_sure {
            return;
        }
        let noise = &mut self.noise[kind.index()];
        noise.side += NEW_SHARE * (miss.signum() - noise.side);
        // What was assumed counts as a few sightings.
        let median = follow(noise.spread / SPREAD_OF_MEDIAN, noise.seen.saturating_add(8), miss);
        noise.spread = (SPREAD_OF_MEDIAN * median).clamp(NOISE_RANGE.0, NOISE_RANGE.1);
        noise.seen = noise.seen.saturating_add(1);
        if self.pause == 0 && DRIFT < median && DRIFT_SIDE < noise.side.abs() {
            self.filter.doubt(DOUBT);
            self.noise = [Noise::UNKNOWN; 3];
            self.changes = self.changes.saturating_add(1);
            self.pause = DRIFT_PAUSE << self.changes.min(DRIFT_DOUBLINGS);
        }
    }

    /// Makes prices anew if they would differ noticeably. Returns by which factor usual work takes longer
    /// than by the prices before; `None` where they stay.
    pub fn refresh(&mut self) -> Option<f64> {
        let next = if self.judge.prefers_learned {
            let (was, is) = (usual_ms(&self.used.step), usual_ms(&steps_of(self.filter.terms())));
            let moved = was.iter().zip(is).any(|(was, is)| NOTICED < (is / was - 1.0).abs());
            moved.then(|| Arc::new(self.price()))?
        } else if Arc::ptr_eq(&self.used, &self.given) {
            return None;
        } else {
            Arc::clone(&self.given)
        };
        let stretch = usual_ms(&next.step)[0] / usual_ms(&self.used.step)[0];
        self.used = next;
        Some(stretch)
    }

    /// Prices work by what was learned. A model unit stays what it was: a class that does less in a minute
    /// than was thought has less capacity, and its requests cost as many units as before.
    fn price(&self) -> Hardware {
        let (given, step) = (&self.given, steps_of(self.filter.terms()));
        let knee = KneePoint::predict(&step, Mix::USUAL);
        let thought = KneePoint::predict(&given.step, Mix::USUAL);
        let gain = knee.requests_per_min / thought.requests_per_min;
        Hardware {
            class: given.class.clone(),
            step,
            cost: RequestCost {
                image_ms: given.cost.image_ms,
                audio_second_ms: given.cost.audio_second_ms,
                adapter_ms: given.cost.adapter_ms,
                ..RequestCost::at_knee(&step, knee.concurrency)
            },
            capacity_mu_per_min: given.capacity_mu_per_min * gain,
            overhead_ms: self.filter.terms()[4],
            is_measured: given.is_measured,
        }
    }

    pub fn learned(&self) -> Learned {
        Learned {
            class: self.given.class.clone(),
            given: self.given.step,
            step: steps_of(self.filter.terms()),
            overhead_ms: self.filter.terms()[4],
            is_used: !Arc::ptr_eq(&self.used, &self.given),
            seen: self.seen,
            changes: self.changes,
            errors: self.judge.errors,
        }
    }

    /// Goes on from what an earlier run learned of the same class, if it was given the same then.
    pub fn resume(&mut self, from: &Learned) {
        if self.seen == 0 {
            self.adopt(from);
        }
    }

    /// Goes on from what another router learned of the same class, if that has seen far more.
    pub fn hear(&mut self, from: &Learned) {
        if self.seen.saturating_mul(HEARD_FACTOR) < from.seen {
            self.adopt(from);
        }
    }

    fn adopt(&mut self, from: &Learned) {
        if from.class != self.given.class || from.given != self.given.step || !from.is_sound() {
            return;
        }
        self.filter.resume(terms_of(&from.step, from.overhead_ms), DOUBT_RESUMED);
        let is_sound = |it: &Errors| it.given.is_finite() && it.learned.is_finite();
        if from.errors.iter().all(is_sound) {
            self.judge.errors = from.errors;
            self.judge.prefers_learned = from.is_used;
        }
        self.seen = from.seen;
    }
}

/// What a step of answers and the reading of a prompt take, as far as prices are concerned.
fn usual_ms(step: &StepTimes) -> [f64; 3] {
    let prompt = super::StepWork::of(1_024, 1_024);
    let mut batch = super::StepWork::default();
    (0..16).for_each(|_| batch.add(1, 1_024));
    [step.step_ms(&batch), step.step_ms(&prompt), step.floor_ms]
}
