//! What a request tells traces: which span its tries are below, and at its end its own spans, where it is
//! recorded.

use std::time::{Duration, SystemTime};

use cleave_core::brain::{Course, Outcome, Remark};
use cleave_core::domain::Usage;
use cleave_core::protocol::Api;
use http::HeaderMap;

use super::Visit;
use crate::proxy::explanations::KeptFor;
use crate::proxy::headers::{Framed, write_for_replica};
use crate::proxy::life::TryTimes;
use crate::proxy::settings::Passing;
use crate::telemetry::{TraceContext, TracedRequest, TracedTry};

impl Visit {
    /// Writes the head of a request for replicas; where traces are on, each try names its own span to them.
    pub(in crate::proxy) fn head_for_replica(
        &self,
        headers: &HeaderMap,
        framed: Framed,
        passing: Passing,
    ) -> Vec<u8> {
        let is_traced = self.router.traces.is_on();
        write_for_replica(headers, &self.request_id, framed, passing, is_traced)
    }

    /// Names the span of the try under way to the replica; nothing where traces are off.
    pub(in crate::proxy) fn traceparent(&self) -> Option<String> {
        let place = self.placing.tries.saturating_sub(1);
        self.router.traces.header(self.trace.as_ref()?, self.request.0, place)
    }

    /// Says which trace records it: it was drawn, or it failed, was slow or was asked about.
    pub(super) fn recorded(&self, remark: Option<Remark>) -> Option<TraceContext> {
        let context = self.trace.filter(|_| self.router.traces.is_on())?;
        let is_asked = self.kept.as_ref().is_some_and(|it| it.kept_for == KeptFor::Asked);
        let is_marked = matches!(remark, Some(Remark::Failed | Remark::Retried | Remark::Slow));
        let is_ours = self.answer.status.is_server_error();
        (context.is_sampled || is_asked || is_marked || is_ours).then_some(context)
    }

    /// Hands its spans over.
    pub(super) fn trace_end(
        &self,
        context: TraceContext,
        course: Option<&Course>,
        usage: Usage,
        total: Duration,
    ) {
        let class = self.placing.pool.as_ref().zip(self.placing.class);
        let choices = self.kept.as_ref().map_or(&[][..], |it| &it.choices);
        let tries: Vec<&TryTimes> = self.life.tries().collect();
        let unexplained = tries.len().saturating_sub(choices.len());
        let tries = tries.into_iter().enumerate().map(|(at, it)| {
            let choice = at.checked_sub(unexplained).and_then(|at| choices.get(at));
            TracedTry {
                replica: it.member.origin.as_str(),
                placed: it.placed,
                head: it.head,
                failed: it.ended.zip(it.failure),
                ttft_expected_ms: it.expected.ttft_ms,
                gap_expected_ms: it.expected.gap_ms,
                cached_tokens: it.expected.cached_tokens,
                price_ms: choice.and_then(|it| it.terms).map(|it| it.price_ms),
            }
        });
        let is_cut = self.answer.outcome == Some(Outcome::Cut);
        let code = self.answer.code.or_else(|| is_cut.then_some("replica_lost"));
        let failed = self.answer.status.is_server_error().then(|| self.answer.status.as_str());
        self.router.traces.record(&TracedRequest {
            context,
            seed: self.router.traces.seed_of(self.request.0),
            arrived_at: SystemTime::now() - total,
            total,
            request_id: self.request_id.to_str().unwrap_or("-"),
            method: self.asked.method.as_str(),
            path: self.asked.uri.path(),
            status: self.answer.status.as_u16(),
            error: code.or(failed),
            outcome: self.outcome_word(),
            operation: operation(self.asked.api, self.asked.uri.path()),
            model: self.asked.model.as_deref(),
            pool: self.placing.pool.as_ref().map(|it| it.name.as_str()),
            class: class.as_ref().map(|(pool, it)| pool.classes().get(*it).name.as_str()),
            tenant: self.asked.whose.as_ref().and_then(|(all, at)| all.name_at(*at)),
            session: self.placing.key,
            stream: self.answer.stream,
            usage,
            verdict: course.filter(|it| it.remark().is_some()).map(Course::verdict),
            asked: self
                .life
                .asked()
                .map(|(asked, placed)| (asked, placed, course.is_some_and(Course::is_held))),
            tries: tries.collect(),
            first_token: self.shown_first_token(),
            answered: self.life.answered_by(total),
        });
    }
}

/// Names what is asked for in the words of the conventions; by the end of the path where they have none.
pub(super) fn operation(api: Api, path: &str) -> &str {
    match api {
        Api::Chat | Api::Responses | Api::Messages => "chat",
        Api::Completions => "text_completion",
        Api::Other => path.rsplit('/').find(|it| !it.is_empty()).unwrap_or("unknown"),
    }
}
