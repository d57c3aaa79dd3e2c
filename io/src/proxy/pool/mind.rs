//! The brain and those who wait for its word, under one lock. What it decides is handed out here;
//! nothing here waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use cleave_core::brain::{Action, Brain, Refusal};
use cleave_core::domain::{Moment, ReplicaId, RequestId};
use tokio::sync::{mpsc, oneshot};

use crate::proxy::recall::Recall;

pub(super) type Verdict = Result<ReplicaId, Refusal>;

/// The brain, the list it writes its actions to, reused, and those who wait for one.
#[derive(Debug)]
pub(super) struct Mind {
    pub(super) brain: Brain,
    pub(super) actions: Vec<Action>,
    /// Requests without a verdict yet. As many as the brain holds, which bounds them.
    pub(super) waiting: BTreeMap<RequestId, oneshot::Sender<Verdict>>,
    /// Requests that are at a replica, should they have to give it up.
    pub(super) recalls: HashMap<RequestId, Arc<Recall>>,
    questions: mpsc::Sender<Question>,
    /// When the brain is woken next.
    pub(super) wake_at: Moment,
}

/// A replica that is to be asked for a token, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Question {
    pub(in crate::proxy) replica: ReplicaId,
    pub(in crate::proxy) limit: Duration,
}

/// What came of asking the brain.
#[derive(Debug)]
pub(super) enum Asked {
    Now(Verdict),
    Later(oneshot::Receiver<Verdict>),
}

impl Mind {
    pub(super) fn new(brain: Brain, questions: mpsc::Sender<Question>) -> Self {
        let (actions, waiting, recalls) = Default::default();
        Self { brain, actions, waiting, recalls, questions, wake_at: Moment::ZERO }
    }

    /// Takes the verdict on a request that has just asked, or a place among those who wait for one.
    pub(super) fn take_verdict(&mut self, request: RequestId) -> Asked {
        let own = |action: &Action| action.verdict().filter(|it| it.0 == request);
        let found = self.actions.iter().enumerate().find_map(|(at, it)| Some((at, own(it)?.1)));
        if let Some((at, verdict)) = found {
            self.actions.remove(at);
            if verdict.is_err() {
                self.recalls.remove(&request);
            }
            return Asked::Now(verdict);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(request, sender);
        Asked::Later(receiver)
    }

    /// Hands verdicts to those who wait for them, calls back those who wait in vain, passes questions
    /// on, and lists the replicas that are let go.
    pub(super) fn hand_out(&mut self, released: &mut Vec<ReplicaId>) {
        for action in self.actions.drain(..) {
            if let Some((request, verdict)) = action.verdict()
                && let Some(waiting) = self.waiting.remove(&request)
            {
                if verdict.is_err() {
                    self.recalls.remove(&request);
                }
                // Who is no longer there tells the brain so, which then takes it off its books.
                _ = waiting.send(verdict);
            }
            match action {
                Action::Send { .. } | Action::Refuse { .. } => {}
                Action::Release { replica } => released.push(replica),
                Action::GiveUp { request, replica } => {
                    if let Some(recall) = self.recalls.get(&request) {
                        recall.give_up(replica);
                    }
                }
                // With more questions open than there is room for, the brain asks again later.
                Action::Ask { replica, limit } => {
                    _ = self.questions.try_send(Question { replica, limit });
                }
            }
        }
    }

    /// Tells whether the brain wants to be woken before it was going to be.
    pub(super) fn is_due_sooner(&mut self) -> bool {
        let next = self.brain.next_wakeup().filter(|at| *at < self.wake_at);
        self.wake_at = next.unwrap_or(self.wake_at);
        next.is_some()
    }
}
