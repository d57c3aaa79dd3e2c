//! The end of a request: the brain's books, the metrics, the kept decision and the access line are
//! closed when the visit is dropped. A panic in here is contained, because another may be unwinding.

use std::thread;
use std::time::Duration;

use cleave_core::brain::{Course, End, Outcome, Remark};
use cleave_core::domain::Usage;
use cleave_core::protocol::{Api, ApiPath, Effect};
use cleave_core::tokens::{Possible, Seen};
use http::StatusCode;

use super::Visit;
use super::tracing::operation;
use crate::proxy::explanations::{KeptFor, RequestOutcome};
use crate::proxy::flow::FlowEnd;
use crate::proxy::life::Ended;
use crate::proxy::panics::{Panicked, attempt};
use crate::proxy::pool::Pool;
use crate::telemetry::{AccessRecord, PoolMetrics, ServedRequest, TraceContext};

/// What an answer has beside its text, where its form is not read.
const ENVELOPE_BYTES: u64 = 512;
/// More than a token of prose has.
const BYTES_PER_TOKEN: u64 = 6;
/// Events of a stream that come after its tokens: the reason to stop and the mark at the end.
const EVENTS_AFTER: u32 = 2;

impl Drop for Visit {
    fn drop(&mut self) {
        if thread::panicking() {
            self.on_panic();
            if self.answer.first_byte.is_none() {
                self.answer.status = StatusCode::INTERNAL_SERVER_ERROR;
            }
        }
        // A panic that leaves this while another unwinds would abort the process.
        if let Err(Panicked) = attempt(|| self.end()) {
            self.router.metrics.on_panic("request");
        }
    }
}

impl Visit {
    /// Notes that a panic of the router ends it, for which no replica and no workload is to blame.
    pub(in crate::proxy) const fn on_panic(&mut self) {
        self.answer.outcome = None;
    }

    fn end(&mut self) {
        let total = self.arrived.elapsed();
        let usage = self.answer.read_usage.unwrap_or_else(|| self.usage(total));
        let outcome = self.answer.outcome.unwrap_or(Outcome::Cancelled);
        self.close(outcome, self.lesson(usage));
        let course = self.placing.pool.is_some().then(|| self.course(usage, total));
        let remark = course.as_ref().and_then(Course::remark);
        let recorded = self.recorded(remark);
        if let Some(context) = recorded {
            self.trace_end(context, course.as_ref(), usage, total);
        }
        self.record(usage, total);
        if let Some(course) = course {
            self.keep_end((course, remark), usage, total);
        }
        let trace = recorded.as_ref().map(TraceContext::id);
        if let Some(pool) = &self.placing.pool {
            let metrics = &pool.metrics;
            self.count_outcome(metrics);
            metrics.tokens_input.inc_by(usage.input.unwrap_or(0).into());
            metrics.tokens_cached.inc_by(usage.cached.unwrap_or(0).into());
            metrics.tokens_output.inc_by(usage.output.unwrap_or(0).into());
            if let Some(first_byte) = self.answer.first_byte {
                metrics.first_byte.observe(first_byte, trace);
            }
            if let Some(first_token) = self.shown_first_token() {
                metrics.first_token.observe(first_token, trace);
            }
            metrics.total[usize::from(self.answer.stream)].observe(total, trace);
            self.count_served(pool, usage, total);
        }
        if let Some(code) = self.answer.code {
            self.router.metrics.on_error(code, self.answer.status.as_u16());
        }
        let class = self.placing.pool.as_ref().zip(self.placing.class);
        let estimated = if usage.output.is_none() { self.counted() } else { None };
        let output_estimated = estimated.filter(|it| 0 < *it);
        self.router.access.write(&AccessRecord {
            request_id: self.request_id.to_str().unwrap_or("-"),
            method: self.asked.method.as_str(),
            path: self.asked.uri.path(),
            status: self.answer.status.as_u16(),
            code: self
                .answer
                .code
                .or_else(|| (self.answer.outcome == Some(Outcome::Cut)).then_some("replica_lost")),
            client: self.asked.client,
            tenant: self.asked.whose.as_ref().and_then(|(all, at)| all.name_at(*at)),
            model: self.asked.model.as_deref(),
            class: class.as_ref().map(|(pool, it)| pool.classes().get(*it).name.as_str()),
            pool: self.placing.pool.as_ref().map_or("-", |it| &it.name),
            replica: self.placing.member.as_ref().map_or("-", |it| it.origin.as_str()),
            session: self.placing.key,
            tries: self.placing.tries,
            stream: self.answer.stream,
            waited: self.placing.waited,
            usage,
            input_estimated: self.input_estimated(usage, output_estimated),
            output_estimated,
            events: self.answer.meter.events(),
            first_byte: self.answer.first_byte,
            first_token: self.shown_first_token(),
            total,
            outcome: self.outcome_word(),
            trace_id: self.trace.as_ref().map(TraceContext::id),
        });
    }

    fn count_outcome(&self, metrics: &PoolMetrics) {
        match self.answer.outcome {
            // The answer was under way, or is a 500.
            None if self.answer.status != StatusCode::INTERNAL_SERVER_ERROR => {
                _ = metrics.cut.inc();
            }
            None | Some(Outcome::Done) => metrics.on_answered(self.answer.status.as_u16()),
            Some(Outcome::Cancelled) => _ = metrics.cancelled.inc(),
            Some(Outcome::Cut) => _ = metrics.cut.inc(),
        }
    }

    /// Says how long its prompt was taken to be when it was placed, where it was answered and the engine does not
    /// say it.
    fn input_estimated(&self, usage: Usage, output_estimated: Option<u32>) -> Option<u32> {
        let is_answered = self.answer.stream || usage.output.or(output_estimated).is_some();
        let placed = self.life.current().filter(|_| is_answered && usage.input.is_none());
        placed.map(|it| it.expected.prompt_tokens).filter(|it| 0 < *it)
    }

    /// Counts it for its replica, and for its tenant and class.
    fn count_served(&self, pool: &Pool, usage: Usage, total: Duration) {
        let first_token = self.shown_first_token();
        let gaps = self.streamed_tokens().saturating_sub(1);
        let rest = first_token.map(|it| total.saturating_sub(it)).filter(|_| 0 < gaps);
        let served = ServedRequest {
            status: self.answer.status.as_u16(),
            stream: self.answer.stream,
            first_token,
            gap: rest.map(|it| it / gaps),
            total,
            usage,
            refused: self.placing.refused,
        };
        if let Some(member) =
            self.placing.member.as_ref().filter(|_| self.placing.refused.is_none())
        {
            member.metrics.on_served(&served);
            member.flow.note(&served);
            if self.answer.outcome == Some(Outcome::Cut) {
                member.metrics.on_error("cut");
            }
        }
        pool.flow.note(self.flow_end(), (self.placing.tenant, self.placing.class), &served);
        let operation = operation(self.asked.api, self.asked.uri.path());
        pool.metrics.gen_ai.on_ended(operation, self.asked.model.as_deref().unwrap_or(""), &served);
        let tenant = self.asked.whose.as_ref().and_then(|(all, at)| all.name_at(*at));
        if let Some(class) = self.placing.class {
            let class = (class.0, pool.classes().get(class).name.as_str());
            pool.metrics.tenants.on_ended(
                (self.placing.tenant.0, tenant.unwrap_or("default")),
                class,
                &served,
            );
        }
    }

    fn flow_end(&self) -> FlowEnd {
        match self.answer.outcome {
            _ if self.placing.refused.is_some() => FlowEnd::Refused,
            Some(Outcome::Done) if self.answer.status.is_server_error() => FlowEnd::Failed,
            Some(Outcome::Done) => FlowEnd::Answered,
            Some(Outcome::Cancelled) => FlowEnd::Cancelled,
            None | Some(Outcome::Cut) => FlowEnd::Failed,
        }
    }

    /// Reads the engine's figures of a request that came `age` ago, as far as they are possible.
    pub(super) fn usage(&self, age: Duration) -> Usage {
        let took = age.saturating_sub(self.placing.waited);
        let streamed = if self.answer.stream { self.streamed_tokens() } else { 0 };
        let seen = Seen { took, streamed, bytes: self.answer.meter.bytes() };
        Possible::new(&self.asked.extent, 0, seen).bound(self.answer.meter.usage())
    }

    /// Takes from an engine's figures what can be learned from them.
    pub(super) fn lesson(&self, usage: Usage) -> Usage {
        // Anthropic's count of the input leaves out what was cached, but not every engine's does.
        let clear = self.asked.api != Api::Messages || usage.cached.unwrap_or(0) == 0;
        Usage {
            input: usage.input.filter(|_| clear),
            output: usage.output.or_else(|| self.counted()),
            cached: usage.cached,
        }
    }

    /// Counts the tokens of an answer without figures, as most streams are: there is an event for each token and a
    /// few after them.
    fn counted(&self) -> Option<u32> {
        let streamed =
            self.answer.stream.then(|| self.streamed_tokens().saturating_sub(EVENTS_AFTER));
        streamed.or_else(|| self.written_tokens())
    }

    /// Estimates the tokens of a whole answer whose form is not read, rather below than above.
    fn written_tokens(&self) -> Option<u32> {
        let is_written =
            |path| ApiPath::read(path).is_ok_and(|it: ApiPath| it.effect == Effect::Written);
        let is_one = self.answer.status.is_success() && is_written(self.asked.uri.path());
        let text_bytes = self.answer.meter.bytes().saturating_sub(ENVELOPE_BYTES);
        is_one.then(|| u32::try_from(text_bytes / BYTES_PER_TOKEN).unwrap_or(u32::MAX))
    }

    /// Completes what is kept with what came of it, and keeps a request for what came of it.
    fn keep_end(
        &mut self,
        (course, remark): (Course, Option<Remark>),
        usage: Usage,
        total: Duration,
    ) {
        let Some(pool) = &self.placing.pool else { return };
        let kept = self.kept.take().filter(|it| it.is_placed());
        let is_new = kept.is_none();
        let fresh = |remark| {
            let mut kept = self.new_kept(KeptFor::Remark(remark));
            pool.name.clone_into(&mut kept.pool);
            kept
        };
        let Some(mut kept) = kept.or_else(|| remark.map(fresh)) else { return };
        let placed = self.placing.placed.unwrap_or(self.arrived);
        let waited = placed.duration_since(self.arrived);
        let ttft = self.shown_first_token().map(|it| it.saturating_sub(waited));
        let (outcome, status) = (self.outcome_word(), self.answer.status.as_u16());
        kept.came = Some(RequestOutcome { outcome, status, ttft, total, usage });
        kept.refusal = self.placing.refused;
        kept.life = Some(self.life.keep(course, total, self.placing.previous.as_ref()));
        kept.waited = kept.waited.or_else(|| self.life.held.as_deref().cloned());
        if is_new {
            self.router.explanations.add(*kept);
        } else {
            self.router.explanations.put(&kept);
        }
    }

    /// Puts each part of its life beside what was expected of it.
    fn course(&self, usage: Usage, total: Duration) -> Course {
        let end = match (self.placing.refused, self.answer.outcome) {
            (Some(reason), _) => End::Refused { reason },
            (None, None) => End::Panicked,
            (None, Some(Outcome::Done)) => End::Answered { status: self.answer.status.as_u16() },
            (None, Some(Outcome::Cut)) => End::Cut,
            (None, Some(Outcome::Cancelled)) => End::Cancelled,
        };
        let waited = self.kept.as_ref().and_then(|it| it.waited.as_ref());
        let waited = waited.or(self.life.held.as_deref());
        let wait_expected = waited.map(|it| it.wait_expected).unwrap_or_default();
        let tokens = usage.output.unwrap_or_else(|| self.streamed_tokens());
        let ended = Ended { total, tokens, stream: self.answer.stream, wait_expected, end };
        let course = self.life.course(&ended);
        let (line_cause, over) = (waited.and_then(|it| it.cause), waited.and_then(|it| it.over));
        Course { line_cause, over, ..course }
    }

    /// When the first token came: only a stream shows that.
    pub(super) fn shown_first_token(&self) -> Option<Duration> {
        self.answer.first_token.filter(|_| self.answer.stream)
    }

    pub(super) fn outcome_word(&self) -> &'static str {
        match self.answer.outcome {
            None => "panicked",
            Some(Outcome::Done) if self.placing.member.is_none() => "router",
            Some(Outcome::Done) => "done",
            Some(Outcome::Cancelled) => "cancelled",
            Some(Outcome::Cut) => "cut",
        }
    }
}
