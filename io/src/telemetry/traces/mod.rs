//! Traces: what happened to a request, as spans, sent to a collector of OpenTelemetry. A request hands its spans
//! over already encoded, into a buffer that is bounded in bytes; a task of its own sends them. What does not fit
//! is dropped and counted, so a collector that is away or hangs costs requests nothing.
//!
//! Which requests are recorded is decided twice: at the arrival by lot, or because the client records it, and at
//! the end because it failed, was slow or was explained.

mod context;
mod export;
pub mod otlp;
mod request;
mod settings;

use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

use request::span_id;

pub use context::TraceContext;
pub use request::{TracedRequest, TracedTry};
pub use settings::{TraceProtocol, TraceSettings};

/// Bytes of spans that may wait for the collector; as many may be on their way.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// What is sent without waiting for more.
const BATCH_BYTES: usize = 512 << 10;

/// What came of spans.
#[derive(Clone, Debug, Default)]
pub struct SpanCounters {
    pub sent: Counter,
    /// Because too many waited.
    pub dropped_full: Counter,
    /// Because the collector did not take them.
    pub dropped_refused: Counter,
}

/// Spans on their way to the collector.
#[derive(Debug)]
pub struct Traces {
    settings: Option<TraceSettings>,
    /// Another one in every process, so that spans of several routers in one trace differ.
    seed: u64,
    queue: Mutex<Batch>,
    /// Told when there is enough for a batch.
    filled: Notify,
    counters: SpanCounters,
}

/// Encoded spans.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    spans: u64,
}

impl Traces {
    pub fn new(settings: Option<TraceSettings>, seed: u64, counters: SpanCounters) -> Self {
        Self { settings, seed, queue: Mutex::default(), filled: Notify::new(), counters }
    }

    pub const fn is_on(&self) -> bool {
        self.settings.is_some()
    }

    /// Says which trace a request is part of. Where traces are off, that is its client's, as it stands.
    pub fn begin(
        &self,
        given: Option<TraceContext>,
        chance: impl FnOnce() -> u128,
    ) -> Option<TraceContext> {
        let Some(settings) = &self.settings else { return given };
        let asked = settings.follows_parent && given.is_some_and(|it| it.is_sampled);
        let mut context = given.unwrap_or_else(|| TraceContext::begin(chance()));
        context.is_sampled = asked || context.is_drawn(settings.sample);
        Some(context)
    }

    /// Says from what the ids of a request's spans are made.
    pub const fn seed_of(&self, request: u64) -> u64 {
        self.seed ^ request.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Writes the `traceparent` of a try, by its place.
    pub fn header(&self, context: &TraceContext, request: u64, place: u32) -> Option<String> {
        let span = span_id(self.seed_of(request), place.into());
        self.is_on().then(|| context.header(span))
    }

    /// Takes the spans of a request that is over, or drops them.
    pub fn record(&self, request: &TracedRequest<'_>) {
        let spans = request.spans();
        let mut encoded = Vec::with_capacity(2 << 10);
        for span in &spans {
            span.append(&mut encoded);
        }
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let mut queue = self.lock();
        if QUEUE_BYTES_MAX < queue.bytes.len() + encoded.len() {
            self.counters.dropped_full.inc_by(count);
            return;
        }
        queue.bytes.extend_from_slice(&encoded);
        queue.spans += count;
        if BATCH_BYTES <= queue.bytes.len() {
            self.filled.notify_one();
        }
    }

    fn take(&self) -> Batch {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use cleave_core::domain::Usage;
    use http::HeaderMap;

    use super::*;

    fn traces(sample: f64, follows_parent: bool) -> Traces {
        let settings = TraceSettings {
            endpoint: "http://127.0.0.1:1".parse().unwrap(),
            protocol: TraceProtocol::Http,
            headers: HeaderMap::new(),
            tls: None,
            service_name: "cleave".to_owned(),
            sample,
            follows_parent,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
        };
        Traces::new(Some(settings), 1, SpanCounters::default())
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_and_what_does_not_fit_is_counted() {
        let traces = traces(1.0, true);
        let long = "x".repeat(100_000);
        let request = TracedRequest {
            context: traces.begin(None, || 7).unwrap(),
            seed: 3,
            arrived_at: SystemTime::UNIX_EPOCH,
            total: Duration::from_secs(1),
            request_id: &long,
            method: "GET",
            path: "/",
            status: 200,
            error: None,
            outcome: "done",
            operation: "chat",
            model: None,
            pool: None,
            class: None,
            tenant: None,
            session: None,
            stream: false,
            usage: Usage::default(),
            verdict: None,
            asked: None,
            tries: Vec::new(),
            first_token: None,
            answered: Duration::ZERO,
        };
        (0..100).for_each(|_| traces.record(&request));
        let batch = traces.take();
        assert!(batch.bytes.len() <= QUEUE_BYTES_MAX && 30 < batch.spans, "{}", batch.spans);
        assert_eq!(batch.spans + traces.counters.dropped_full.get(), 100);
        assert_eq!(traces.take().spans, 0, "taken once");
    }

    #[test]
    fn a_client_decides_what_is_recorded_only_where_it_may() {
        let given = TraceContext::read(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let is_sampled = |it: &Traces| it.begin(given, || 1).unwrap().is_sampled;
        assert!(is_sampled(&traces(0.0, true)) && !is_sampled(&traces(0.0, false)));
        assert!(is_sampled(&traces(1.0, false)));
        let off = Traces::new(None, 1, SpanCounters::default());
        assert_eq!(off.begin(given, || 1), given, "as it stands");
        assert_eq!((off.begin(None, || 1), off.header(&given.unwrap(), 1, 0)), (None, None));
    }
}
