//! The metrics that OpenTelemetry's conventions for generative models define, by their names: as a server of
//! models the router has the time of a request, of its first token and of each further one; as a client of
//! engines the tokens that they report. Handles are made once for each model and operation of a pool, at most a
//! hundred; the rest is `other`.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::served::ServedRequest;

/// Models and operations of a pool that are told apart.
const MODELS_MAX: usize = 100;
const PROVIDER: &str = "cleave";

/// The bounds of buckets that the conventions ask for.
const DURATIONS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const FIRST_TOKENS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const GAPS: [f64; 13] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "these are the names of the conventions")]
struct GenAiLabel {
    gen_ai_operation_name: String,
    gen_ai_provider_name: &'static str,
    gen_ai_request_model: String,
}

#[derive(Debug)]
pub(super) struct GenAiFamilies {
    duration: Family<GenAiLabel, Histogram>,
    first_token: Family<GenAiLabel, Histogram>,
    gap: Family<GenAiLabel, Histogram>,
    input: Family<GenAiLabel, Counter>,
    output: Family<GenAiLabel, Counter>,
    cached: Family<GenAiLabel, Counter>,
}

/// What requests for one model touch.
#[derive(Debug)]
struct GenAiHandles {
    duration: Histogram,
    first_token: Histogram,
    gap: Histogram,
    input: Counter,
    output: Counter,
    cached: Counter,
}

type ByModel = BTreeMap<String, BTreeMap<String, Arc<GenAiHandles>>>;

/// The models of one pool.
#[derive(Clone, Debug)]
pub struct GenAiMetrics {
    families: Arc<GenAiFamilies>,
    /// By the model, then by the operation.
    handles: Arc<RwLock<ByModel>>,
}

impl Default for GenAiFamilies {
    fn default() -> Self {
        Self {
            duration: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
            first_token: Family::new_with_constructor(|| Histogram::new(FIRST_TOKENS)),
            gap: Family::new_with_constructor(|| Histogram::new(GAPS)),
            input: Family::default(),
            output: Family::default(),
            cached: Family::default(),
        }
    }
}

impl GenAiFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register(
            "gen_ai_server_request_duration_seconds",
            "Request received to end of answer",
            self.duration.clone(),
        );
        it.register(
            "gen_ai_server_time_to_first_token_seconds",
            "Request received to first content of a stream",
            self.first_token.clone(),
        );
        it.register(
            "gen_ai_server_time_per_output_token_seconds",
            "Time of each token of a stream after the first",
            self.gap.clone(),
        );
        it.register(
            "gen_ai_client_inference_usage_input_tokens",
            "Tokens of prompts, as engines report them",
            self.input.clone(),
        );
        it.register(
            "gen_ai_client_inference_usage_output_tokens",
            "Tokens of answers, as engines report them",
            self.output.clone(),
        );
        it.register(
            "gen_ai_client_inference_usage_cache_read_input_tokens",
            "Tokens of prompts that were cached, as engines report them",
            self.cached.clone(),
        );
    }

    fn handles(&self, operation: &str, model: &str) -> GenAiHandles {
        let label = GenAiLabel {
            gen_ai_operation_name: operation.to_owned(),
            gen_ai_provider_name: PROVIDER,
            gen_ai_request_model: model.to_owned(),
        };
        GenAiHandles {
            duration: self.duration.get_or_create_owned(&label),
            first_token: self.first_token.get_or_create_owned(&label),
            gap: self.gap.get_or_create_owned(&label),
            input: self.input.get_or_create_owned(&label),
            output: self.output.get_or_create_owned(&label),
            cached: self.cached.get_or_create_owned(&label),
        }
    }
}

impl GenAiMetrics {
    pub(super) fn new(families: Arc<GenAiFamilies>) -> Self {
        Self { families, handles: Arc::default() }
    }

    /// Counts a request that is over.
    pub fn on_ended(&self, operation: &str, model: &str, it: &ServedRequest) {
        let handles = self.find(operation, model);
        handles.duration.observe(it.total.as_secs_f64());
        if let Some(first_token) = it.first_token {
            handles.first_token.observe(first_token.as_secs_f64());
        }
        if let Some(gap) = it.gap {
            handles.gap.observe(gap.as_secs_f64());
        }
        handles.input.inc_by(it.usage.input.unwrap_or(0).into());
        handles.output.inc_by(it.usage.output.unwrap_or(0).into());
        handles.cached.inc_by(it.usage.cached.unwrap_or(0).into());
    }

    fn find(&self, operation: &str, model: &str) -> Arc<GenAiHandles> {
        // Handles are only added, each whole.
        let all = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(model).and_then(|it| it.get(operation)) {
            return Arc::clone(known);
        }
        let is_full = MODELS_MAX <= all.values().map(BTreeMap::len).sum();
        drop(all);
        let (operation, model) = if is_full { ("other", "other") } else { (operation, model) };
        let made = Arc::new(self.families.handles(operation, model));
        let mut all = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        let of_model = all.entry(model.to_owned()).or_default();
        Arc::clone(of_model.entry(operation.to_owned()).or_insert(made))
    }
}
