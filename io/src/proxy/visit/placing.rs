//! Asking the brain where a request goes, at first and after each try that failed. Until the brain refuses, the
//! request is on its books.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cleave_core::brain::{Event, Failure, Outcome, Refusal, Remark};
use cleave_core::domain::{Extent, Outline, SliceKey, Usage};
use cleave_core::queue::{Claim, ClassId, Tenant};

use crate::proxy::cancel::CancelSignal;
use crate::proxy::explanations::KeptFor;
use crate::proxy::pool::{Member, Pool};
use crate::replicas::Origin;

use super::Visit;
use super::recording::RecordedOutline;

/// Where a request was placed, and as whose.
#[derive(Default)]
pub(in crate::proxy) struct Placing {
    pub(super) pool: Option<Arc<Pool>>,
    pub(super) key: Option<SliceKey>,
    pub(super) tenant: Tenant,
    pub(super) class: Option<ClassId>,
    pub(super) member: Option<Arc<Member>>,
    /// The replica that served the session before it moved to where this goes.
    pub(in crate::proxy) previous: Option<Origin>,
    pub(super) cancel: Arc<CancelSignal>,
    /// Whether the brain still has it on its books.
    pub(super) booked: bool,
    pub(super) tries: u32,
    /// When it was placed last; nothing before the first verdict.
    pub(super) placed: Option<Instant>,
    /// How long it waited to be placed, all tries together.
    pub(super) waited: Duration,
    /// Why it was not placed.
    pub(super) refused: Option<&'static str>,
}

/// Names a failure in metrics.
const fn word_of(failure: Failure) -> &'static str {
    match failure {
        Failure::Unreachable => "unreachable",
        Failure::Late => "late",
        Failure::Lost => "lost",
        Failure::Died => "died",
        Failure::Hung => "hung",
        Failure::Status => "status",
        Failure::Busy => "busy",
        Failure::Ours => "ours",
    }
}

impl Visit {
    /// Has the request placed for the first time.
    pub(in crate::proxy) async fn place(
        &mut self,
        pool: Arc<Pool>,
        key: SliceKey,
        (outline, extent): (Outline, Extent),
        claim: Claim,
    ) -> Result<Arc<Member>, Refusal> {
        let class = claim.class.unwrap_or(pool.classes().default_id());
        let placing = &mut self.placing;
        (placing.pool, placing.key) = (Some(Arc::clone(&pool)), Some(key));
        (placing.tenant, placing.class) = (claim.tenant, Some(class));
        self.asked.extent = extent;
        self.asked.recorded =
            self.router.recorder.is_on().then(|| Box::new(RecordedOutline::of(&outline, &claim)));
        let arrived = Event::Arrived { request: self.request, key, outline, extent, claim };
        let placed = self.ask(arrived).await?;
        let expected = self.life.current().map(|it| it.expected);
        self.placing.previous =
            expected.and_then(|it| it.moved_from).and_then(|it| pool.origin_of(it));
        Ok(placed)
    }

    /// Reports that the try failed, and has the request placed elsewhere.
    pub(in crate::proxy) async fn place_again(
        &mut self,
        failure: Failure,
    ) -> Result<Arc<Member>, Refusal> {
        self.note_failure(failure);
        if self.kept.is_none() {
            self.keep(KeptFor::Remark(Remark::Retried));
        }
        let member = self.ask(Event::Failed { request: self.request, failure }).await?;
        if let Some(pool) = &self.placing.pool {
            pool.metrics.retries.inc();
        }
        Ok(member)
    }

    /// Reports that the try failed where no other can follow, because another proxy carries the request.
    pub(in crate::proxy) fn fail(&mut self, failure: Failure) {
        self.note_failure(failure);
        self.tell(Event::Failed { request: self.request, failure });
        // Wherever else the brain would have it tried, or have it wait.
        self.end_booking(Outcome::Cancelled, Usage::default());
    }

    fn note_failure(&mut self, failure: Failure) {
        if let Some(member) = &self.placing.member {
            member.metrics.on_error(word_of(failure));
        }
        self.life.on_failed(self.arrived.elapsed(), word_of(failure));
    }

    /// Asks the brain, and waits for its verdict. Until it refuses, the request is on its books:
    /// dropping this while it waits takes it off.
    async fn ask(&mut self, event: Event) -> Result<Arc<Member>, Refusal> {
        let pool = Arc::clone(self.placing.pool.as_ref().expect("a visit is placed in a pool"));
        self.placing.booked = true;
        if self.kept.is_some() {
            pool.explain(self.request);
        }
        let asked = Instant::now();
        let (placed, (expected, held)) =
            pool.place(self.request, &self.placing.cancel, event).await;
        let placed_at = Instant::now();
        self.placing.placed = Some(placed_at);
        self.placing.waited += placed_at - asked;
        pool.metrics.waited.observe(self.placing.waited.as_secs_f64());
        let moments = (asked - self.arrived, placed_at - self.arrived);
        self.life.on_placed(moments, expected, placed.as_ref().ok());
        self.life.held = self.life.held.take().or(held.map(Box::new));
        if let Some(kept) = &mut self.kept {
            let (waited, choice) = pool.take_explanation(self.request);
            kept.on_placed(&pool.name, waited, choice, placed.as_ref().err());
            self.router.explanations.put(kept);
        }
        match &placed {
            Ok(member) => {
                self.placing.tries += 1;
                self.placing.member = Some(member.clone());
            }
            Err(refusal) => {
                self.placing.booked = false;
                self.placing.refused = Some(refusal.as_str());
                pool.metrics.on_refused(refusal.as_str());
            }
        }
        placed
    }
}
