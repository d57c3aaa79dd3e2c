//! The spans of one request: one for all of it, and below it one for its wait, its pick and each try; below the
//! last try one for the time to its first token and one for the relay. Attributes are those of the conventions of
//! OpenTelemetry for HTTP and for generative models, and ours, which begin with `cleave.`.

use std::time::{Duration, SystemTime};

use cleave_core::domain::{SliceKey, Usage, span_ms};

use super::context::TraceContext;
use super::otlp::{CLIENT, ERROR, INTERNAL, KeyValue, SERVER, Span, SpanStatus, Value};

/// What is told of one request. Moments are times after its arrival.
#[derive(Clone, Debug)]
pub struct TracedRequest<'a> {
    pub context: TraceContext,
    /// Makes ids of spans; the try at place `n` has the id `span_id` of this and `n`.
    pub seed: u64,
    pub arrived_at: SystemTime,
    pub total: Duration,
    pub request_id: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    /// Why it failed, if it did: a code of the router or the class of its status.
    pub error: Option<&'a str>,
    pub outcome: &'a str,
    /// What is asked for, in the words of the conventions.
    pub operation: &'a str,
    pub model: Option<&'a str>,
    pub pool: Option<&'a str>,
    pub class: Option<&'a str>,
    pub tenant: Option<&'a str>,
    pub session: Option<SliceKey>,
    pub stream: bool,
    pub usage: Usage,
    /// What made it slow, or that nothing did; only where it is worth keeping.
    pub verdict: Option<String>,
    /// When it first asked for a place, when the verdict came, and whether it waited in the line.
    pub asked: Option<(Duration, Duration, bool)>,
    pub tries: Vec<TracedTry<'a>>,
    pub first_token: Option<Duration>,
    /// When its answer was there.
    pub answered: Duration,
}

/// One time that it was sent.
#[derive(Clone, Copy, Debug)]
pub struct TracedTry<'a> {
    pub replica: &'a str,
    pub placed: Duration,
    pub head: Option<Duration>,
    pub failed: Option<(Duration, &'a str)>,
    pub ttft_expected_ms: f64,
    pub gap_expected_ms: f64,
    /// Prompt tokens believed to be cached there.
    pub cached_tokens: u32,
    /// What it was chosen by, where the reasons were written down.
    pub price_ms: Option<f64>,
}

/// The place of the span of the whole request among its spans; tries have those from 0 on.
const WHOLE: u64 = u64::MAX;

/// Makes the id of a span of a request, by its place; never 0.
pub(super) fn span_id(seed: u64, place: u64) -> u64 {
    // The finalizer of SplitMix64: close numbers give ids that are far apart.
    let mut it = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    it = (it ^ it >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ it >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (it ^ it >> 31).max(1)
}

impl TracedRequest<'_> {
    /// Makes the spans.
    pub(super) fn spans(&self) -> Vec<Span> {
        let root = span_id(self.seed, WHOLE);
        let mut spans = vec![self.whole(root)];
        let mut beside = WHOLE;
        let mut add = |name: &str, from: Duration, to: Duration, parent: u64| {
            beside -= 1;
            let id = span_id(self.seed, beside);
            Span { parent_span_id: id_bytes(parent), ..self.span((id, name), INTERNAL, from, to) }
        };
        if let Some((asked, placed, is_held)) = self.asked {
            let mut begin = asked;
            if is_held {
                spans.push(add("wait", asked, placed, root));
                begin = placed;
            }
            spans.push(Span { attributes: self.picked(), ..add("pick", begin, placed, root) });
        }
        for (place, it) in (0_u32..).zip(&self.tries) {
            let id = span_id(self.seed, place.into());
            spans.push(self.tried(it, (place, id), root));
            let (None, Some(head)) = (it.failed, it.head) else { continue };
            if let Some(at) = self.first_token.filter(|at| it.placed <= *at) {
                spans.push(add("first token", it.placed, at, id));
            }
            spans.push(add("relay", head, self.answered.max(head), id));
        }
        spans
    }

    fn whole(&self, id: u64) -> Span {
        let name = format!("{} {}", self.method, self.path);
        let mut it = Attributes::default();
        it.add("http.request.method", self.method);
        it.add("url.path", self.path);
        it.add("http.response.status_code", u32::from(self.status));
        self.describe(&mut it);
        it.add("cleave.request_id", self.request_id);
        it.add("cleave.outcome", self.outcome);
        it.add("cleave.tries", u32::try_from(self.tries.len()).unwrap_or(u32::MAX));
        it.add_some("cleave.verdict", self.verdict.as_deref());
        it.add_some("error.type", self.error);
        let span = self.span((id, &name), SERVER, Duration::ZERO, self.total);
        Span {
            parent_span_id: self.context.parent_bytes(),
            attributes: it.0,
            status: self.error.map(failed),
            ..span
        }
    }

    /// Adds what the conventions for generative models ask for, and whose request it is.
    fn describe(&self, it: &mut Attributes) {
        it.add("gen_ai.operation.name", self.operation);
        it.add("gen_ai.provider.name", "cleave");
        it.add_some("gen_ai.request.model", self.model);
        it.add_some("gen_ai.usage.input_tokens", self.usage.input);
        it.add_some("gen_ai.usage.output_tokens", self.usage.output);
        it.add_some("gen_ai.usage.cache_read.input_tokens", self.usage.cached);
        it.add("gen_ai.request.stream", self.stream);
        it.add_some("cleave.pool", self.pool);
        it.add_some("cleave.class", self.class);
        it.add_some("cleave.tenant", self.tenant);
        let session = self.session.map(|it| it.to_string());
        it.add_some("cleave.session", session.as_deref());
    }

    /// Says where it went at first, and why that was cheap.
    fn picked(&self) -> Vec<KeyValue> {
        let mut it = Attributes::default();
        if let Some(first) = self.tries.first() {
            it.add("cleave.replica", first.replica);
            it.add("cleave.cached_tokens", first.cached_tokens);
            it.add_some("cleave.price_ms", first.price_ms);
        }
        it.0
    }

    fn tried(&self, one: &TracedTry<'_>, (place, id): (u32, u64), parent: u64) -> Span {
        let name = format!("{} {}", self.operation, self.model.unwrap_or("-"));
        let to = one.failed.map_or(self.answered, |it| it.0).max(one.placed);
        let mut it = Attributes::default();
        self.describe(&mut it);
        it.add("cleave.replica", one.replica);
        it.add("cleave.try", place + 1);
        it.add("cleave.cached_tokens", one.cached_tokens);
        it.add("cleave.first_token_expected_ms", one.ttft_expected_ms);
        it.add("cleave.gap_expected_ms", one.gap_expected_ms);
        it.add_some("cleave.price_ms", one.price_ms);
        if let Some(host) = one.replica.split_once("://").map(|it| it.1) {
            let (address, port) = host.rsplit_once(':').unwrap_or((host, ""));
            it.add("server.address", address);
            it.add_some("server.port", port.parse::<u32>().ok());
        }
        let in_token = self.first_token.filter(|at| one.failed.is_none() && one.placed <= *at);
        let since = in_token.map(|at| span_ms(at.saturating_sub(one.placed)) / 1e3);
        it.add_some("gen_ai.response.time_to_first_chunk", since);
        let error = one.failed.map(|it| it.1);
        it.add_some("error.type", error);
        let span = self.span((id, &name), CLIENT, one.placed, to);
        Span {
            parent_span_id: id_bytes(parent),
            attributes: it.0,
            status: error.map(failed),
            ..span
        }
    }

    fn span(&self, (id, name): (u64, &str), kind: i32, from: Duration, to: Duration) -> Span {
        let nanos = |after: Duration| {
            let at = (self.arrived_at + after).duration_since(SystemTime::UNIX_EPOCH);
            u64::try_from(at.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
        };
        Span {
            trace_id: self.context.id_bytes(),
            span_id: id_bytes(id),
            name: name.to_owned(),
            kind,
            start_time_unix_nano: nanos(from),
            end_time_unix_nano: nanos(to.max(from)),
            // The lowest byte is W3C's flags.
            flags: u32::from(self.context.is_sampled),
            ..Span::default()
        }
    }
}

/// Attributes in the making.
#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn add(&mut self, key: &str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(key, value));
    }

    fn add_some(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }
}

fn id_bytes(id: u64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

fn failed(word: &str) -> SpanStatus {
    SpanStatus { message: word.to_owned(), code: ERROR }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(it: u64) -> Duration {
        Duration::from_millis(it)
    }

    fn request() -> TracedRequest<'static> {
        let header = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let one = TracedTry {
            replica: "http://gpu-0:8000",
            placed: ms(20),
            head: None,
            failed: Some((ms(25), "lost")),
            ttft_expected_ms: 40.0,
            gap_expected_ms: 8.0,
            cached_tokens: 64,
            price_ms: None,
        };
        let other = TracedTry {
            replica: "http://[::1]:8001",
            placed: ms(30),
            head: Some(ms(60)),
            failed: None,
            price_ms: Some(50.0),
            ..one
        };
        TracedRequest {
            context: TraceContext::read(header).unwrap(),
            seed: 7,
            arrived_at: SystemTime::UNIX_EPOCH + Duration::from_secs(100),
            total: ms(100),
            request_id: "r-1",
            method: "POST",
            path: "/v1/chat/completions",
            status: 200,
            error: None,
            outcome: "done",
            operation: "chat",
            model: Some("m"),
            pool: Some("p"),
            class: Some("batch"),
            tenant: Some("acme"),
            session: Some(SliceKey(255)),
            stream: true,
            usage: Usage { input: Some(80), output: Some(5), cached: Some(64) },
            verdict: Some("retried: one try failed".to_owned()),
            asked: Some((ms(1), ms(20), true)),
            tries: vec![one, other],
            first_token: Some(ms(70)),
            answered: ms(95),
        }
    }

    #[test]
    fn every_stage_has_a_span_below_the_one_it_belongs_to() {
        let spans = request().spans();
        let names: Vec<&str> = spans.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "POST /v1/chat/completions",
                "wait",
                "pick",
                "chat m",
                "chat m",
                "first token",
                "relay"
            ]
        );
        let id = |at: usize| spans[at].span_id.clone();
        let parents: Vec<_> = spans.iter().map(|it| it.parent_span_id.clone()).collect();
        let outside = 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes().to_vec();
        assert_eq!(parents, [outside, id(0), id(0), id(0), id(0), id(4), id(4)]);
        assert_eq!(id(3), span_id(7, 0).to_be_bytes(), "as the engine is told");
        let mut ids: Vec<_> = spans.iter().map(|it| it.span_id.clone()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), spans.len(), "all differ");
        let base = 100_000_000_000;
        let times: Vec<_> = spans
            .iter()
            .map(|it| {
                (
                    (it.start_time_unix_nano - base) / 1_000_000,
                    (it.end_time_unix_nano - base) / 1_000_000,
                )
            })
            .collect();
        assert_eq!(times, [(0, 100), (1, 20), (20, 20), (20, 25), (30, 95), (30, 70), (60, 95)]);
    }

    #[test]
    fn attributes_are_those_of_the_conventions_and_ours() {
        let spans = request().spans();
        let text = |at: usize, key: &str| spans[at].attribute(key).cloned();
        assert_eq!(text(0, "gen_ai.operation.name"), Some("chat".into()));
        assert_eq!(text(0, "gen_ai.usage.cache_read.input_tokens"), Some(64_u32.into()));
        assert_eq!(text(0, "cleave.tenant"), Some("acme".into()));
        assert_eq!(text(0, "cleave.session"), Some("00000000000000ff".into()));
        assert_eq!(text(0, "cleave.verdict"), Some("retried: one try failed".into()));
        assert_eq!(text(3, "error.type"), Some("lost".into()));
        assert_eq!(spans[3].status.as_ref().map(|it| it.code), Some(ERROR));
        assert_eq!((spans[0].kind, spans[3].kind, spans[1].kind), (SERVER, CLIENT, INTERNAL));
        assert_eq!(text(4, "server.address"), Some("[::1]".into()));
        assert_eq!(text(4, "server.port"), Some(8001_u32.into()));
        assert_eq!(text(4, "cleave.price_ms"), Some(50.0.into()));
        assert_eq!(text(4, "gen_ai.response.time_to_first_chunk"), Some(0.04.into()));
    }
}
