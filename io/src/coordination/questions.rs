//! Questions on one connection: those that were sent and wait for their answer.

use std::collections::BTreeMap;

use cleave_core::cluster::Link;
use cleave_core::domain::RouterId;
use tokio::sync::{mpsc, oneshot};

use crate::proxy::{PeerDesk, PeerQuestion};

/// Questions that wait for their answer; those that nothing waits for any more are dropped first.
const OPEN_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Nothing before the peer is known.
    incoming: Option<mpsc::Receiver<PeerQuestion>>,
    open: BTreeMap<u64, oneshot::Sender<Option<Vec<u8>>>>,
}

impl Questions {
    /// Takes the questions to this router along from now on.
    pub(super) fn begin(&mut self, desk: &PeerDesk, router: RouterId) {
        self.incoming = Some(desk.open(router));
    }

    /// Waits for the next question.
    pub(super) async fn next(&mut self) -> Option<PeerQuestion> {
        match &mut self.incoming {
            Some(it) => it.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Sends a question; one that cannot be sent is answered with nothing.
    pub(super) fn ask(&mut self, link: &mut Link, asked: PeerQuestion) {
        let PeerQuestion { question, answer } = asked;
        self.open.retain(|_, it| !it.is_closed());
        let number = (self.open.len() < OPEN_MAX).then(|| link.question(question)).flatten();
        match number {
            Some(number) => _ = self.open.insert(number, answer),
            None => _ = answer.send(None),
        }
    }

    pub(super) fn on_answer(&mut self, number: u64, answer: Option<Vec<u8>>) {
        if let Some(it) = self.open.remove(&number) {
            // Whatever asked may have given up.
            _ = it.send(answer);
        }
    }
}
