//! What is asked of learned costs: they find an engine that is another than was thought, from what streams
//! show of it, through noise and outliers; they are never much worse than what was given; they notice a
//! change.

use proptest::prelude::*;

use super::*;
use crate::cost::StepWork;

/// A reproducible source of numbers from 0 to 1.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 33).unwrap()) / f64::from(1_u32 << 31)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next()
    }
}

/// What streams show of an engine with these steps, each time off by up to `noise` to either side and one in
/// ten much too long.
struct Engine {
    step: StepTimes,
    overhead_ms: f64,
    noise: f64,
    chance: Chance,
}

impl Engine {
    fn new(step: StepTimes, overhead_ms: f64, noise: f64, seed: u64) -> Self {
        Self { step, overhead_ms, noise, chance: Chance(seed) }
    }

    fn show(&mut self) -> (Kind, Sighting) {
        let running = self.chance.between(0.0, 24.0).floor();
        let context = running * self.chance.between(200.0, 3_000.0);
        let mut it = Sighting::default();
        let kind = if self.chance.next() < 0.5 {
            // Most prompts are short and some are long; half of many is cached.
            let tokens = 60.0 * (self.chance.between(0.0, 5.0)).exp();
            let cached = if self.chance.next() < 0.5 { 0.0 } else { tokens };
            (it.reading_steps, it.reading_tokens) = (1.0, tokens + running);
            it.attention_pairs = tokens * (cached + tokens / 2.0) + context;
            (it.context_tokens, it.answers) = (cached + context, 1.0);
            Kind::FirstToken
        } else {
            let steps = 32.0;
            (it.steps, it.batch) = (steps, running + 1.0);
            (it.attention_pairs, it.context_tokens) = (steps * context, steps * context);
            Kind::Gaps
        };
        let exact = it.predict_ms(&terms_of(&self.step, self.overhead_ms));
        let off = self.chance.between(1.0 - self.noise, 1.0 + self.noise);
        let late = if self.noise > 0.0 && self.chance.next() < 0.1 { 8.0 } else { 1.0 };
        it.ms = exact * off * late;
        (kind, it)
    }

    fn teach(&mut self, learner: &mut Learner, sightings: u32) {
        for number in 0..sightings {
            let (kind, sighting) = self.show();
            learner.see(kind, &sighting);
            if number % 10 == 0 {
                learner.refresh();
            }
        }
    }
}

fn scaled(step: StepTimes, factor: f64) -> StepTimes {
    StepTimes {
        floor_ms: step.floor_ms * factor,
        new_token_ms: step.new_token_ms * factor,
        attention_ms: step.attention_ms * factor,
        context_ms: step.context_ms * factor,
    }
}

/// As a small model on a CPU: its steps are a few times as long, its prompts take a hundred times as long.
const CPU: StepTimes =
    StepTimes { floor_ms: 30.0, new_token_ms: 2.0, attention_ms: 5e-5, context_ms: 4e-4 };

fn engines() -> [StepTimes; 5] {
    let usual = StepTimes::LLAMA_8B;
    [usual, scaled(usual, 0.5), scaled(usual, 3.0), StepTimes::LLAMA_70B, CPU]
}

/// How far off a usual prompt and a usual step are predicted, as shares.
fn off(found: &StepTimes, truth: &StepTimes) -> [f64; 2] {
    let share = |work: StepWork| found.step_ms(&work) / truth.step_ms(&work) - 1.0;
    let mut batch = StepWork::default();
    (0..12).for_each(|_| batch.add(1, 1_500));
    [share(StepWork::of(1_000, 500)), share(batch)]
}

#[test]
fn another_engine_is_found_in_two_hundred_sightings() {
    for truth in engines() {
        let mut learner = Learner::new(Arc::default());
        Engine::new(truth, 4.0, 0.15, 1).teach(&mut learner, 200);
        let found = off(&learner.used().step, &truth);
        assert!(found.iter().all(|it| it.abs() < 0.2), "{found:?} {:?}", learner.learned());
    }
}

#[test]
fn what_was_given_and_is_right_stays() {
    let mut learner = Learner::new(Arc::default());
    Engine::new(StepTimes::LLAMA_8B, 0.0, 0.2, 3).teach(&mut learner, 5_000);
    assert!(Arc::ptr_eq(learner.used(), learner.given()));
    assert_eq!((learner.learned().changes, learner.learned().is_used), (0, false));
}

#[test]
fn terms_that_the_load_does_not_show_move_with_those_it_does() {
    let truth = scaled(StepTimes::LLAMA_8B, 4.0);
    let mut learner = Learner::new(Arc::default());
    for _ in 0..200 {
        let ms = 32.0 * truth.floor_ms;
        learner.see(Kind::Gaps, &Sighting { steps: 32.0, batch: 1.0, ms, ..Sighting::default() });
    }
    learner.refresh();
    let found = learner.used().step.new_token_ms / truth.new_token_ms;
    assert!((0.6..1.4).contains(&found), "{found}");
}

#[test]
fn capacity_follows_and_a_request_costs_as_many_units_as_before() {
    let truth = scaled(StepTimes::LLAMA_8B, 3.0);
    let mut learner = Learner::new(Arc::default());
    Engine::new(truth, 1.0, 0.0, 7).teach(&mut learner, 600);
    let (given, used) = (Arc::clone(learner.given()), Arc::clone(learner.used()));
    let capacity = used.capacity_mu_per_min / given.capacity_mu_per_min;
    assert!((0.28..0.39).contains(&capacity), "{capacity}");
    let units = |it: &Hardware| it.mu(it.cost.cost_ms(1_024, 0, 128, 1_088));
    assert!((units(&used) / units(&given) - 1.0).abs() < 0.1, "{} {}", units(&used), units(&given));
}

#[test]
fn measured_costs_are_left_only_when_they_are_far_off() {
    let measured = || Arc::new(Hardware { is_measured: true, ..Hardware::default() });
    let mut learner = Learner::new(measured());
    Engine::new(scaled(StepTimes::LLAMA_8B, 1.25), 0.0, 0.1, 5).teach(&mut learner, 1_000);
    assert!(Arc::ptr_eq(learner.used(), learner.given()), "a quarter is no drift");
    let mut learner = Learner::new(measured());
    Engine::new(scaled(StepTimes::LLAMA_8B, 3.0), 0.0, 0.1, 5).teach(&mut learner, 1_000);
    assert!(!Arc::ptr_eq(learner.used(), learner.given()), "the engine is another");
}

#[test]
fn a_change_of_the_engine_is_noticed_and_learned_again() {
    let (before, after) = (scaled(StepTimes::LLAMA_8B, 3.0), scaled(StepTimes::LLAMA_8B, 0.7));
    let mut learner = Learner::new(Arc::default());
    Engine::new(before, 2.0, 0.15, 11).teach(&mut learner, 2_000);
    Engine::new(after, 2.0, 0.15, 12).teach(&mut learner, 400);
    // The given prices are near enough by then, so either is right.
    let found = off(&learner.used().step, &after);
    assert!(found.iter().all(|it| it.abs() < 0.5), "{found:?}");
    let believed = off(&learner.learned().step, &after);
    assert!(believed.iter().all(|it| it.abs() < 0.2), "{believed:?}");
    assert!(0 < learner.learned().changes);
}

#[test]
fn what_was_learned_outlives_a_restart_and_another_class_does_not_get_it() {
    let mut learner = Learner::new(Arc::default());
    Engine::new(CPU, 4.0, 0.1, 17).teach(&mut learner, 500);
    let kept = learner.learned();
    let mut next = Learner::new(Arc::default());
    next.resume(&kept);
    next.refresh();
    let found = off(&next.used().step, &CPU);
    assert!(found.iter().all(|it| it.abs() < 0.1), "{found:?}");
    let other = Hardware::of_steps("other", StepTimes::LLAMA_70B);
    let mut other = Learner::new(Arc::new(other));
    other.resume(&kept);
    assert_eq!((other.refresh(), other.learned().seen), (None, 0));
}

/// The mean error of what is used against that of what was given, over all sightings so far; the worst of
/// them from `from` on.
fn worst(given: StepTimes, engines: &mut [Engine], each: u32, from: u32) -> f64 {
    let mut learner = Learner::new(Arc::new(Hardware::of_steps("some", given)));
    let (mut used, mut kept, mut worst) = (0.0, 0.0, 0.0_f64);
    for number in 0..each * u32::try_from(engines.len()).unwrap() {
        let engine = &mut engines[usize::try_from(number / each).unwrap()];
        let (kind, it) = engine.show();
        let error = |by: &Hardware| {
            let predicted = it.predict_ms(&terms_of(&by.step, by.overhead_ms));
            (predicted / it.ms).ln().abs().min(2.0)
        };
        used += error(learner.used());
        kept += error(learner.given());
        if from <= number {
            worst = worst.max(used / kept);
        }
        learner.see(kind, &it);
        learner.refresh();
    }
    worst
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_used_is_never_much_worse_than_what_was_given(
        seed in 0_u64..1_000,
        factors in prop::array::uniform4(0.2_f64..5.0),
        then in 0.3_f64..3.0,
        noise in 0.05_f64..0.5,
    ) {
        let usual = StepTimes::LLAMA_8B;
        let truth = StepTimes {
            floor_ms: usual.floor_ms * factors[0],
            new_token_ms: usual.new_token_ms * factors[1],
            attention_ms: usual.attention_ms * factors[2],
            context_ms: usual.context_ms * factors[3],
        };
        let mut engines = [
            Engine::new(truth, 3.0, noise, seed),
            Engine::new(scaled(truth, then), 3.0, noise, seed + 1),
            Engine::new(usual, 0.0, noise, seed + 2),
        ];
        let found = worst(usual, &mut engines, 700, 50);
        prop_assert!(found < 1.1, "{found}");
    }

    #[test]
    fn no_sighting_makes_prices_that_cannot_be(
        seen in prop::collection::vec(prop::array::uniform8(prop::num::f64::ANY), 1..60),
    ) {
        let mut learner = Learner::new(Arc::default());
        for it in seen {
            let [steps, batch, reading_steps, reading_tokens, attention_pairs, context_tokens, answers, ms] = it;
            let sighting = Sighting {
                steps, batch, reading_steps, reading_tokens, attention_pairs, context_tokens, answers, ms,
            };
            for kind in Kind::ALL {
                learner.see(kind, &sighting);
                learner.see(kind, &Sighting { ms: ms.abs(), steps: 1.0, ..Sighting::default() });
            }
            learner.refresh();
            let used = learner.used();
            let all = [used.step.floor_ms, used.step.new_token_ms, used.cost.output_token_ms];
            prop_assert!(all.iter().all(|it| it.is_finite() && 0.0 < *it), "{used:?}");
            prop_assert!(used.capacity_mu_per_min.is_finite() && 0.0 < used.capacity_mu_per_min);
        }
    }
}
