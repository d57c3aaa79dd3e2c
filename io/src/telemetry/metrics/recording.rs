//! What came of requests that were to be recorded.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::telemetry::recording::RecordCounters;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RecordedLabel {
    outcome: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct RecordingFamilies {
    requests: Family<RecordedLabel, Counter>,
    is_on: Gauge,
}

impl RecordingFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        let help = "Requests that were to be recorded, by what came of them";
        it.register("cleave_recorded_requests", help, self.requests.clone());
        let help = "Whether requests are recorded at present";
        it.register("cleave_recording", help, self.is_on.clone());
    }

    pub(super) fn counters(&self) -> RecordCounters {
        let of = |outcome| self.requests.get_or_create_owned(&RecordedLabel { outcome });
        RecordCounters {
            written: of("written"),
            dropped_full: of("queue_full"),
            dropped_failed: of("not_written"),
            is_on: self.is_on.clone(),
        }
    }
}
