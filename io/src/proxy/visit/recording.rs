//! What a request tells recordings at its end: figures, and no text.

use std::sync::Arc;
use std::time::Duration;

use cleave_core::brain::Outcome;
use cleave_core::domain::{Moment, Outline, Usage};
use cleave_core::queue::Claim;
use cleave_core::recording::RequestLine;

use super::Visit;
use crate::telemetry::{RecordedRequest, micros};

/// What is kept of a request from its arrival to its end, where it is recorded.
#[derive(Debug)]
pub(super) struct RecordedOutline {
    blocks: Arc<[u64]>,
    first_token_by: Option<Moment>,
}

impl RecordedOutline {
    pub(super) fn of(outline: &Outline, claim: &Claim) -> Self {
        Self { blocks: Arc::clone(&outline.blocks), first_token_by: claim.first_token_by }
    }
}

impl Visit {
    /// Hands its figures over, where it was placed while requests are recorded.
    pub(super) fn record(&mut self, usage: Usage, total: Duration) {
        let (Some(outline), Some(pool)) = (self.asked.recorded.take(), &self.placing.pool) else {
            return;
        };
        let arrived_at = self
            .router
            .now()
            .as_nanos()
            .saturating_sub(u64::try_from(total.as_nanos()).unwrap_or(u64::MAX));
        let due = outline.first_token_by.map(|it| it.since(Moment::from_nanos(arrived_at)));
        let told = self.lesson(usage);
        let how = match (self.placing.refused, self.answer.outcome) {
            (Some(reason), _) => reason,
            (None, None) => "panicked",
            (None, Some(Outcome::Done)) => "done",
            (None, Some(Outcome::Cut)) => "cut",
            (None, Some(Outcome::Cancelled)) => "cancelled",
        };
        let class = self.placing.class.unwrap_or(pool.classes().default_id());
        let line = RequestLine {
            class: class.0,
            due_us: due.map(micros),
            bytes: self.asked.extent.prompt_bytes(),
            input: told.input,
            output: told.output,
            cached: usage.cached,
            block: self.asked.extent.block_bytes,
            sent: self.life.current().map(|it| micros(it.placed)),
            first: self.shown_first_token().map(micros),
            end: micros(total),
            replica: self.placing.member.as_ref().map(|it| it.id.0),
            status: self.answer.status.as_u16(),
            how: how.into(),
            stream: self.answer.stream,
            ..RequestLine::default()
        };
        let session = self.placing.key.map_or(0, |it| it.0);
        self.router.recorder.note(RecordedRequest {
            arrived: self.arrived,
            pool: pool.key(),
            tenant: self.placing.tenant.0,
            session,
            blocks: outline.blocks,
            line,
        });
    }
}
