//! What came of spans, and histograms whose buckets name a trace as an example.

use std::time::{Duration, SystemTime};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::labels::SECONDS;
use crate::telemetry::traces::SpanCounters;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// The trace that a bucket names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TraceLabel {
    trace_id: String,
}

pub(super) type ExampledHistogram = HistogramWithExemplars<TraceLabel>;

/// A histogram whose buckets name a trace as an example.
#[derive(Clone, Debug)]
pub struct TracedHistogram(pub(super) ExampledHistogram);

impl TracedHistogram {
    /// Counts a time; `trace` names the trace that has it, where one is recorded.
    pub fn observe(&self, span: Duration, trace: Option<&str>) {
        let label = trace.map(|it| TraceLabel { trace_id: it.to_owned() });
        let now = label.is_some().then(SystemTime::now);
        self.0.observe(span.as_secs_f64(), label, now);
    }
}

pub(super) fn exampled_seconds() -> ExampledHistogram {
    HistogramWithExemplars::new(SECONDS.into_iter())
}

#[derive(Debug, Default)]
pub(super) struct TraceFamilies(Family<OutcomeLabel, Counter>);

impl TraceFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        let help = "Spans of traces, by what came of them";
        it.register("cleave_trace_spans", help, self.0.clone());
    }

    pub(super) fn counters(&self) -> SpanCounters {
        let of = |outcome| self.0.get_or_create_owned(&OutcomeLabel { outcome });
        SpanCounters {
            sent: of("sent"),
            dropped_full: of("queue_full"),
            dropped_refused: of("not_taken"),
        }
    }
}
