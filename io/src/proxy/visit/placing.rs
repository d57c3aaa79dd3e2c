//! Asking the brain where a request goes, at first and after each try that failed. Until the brain refuses, the
//! request is on its books.

use std::sync::Arc;
use std::time::Instant;

use cleave_core::brain::{Event, Failure, Outcome, Refusal, Remark};
use cleave_core::domain::{Extent, Outline, SliceKey, Usage};
use cleave_core::queue::Claim;

use crate::proxy::explanations::KeptFor;
use crate::proxy::pool::{Member, Pool};

use super::Visit;
use super::recording::RecordedOutline;

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
        self.pool = Some(Arc::clone(&pool));
        self.key = Some(key);
        self.tenant = claim.tenant;
        self.class = Some(claim.class.unwrap_or(pool.classes().default_id()));
        self.extent = extent;
        self.recorded =
            self.router.recorder.is_on().then(|| Box::new(RecordedOutline::of(&outline, &claim)));
        let arrived = Event::Arrived { request: self.request, key, outline, extent, claim };
        let placed = self.ask(arrived).await?;
        let expected = self.life.current().map(|it| it.expected);
        self.previous = expected.and_then(|it| it.moved_from).and_then(|it| pool.origin_of(it));
        Ok(placed)
    }

    /// Reports that the try failed, and has the request placed elsewhere.
    pub(in crate::proxy) async fn place_again(
        &mut self,
        failure: Failure,
    ) -> Result<Arc<Member>, Refusal> {
        if let Some(member) = &self.member {
            member.metrics.on_error(word_of(failure));
        }
        self.life.on_failed(self.arrived.elapsed(), word_of(failure));
        if self.kept.is_none() {
            self.keep(KeptFor::Remark(Remark::Retried));
        }
        let member = self.ask(Event::Failed { request: self.request, failure }).await?;
        if let Some(pool) = &self.pool {
            pool.metrics.retries.inc();
        }
        Ok(member)
    }

    /// Reports that the try failed where no other can follow, because another proxy carries the request.
    pub(in crate::proxy) fn fail(&mut self, failure: Failure) {
        if let Some(member) = &self.member {
            member.metrics.on_error(word_of(failure));
        }
        self.life.on_failed(self.arrived.elapsed(), word_of(failure));
        if let (true, Some(pool)) = (std::mem::take(&mut self.booked), &self.pool) {
            let request = self.request;
            pool.tell(Event::Failed { request, failure });
            // Wherever else the brain would have it tried, or have it wait.
            let (outcome, usage) = (Outcome::Cancelled, Usage::default());
            pool.tell(Event::Ended { request, outcome, usage });
        }
    }

    /// Asks the brain, and waits for its verdict. Until it refuses, the request is on its books:
    /// dropping this while it waits takes it off.
    async fn ask(&mut self, event: Event) -> Result<Arc<Member>, Refusal> {
        let pool = Arc::clone(self.pool.as_ref().expect("a visit is placed in a pool"));
        self.booked = true;
        if self.kept.is_some() {
            pool.explain(self.request);
        }
        let asked = Instant::now();
        let (placed, (expected, held)) = pool.place(self.request, &self.cancel, event).await;
        self.placed = Instant::now();
        self.waited += self.placed - asked;
        pool.metrics.waited.observe(self.waited.as_secs_f64());
        let moments = (asked - self.arrived, self.placed - self.arrived);
        self.life.on_placed(moments, expected, placed.as_ref().ok());
        self.life.held = self.life.held.take().or(held.map(Box::new));
        if let Some(kept) = &mut self.kept {
            let (waited, choice) = pool.take_explanation(self.request);
            kept.on_placed(&pool.name, waited, choice, placed.as_ref().err());
            self.router.explanations.put(kept);
        }
        match &placed {
            Ok(member) => {
                self.tries += 1;
                self.member = Some(member.clone());
            }
            Err(refusal) => {
                self.booked = false;
                self.refused = Some(refusal.as_str());
                pool.metrics.on_refused(refusal.as_str());
            }
        }
        placed
    }
}
