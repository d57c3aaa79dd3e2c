//! Everything known of what one model costs on one class of replicas, and the book of them that is
//! kept in a file. The book reads strictly: an unknown key, a time below zero or a class listed twice
//! is an error that names its place, because a wrong figure here would misroute in silence. What a
//! request costs is derived, never stored, so that a file cannot contradict itself.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{ErrorQuantiles, KneePoint, MODEL_UNIT_MS, RequestCost, StepTimes};

/// What a reference replica makes in a minute at its knee.
const REFERENCE_MU_PER_MIN: f64 = 60_000.0 / MODEL_UNIT_MS;
const NAME_BYTES_MAX: usize = 256;

/// How coefficients came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Measured on a live replica, from outside.
    Replica,
    /// Fitted on a table of step times; the knee is predicted.
    Table,
    /// Scaled from another model or other hardware: the right order of magnitude, no more.
    Guess,
}

/// What one model costs on one class of replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    pub model: String,
    /// Replicas with the same hardware and the same engine settings.
    pub class: String,
    pub origin: Origin,
    /// Which replica, table or rule.
    pub source: String,
    /// The day, as in 2026-11-15.
    pub date: String,
    /// Model units a minute at the knee; the first class of a model in a book makes 100.
    pub capacity_mu_per_min: f64,
    /// What an answer's way to the client adds to its first token.
    pub overhead_ms: f64,
    /// What an image takes beside its tokens; zero when it was not measured.
    #[serde(default)]
    pub image_ms: f64,
    /// What a second of sound takes beside its tokens; zero when it was not measured.
    #[serde(default)]
    pub audio_second_ms: f64,
    /// What it takes to load an adapter that the replica did not use lately.
    #[serde(default = "adapter_ms_unknown")]
    pub adapter_ms: f64,
    pub step: StepTimes,
    pub knee: KneePoint,
    /// Relative error of predicted times, cross-validated; a guess has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorQuantiles>,
}

impl Coefficients {
    /// Derives what requests cost.
    pub fn request_cost(&self) -> RequestCost {
        RequestCost {
            image_ms: self.image_ms,
            audio_second_ms: self.audio_second_ms,
            adapter_ms: self.adapter_ms,
            ..RequestCost::at_knee(&self.step, self.knee.concurrency)
        }
    }

    /// Prices what a replica of class `other` does in a minute at its knee, as if done here.
    fn price_minute_of(&self, other: &Self) -> f64 {
        let mix = other.knee.mix();
        let (prompt, output) = (mix.prompt_tokens, mix.output_tokens);
        let request = self.request_cost().cost_ms(prompt, 0, output, mix.context_tokens());
        other.knee.requests_per_min * request
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let names = [("model", &self.model), ("class", &self.class), ("source", &self.source)];
        for (key, name) in names {
            if name.is_empty() || NAME_BYTES_MAX < name.len() {
                problems.push(format!("{key}: must have 1 to {NAME_BYTES_MAX} bytes"));
            }
        }
        if !is_date(&self.date) {
            problems.push(format!("date: {:?} is not a day as in 2026-11-15", self.date));
        }
        let (step, knee, error) = (&self.step, &self.knee, self.error.unwrap_or_default());
        let above_zero = [
            ("capacity_mu_per_min", self.capacity_mu_per_min),
            ("step.floor_ms", step.floor_ms),
            ("knee.concurrency", f64::from(knee.concurrency)),
            ("knee.requests_per_min", knee.requests_per_min),
            ("knee.prompt_tokens", f64::from(knee.prompt_tokens)),
            ("knee.output_tokens", f64::from(knee.output_tokens)),
        ];
        let not_below_zero = [
            ("overhead_ms", self.overhead_ms),
            ("image_ms", self.image_ms),
            ("audio_second_ms", self.audio_second_ms),
            ("adapter_ms", self.adapter_ms),
            ("step.new_token_ms", step.new_token_ms),
            ("step.attention_ms", step.attention_ms),
            ("step.context_ms", step.context_ms),
            ("error.p50", error.p50),
            ("error.p90", error.p90),
            ("error.p95", error.p95),
            ("error.max", error.max),
        ];
        for (key, value) in above_zero {
            if !(value.is_finite() && 0.0 < value) {
                problems.push(format!("{key}: {value} must be above 0"));
            }
        }
        for (key, value) in not_below_zero {
            if !(value.is_finite() && 0.0 <= value) {
                problems.push(format!("{key}: {value} must be 0 or above"));
            }
        }
        problems
    }
}

const fn adapter_ms_unknown() -> f64 {
    RequestCost::ADAPTER_MS_UNKNOWN
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let number = |at: std::ops::Range<usize>| text.get(at).and_then(|it| it.parse::<u32>().ok());
    bytes.len() == 10
        && (bytes[4], bytes[7]) == (b'-', b'-')
        && number(0..4).is_some()
        && number(5..7).is_some_and(|it| (1..=12).contains(&it))
        && number(8..10).is_some_and(|it| (1..=31).contains(&it))
}

/// All that is wrong with a book.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}", .0.join("; "))]
pub struct BookError(pub Vec<String>);

/// The coefficients in a file, each model and class once. Read and write it with any format serde
/// has; `cleave` uses TOML.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawBook")]
pub struct CostBook {
    coefficients: Vec<Coefficients>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBook {
    #[serde(default)]
    coefficients: Vec<Coefficients>,
}

impl TryFrom<RawBook> for CostBook {
    type Error = BookError;

    fn try_from(raw: RawBook) -> Result<Self, BookError> {
        let entries = &raw.coefficients;
        let mut problems = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let found = entry.problems().into_iter();
            problems.extend(found.map(|it| format!("coefficients[{at}].{it}")));
            if let Some(first) = entries[..at].iter().position(|it| is_same_class(it, entry)) {
                let Coefficients { model, class, .. } = entry;
                problems.push(format!(
                    "coefficients[{at}]: {model:?} on {class:?} is already coefficients[{first}]"
                ));
            }
        }
        if problems.is_empty() {
            Ok(Self { coefficients: raw.coefficients })
        } else {
            Err(BookError(problems))
        }
    }
}

fn is_same_class(one: &Coefficients, other: &Coefficients) -> bool {
    (&one.model, &one.class) == (&other.model, &other.class)
}

impl CostBook {
    pub fn iter(&self) -> impl Iterator<Item = &Coefficients> {
        self.coefficients.iter()
    }

    pub fn find(&self, model: &str, class: &str) -> Option<&Coefficients> {
        self.coefficients.iter().find(|it| it.model == model && it.class == class)
    }

    /// Finds the class in whose time a model's units are counted: the first one listed.
    pub fn reference(&self, model: &str) -> Option<&Coefficients> {
        self.coefficients.iter().find(|it| it.model == model)
    }

    /// Adds a class of a model or replaces it in its place, and counts the capacity of all classes of
    /// the model anew.
    pub fn put(&mut self, entry: Coefficients) {
        let model = entry.model.clone();
        match self.coefficients.iter_mut().find(|it| is_same_class(it, &entry)) {
            Some(old) => *old = entry,
            None => self.coefficients.push(entry),
        }
        let Some(reference) = self.reference(&model).cloned() else { return };
        let own = reference.price_minute_of(&reference);
        for entry in self.coefficients.iter_mut().filter(|it| it.model == model) {
            // A class without work to compare keeps what it says of itself.
            if 0.0 < own {
                entry.capacity_mu_per_min =
                    REFERENCE_MU_PER_MIN * (reference.price_minute_of(entry) / own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin::built_in;
    use super::*;

    fn entry(model: &str, class: &str) -> Coefficients {
        let built_in = built_in("llama-3-8b").unwrap();
        Coefficients { model: model.to_owned(), class: class.to_owned(), ..built_in }
    }

    fn book(entries: Vec<Coefficients>) -> Result<CostBook, BookError> {
        RawBook { coefficients: entries }.try_into()
    }

    #[test]
    fn every_problem_is_named_by_its_place() {
        let mut bad = entry("m", "b");
        bad.step.floor_ms = f64::NAN;
        bad.step.context_ms = -1.0;
        bad.date = "2026-13-01".to_owned();
        let twice = entry("m", "a");
        let error = book(vec![entry("m", "a"), bad, twice]).unwrap_err();
        let named: Vec<&str> = error.0.iter().map(|it| it.split_once(": ").unwrap().0).collect();
        let wanted = [
            "coefficients[1].date",
            "coefficients[1].step.floor_ms",
            "coefficients[1].step.context_ms",
            "coefficients[2]",
        ];
        assert_eq!(named, wanted);
    }

    #[test]
    fn the_first_class_of_a_model_makes_100_units_and_others_what_they_do_beside_it() {
        let mut half = entry("m", "slow");
        half.knee.requests_per_min /= 2.0;
        let mut book = CostBook::default();
        book.put(entry("m", "fast"));
        book.put(half);
        book.put(entry("other", "slow"));
        let capacities: Vec<f64> = book.iter().map(|it| it.capacity_mu_per_min).collect();
        for (found, wanted) in capacities.iter().zip([100.0, 50.0, 100.0]) {
            assert!((found - wanted).abs() < 1e-9, "{capacities:?}");
        }
    }

    #[test]
    fn a_class_that_is_measured_again_keeps_its_place() {
        let mut book = CostBook::default();
        book.put(entry("m", "a"));
        book.put(entry("m", "b"));
        let again = Coefficients { source: "again".to_owned(), ..entry("m", "a") };
        book.put(again);
        assert_eq!(book.iter().count(), 2);
        assert_eq!(book.reference("m").unwrap().source, "again");
    }

    #[test]
    fn the_day_must_be_one() {
        assert!(is_date("2026-11-15"));
        for text in ["", "2026-11-5", "2026/11/15", "2026-11-32", "yesterday!", "２026-1-1"] {
            assert!(!is_date(text), "{text}");
        }
    }
}
