//! Questions between routers: what only the router that did something can say. The admin port asks here and answers here;
//! those that carry frames to other routers take the questions along. Nothing waits longer than [`ASK_MAX`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cleave_core::domain::RouterId;
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// How long an answer is waited for.
const ASK_MAX: Duration = Duration::from_secs(1);
/// Questions that wait to be carried to one router.
const WAITING_MAX: usize = 8;

/// A question to one router, and where its answer goes; nothing where it has none.
#[derive(Debug)]
pub struct PeerQuestion {
    pub question: Vec<u8>,
    pub answer: oneshot::Sender<Option<Vec<u8>>>,
}

type Answering = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// Where questions of this router wait, and what answers those of others.
#[derive(Default)]
pub struct PeerDesk {
    asked: Mutex<BTreeMap<RouterId, mpsc::Sender<PeerQuestion>>>,
    answering: OnceLock<Answering>,
}

impl PeerDesk {
    /// Takes on what answers other routers; the first one stays.
    pub fn set_answering(
        &self,
        answering: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) {
        _ = self.answering.set(Box::new(answering));
    }

    /// Answers another router, if there is anything to say.
    pub fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        self.answering.get().and_then(|it| it(question))
    }

    /// Carries questions to a router from now on.
    pub fn open(&self, router: RouterId) -> mpsc::Receiver<PeerQuestion> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let mut asked = self.lock();
        asked.retain(|_, it| !it.is_closed());
        asked.insert(router, sender);
        receiver
    }

    /// Asks every router that is talked to, and lists what each says; nothing for one that says nothing in time.
    pub async fn ask(&self, question: &[u8]) -> Vec<(RouterId, Option<Vec<u8>>)> {
        let asked: Vec<_> = {
            let mut asked = self.lock();
            asked.retain(|_, it| !it.is_closed());
            asked.iter().map(|(router, it)| (*router, it.clone())).collect()
        };
        let each = asked.into_iter().map(async |(router, desk)| {
            let (answer, answered) = oneshot::channel();
            let question = PeerQuestion { question: question.to_vec(), answer };
            let told = desk.try_send(question).is_ok();
            let answered = if told { timeout(ASK_MAX, answered).await } else { Ok(Ok(None)) };
            (router, answered.ok().and_then(Result::ok).flatten())
        });
        join_all(each).await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RouterId, mpsc::Sender<PeerQuestion>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PeerDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerDesk").field("asked", &self.asked).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_router_that_does_not_answer_costs_no_more_than_the_time_for_it() {
        let desk = PeerDesk::default();
        let (mut quick, _silent) = (desk.open(RouterId(1)), desk.open(RouterId(2)));
        drop(desk.open(RouterId(3)));
        let answering = async {
            let it = quick.recv().await.unwrap();
            assert_eq!(it.question, b"why");
            it.answer.send(Some(b"so".to_vec())).unwrap();
        };
        let (answers, ()) = tokio::join!(desk.ask(b"why"), answering);
        assert_eq!(answers, [(RouterId(1), Some(b"so".to_vec())), (RouterId(2), None)]);
        desk.set_answering(|question| Some(question.to_vec()));
        assert_eq!(desk.answer(b"who").as_deref(), Some(&b"who"[..]));
    }
}
