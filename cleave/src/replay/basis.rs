//! What work took on the fleet that was recorded. The router's own coefficients are where it begins: those it had
//! learned, and those it was given. Of these the ones are played with which whole answers take as long as they
//! did, made slower or faster by one factor where that agrees better still. First tokens have no part in the
//! choice, so that they can judge it.

use cleave_core::cost::StepTimes;
use cleave_core::domain::float;
use cleave_core::recording::{CostLine, PoolLine};
use cleave_sim::traces::Recording;
use cleave_sim::work;

use super::answer::Felt;
use super::past::Past;

/// What is left as it is when it agrees this well.
const NEAR: f64 = 0.03;
/// The bounds of the factor: beyond them it is another fleet.
const FACTOR_RANGE: (f64, f64) = (0.2, 5.0);

/// Times to play with.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    pub(super) costs: Vec<CostLine>,
    pub(super) overhead_ms: f64,
    pub(super) is_learned: bool,
    /// By what the router's coefficients were multiplied.
    pub(super) factor: f64,
}

impl Basis {
    /// Lists what the router went by: what it had learned, and what it was given before that.
    pub(super) fn of_router(recording: &Recording, past: &Past) -> Vec<Self> {
        let used = Self {
            costs: past.pool.costs.clone(),
            overhead_ms: past.overhead_ms,
            is_learned: past.pool.costs.iter().any(|it| it.is_learned),
            factor: 1.0,
        };
        let lines: Vec<&PoolLine> =
            recording.pools().map(|it| it.1).filter(|it| it.name == past.pool.name).collect();
        let given_of = |class: &str| {
            let all = lines.iter().flat_map(|it| &it.costs);
            all.filter(|it| it.class == class).find(|it| !it.is_learned).cloned()
        };
        let given = past.pool.costs.iter().map(|it| given_of(&it.class)).collect();
        let given: Option<Vec<CostLine>> = given;
        let given = given.map(|costs| {
            let mut it = Self { costs, overhead_ms: 0.0, is_learned: false, factor: 1.0 };
            it.overhead_ms = it.way_ms(recording, past);
            it
        });
        [used]
            .into_iter()
            .filter(|it| it.is_learned || given.is_none())
            .chain(given.clone())
            .collect()
    }

    /// The same, made slower or faster so that answers which took `replayed` take as long as they did.
    pub(super) fn stretched(
        &self,
        recording: &Recording,
        past: &Past,
        replayed: &Felt,
    ) -> Option<Self> {
        let (was, is) = (past.felt.end_to_end_s.p50, replayed.end_to_end_s.p50);
        let way_s = self.overhead_ms / 1e3;
        let ratio = (was - way_s) / (is - way_s);
        let factor = self.factor * ratio;
        let is_worth_it = ratio.is_finite() && NEAR < (ratio - 1.0).abs();
        if !is_worth_it || !(FACTOR_RANGE.0..=FACTOR_RANGE.1).contains(&factor) {
            return None;
        }
        let times = |it: StepTimes| StepTimes {
            floor_ms: it.floor_ms * ratio,
            new_token_ms: it.new_token_ms * ratio,
            attention_ms: it.attention_ms * ratio,
            context_ms: it.context_ms * ratio,
        };
        let costs =
            self.costs.iter().map(|it| CostLine { step: times(it.step), ..it.clone() }).collect();
        let mut stretched = Self { costs, factor, ..self.clone() };
        if !self.is_learned {
            stretched.overhead_ms = stretched.way_ms(recording, past);
        }
        Some(stretched)
    }

    /// Estimates what a first token takes beside the engine: what was left over of it for the tenth of all
    /// requests that met the least, which found a replica with nothing else to do.
    fn way_ms(&self, recording: &Recording, past: &Past) -> f64 {
        let class_of = |id: u32| past.pool.replicas.iter().find(|it| it.id == id);
        let cost_of = |class: &str| self.costs.iter().find(|it| it.class == class);
        let mut left: Vec<f64> = Vec::new();
        for it in recording.requests.iter().filter(|it| past.is_within(it)) {
            let line = &it.line;
            let (Some(first), Some(input), Some(cached)) = (line.first, line.input, line.cached)
            else {
                continue;
            };
            let cost = line.replica.and_then(class_of).and_then(|it| cost_of(&it.class));
            let Some(cost) = cost else { continue };
            let alone_ms =
                work::alone_ms(&cost.step, 8192, input.saturating_sub(cached), cached.min(input));
            left.push(float(first) / 1e3 - alone_ms);
        }
        left.sort_by(f64::total_cmp);
        left.get(left.len() / 10).copied().unwrap_or(0.0).max(0.0)
    }

    /// How far whole answers are off, as a ratio in logarithms.
    pub(super) fn error(past: &Past, replayed: &Felt) -> f64 {
        let (was, is) = (&past.felt.end_to_end_s, &replayed.end_to_end_s);
        let off = |was: f64, is: f64| {
            let ratio = (is / was).ln().abs();
            if ratio.is_finite() { ratio } else { f64::MAX }
        };
        off(was.p50, is.p50).max(off(was.p90, is.p90))
    }

    /// Says where the times come from.
    pub(super) fn words(&self) -> String {
        let source = if self.is_learned { "learned by the router" } else { "given to the router" };
        if (self.factor - 1.0).abs() < 1e-9 {
            source.to_owned()
        } else {
            format!("{source}, × {:.2} to agree with how long answers took", self.factor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_agree_are_left_alone_and_others_are_stretched_within_bounds() {
        let step = StepTimes::LLAMA_8B;
        let cost = CostLine { class: "a".to_owned(), step, overhead_ms: 0.0, is_learned: true };
        let basis = Basis { costs: vec![cost], overhead_ms: 0.0, is_learned: true, factor: 1.0 };
        let mut past = Past::example();
        past.felt.end_to_end_s.p50 = 2.0;
        let mut felt = past.felt.clone();
        let recording = Recording::default();
        assert!(basis.stretched(&recording, &past, &felt).is_none());
        felt.end_to_end_s.p50 = 1.0;
        let slower = basis.stretched(&recording, &past, &felt).unwrap();
        assert!((slower.costs[0].step.floor_ms - 2.0 * step.floor_ms).abs() < 1e-9);
        assert!(slower.words().contains("× 2.00"), "{}", slower.words());
        felt.end_to_end_s.p50 = 0.001;
        assert!(basis.stretched(&recording, &past, &felt).is_none(), "another fleet");
    }
}
