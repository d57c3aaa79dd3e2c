//! How the router speaks of itself: metrics, logs, one line per request, traces. It knows nothing of what it
//! reports on; other rooms hand it plain values.

mod access;
mod audit;
mod events;
mod logs;
mod metrics;
mod recording;
mod settings;
mod traces;
mod writer;

pub use access::{AccessLog, AccessRecord};
pub use audit::{AuditEntry, AuditLog};
pub use events::{Entry, Events, Incident};
pub use logs::{finish, last_words, start};
pub use metrics::{
    AssignmentGauges, Clients, GenAiMetrics, Metrics, MetricsFormat, PeerGauges, PoolGauges,
    PoolMetrics, ReplicaGauges, ReplicaHandles, ScaleGauges, ServedRequest, TenantGauges,
    TenantMetrics, TracedHistogram,
};
pub use recording::{
    NoFolder, RecordCounters, RecordSettings, RecordStatus, RecordedRequest, Recorder, micros,
};
pub use settings::{LogFormat, LogSettings};
pub use traces::{
    SpanCounters, TraceContext, TraceProtocol, TraceSettings, TracedRequest, TracedTry, Traces,
    otlp,
};
