//! The last hour for the page: a column for each figure of each pool, so that what is sent is figures and little else.

use std::collections::BTreeMap;

use cleave_core::brain::LeaveCause;
use serde::Serialize;

use crate::proxy::{FlowSample, Router};

/// Samples of every pool, the oldest first.
#[derive(Debug, Serialize)]
pub(super) struct Past {
    pools: BTreeMap<String, PastColumns>,
}

#[derive(Debug, Default, Serialize)]
struct PastColumns {
    at_s: Vec<u64>,
    answered: Vec<u64>,
    failed: Vec<u64>,
    refused: Vec<u64>,
    cancelled: Vec<u64>,
    input: Vec<u64>,
    cached: Vec<u64>,
    output: Vec<u64>,
    p50_ms: Vec<Option<f64>>,
    p90_ms: Vec<Option<f64>>,
    p99_ms: Vec<Option<f64>>,
    in_flight: Vec<usize>,
    waiting: Vec<usize>,
    moved: Vec<[u64; LeaveCause::ALL.len()]>,
}

impl Past {
    /// Collects what came after a moment of Unix time; nothing where nothing did.
    pub(super) fn after(router: &Router, at_s: u64) -> Option<Self> {
        let found = router.flow.after(at_s);
        let columns = |samples: Vec<FlowSample>| {
            samples.iter().fold(PastColumns::default(), PastColumns::with)
        };
        let pools: BTreeMap<String, PastColumns> =
            found.into_iter().map(|(name, samples)| (name, columns(samples))).collect();
        (!pools.is_empty()).then_some(Self { pools })
    }
}

impl PastColumns {
    fn with(mut self, it: &FlowSample) -> Self {
        let [answered, failed, refused, cancelled] = it.ended;
        let [input, cached, output] = it.tokens;
        let quantile = |at: usize| it.first_token_ms.map(|it| (it[at] * 10.0).round() / 10.0);
        self.at_s.push(it.at_s);
        self.answered.push(answered);
        self.failed.push(failed);
        self.refused.push(refused);
        self.cancelled.push(cancelled);
        self.input.push(input);
        self.cached.push(cached);
        self.output.push(output);
        self.p50_ms.push(quantile(0));
        self.p90_ms.push(quantile(1));
        self.p99_ms.push(quantile(2));
        self.in_flight.push(it.in_flight);
        self.waiting.push(it.waiting);
        self.moved.push(it.moved);
        self
    }
}
