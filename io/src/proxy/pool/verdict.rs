//! Waiting for the brain's verdict on a request: at once where there is room, later where it is held, and never for
//! ever. Nothing is decided here.

use std::sync::Arc;
use std::time::Duration;

use cleave_core::brain::{Event, Outcome, Refusal};
use cleave_core::domain::{RequestId, Usage};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::warn;

use crate::proxy::cancel::CancelSignal;

use super::brain_state::{Asked, Verdict};
use super::recovery::RETRY_AFTER;
use super::views::Expectation;
use super::{Member, Pool};

impl Pool {
    /// Asks the brain where a request goes, now or next, and waits while it cannot say, but not for
    /// ever. A caller that stops waiting must tell the brain that the request has ended. With the verdict comes
    /// what the brain expects of the request.
    pub(in crate::proxy) async fn place(
        &self,
        request: RequestId,
        cancel: &Arc<CancelSignal>,
        event: Event,
    ) -> (Result<Arc<Member>, Refusal>, Expectation) {
        let limit = self.verdict_limit(&event);
        let asked = self.think(|brain_state, now| {
            let asked = brain_state.ask(now, request, cancel, event);
            let is_now = matches!(asked, Asked::Now(_));
            (asked, is_now.then(|| brain_state.brain.take_expected(request)))
        });
        let (placed, expected) = match asked {
            Ok((Asked::Now(verdict), expected)) => (self.settled(request, verdict), expected),
            Ok((Asked::Later(coming), _)) => {
                (self.await_verdict(request, limit, coming).await, None)
            }
            Err(refusal) => (Err(self.call_off(request, refusal)), None),
        };
        (placed, expected.unwrap_or_else(|| self.take_expected(request)))
    }

    async fn await_verdict(
        &self,
        request: RequestId,
        limit: Duration,
        coming: oneshot::Receiver<Verdict>,
    ) -> Result<Arc<Member>, Refusal> {
        match timeout(limit, coming).await {
            Ok(Ok(verdict)) => self.settled(request, verdict),
            Ok(Err(_)) => Err(self.call_off(request, restarted())),
            Err(_) => {
                warn!(pool = self.name, ?limit, "no verdict on a request in time");
                let refusal = Refusal::WaitedOut { retry_after: RETRY_AFTER };
                Err(self.call_off(request, refusal))
            }
        }
    }

    /// Finds the replica that a verdict names.
    fn settled(&self, request: RequestId, verdict: Verdict) -> Result<Arc<Member>, Refusal> {
        let replica = verdict?;
        let members = self.members.load();
        match members.binary_search_by_key(&replica, |it| it.id) {
            Ok(at) => Ok(members[at].clone()),
            Err(_) => Err(self.call_off(request, restarted())),
        }
    }

    /// Says how long a verdict may take: a request waits as long as its class may, and a moment more where
    /// replicas went down under it. The brain refuses by itself before that, unless it makes a mistake.
    fn verdict_limit(&self, event: &Event) -> Duration {
        let Event::Arrived { claim, .. } = event else { return self.verdict_margin };
        let class = claim.class.unwrap_or(self.classes.default_id());
        self.classes.get(class).wait_max.saturating_add(self.verdict_margin)
    }

    /// Sees to it that nothing is left of a request that gets no verdict.
    fn call_off(&self, request: RequestId, refusal: Refusal) -> Refusal {
        let (outcome, usage) = (Outcome::Cancelled, Usage::default());
        self.tell(Event::Ended { request, outcome, usage });
        refusal
    }
}

const fn restarted() -> Refusal {
    Refusal::Restarted { retry_after: RETRY_AFTER }
}
