//! The brain and the requests that wait for its verdict, under one lock. What it decides is handed
//! out here; nothing here waits. The brain is called from here and from nowhere else; what happens
//! when it panics is in `recovery`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cleave_core::brain::{self, Action, Brain, Event, Record, Refusal, Relapses};
use cleave_core::domain::{Moment, ReplicaId, RequestId};
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot};

use crate::proxy::cancel::CancelSignal;

#[cfg(test)]
use super::trap::Trap;

pub(super) type Verdict = Result<ReplicaId, Refusal>;

/// The brain, the list it writes its actions to, reused, and the requests that wait for one.
#[derive(Debug)]
pub(super) struct BrainState {
    pub(super) brain: Brain,
    /// What each new brain of the pool is made with.
    pub(super) settings: brain::Settings,
    /// What each new brain must know.
    pub(super) record: Record,
    pub(super) relapses: Relapses,
    /// Whether the brain has not seen all that is in the record.
    pub(super) is_stale: bool,
    pub(super) actions: Vec<Action>,
    /// Requests without a verdict yet. As many as the brain holds, which bounds them.
    pub(super) waiting: BTreeMap<RequestId, oneshot::Sender<Verdict>>,
    /// Requests that are at a replica, should they have to give it up.
    pub(super) cancel_signals: FxHashMap<RequestId, Arc<CancelSignal>>,
    questions: mpsc::Sender<Question>,
    /// When the brain is woken next.
    pub(super) wake_at: Moment,
    #[cfg(test)]
    pub(super) trap: Trap,
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

impl BrainState {
    pub(super) fn new(settings: brain::Settings, questions: mpsc::Sender<Question>) -> Self {
        let (actions, waiting, cancel_signals) = Default::default();
        let (record, relapses) = Default::default();
        Self {
            brain: Brain::new(settings.clone()),
            settings,
            record,
            relapses,
            is_stale: false,
            actions,
            waiting,
            cancel_signals,
            questions,
            wake_at: Moment::ZERO,
            #[cfg(test)]
            trap: Trap::default(),
        }
    }

    /// Tells the brain what happened. While the pool rests, only what stays true is noted.
    pub(super) fn hear(&mut self, now: Moment, event: Event) {
        self.record.note(&event);
        if let Some(until) = self.relapses.closed_until() {
            self.is_stale = true;
            return self.refuse_at_rest(now, until, &event);
        }
        #[cfg(test)]
        let kind = self.trap.before(&event);
        self.brain.on_event(now, event, &mut self.actions);
        #[cfg(test)]
        self.trap.after(kind);
    }

    /// Lets the brain do what only time brings; says when it wants to be woken next.
    pub(super) fn pass_time(&mut self, now: Moment) -> Moment {
        if let Some(until) = self.relapses.closed_until() {
            self.wake_at = until;
            return until;
        }
        #[cfg(test)]
        self.trap.at_time();
        self.brain.on_time(now, &mut self.actions);
        self.wake_at = self.brain.next_wakeup().unwrap_or(Moment::MAX);
        self.wake_at
    }

    /// Asks the brain where a request goes: takes the verdict, or a place among the waiting
    /// requests.
    pub(super) fn ask(
        &mut self,
        now: Moment,
        request: RequestId,
        cancel: &Arc<CancelSignal>,
        event: Event,
    ) -> Asked {
        self.hear(now, event);
        let asked = self.take_verdict(request);
        if let Asked::Now(Ok(_)) | Asked::Later(_) = asked {
            self.cancel_signals.insert(request, Arc::clone(cancel));
        }
        asked
    }

    /// Takes the verdict on a request that has just asked, or a place among the waiting requests.
    pub(super) fn take_verdict(&mut self, request: RequestId) -> Asked {
        let own = |action: &Action| action.verdict().filter(|it| it.0 == request);
        let found = self.actions.iter().enumerate().find_map(|(at, it)| Some((at, own(it)?.1)));
        if let Some((at, verdict)) = found {
            self.actions.remove(at);
            if verdict.is_err() {
                self.cancel_signals.remove(&request);
            }
            return Asked::Now(verdict);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(request, sender);
        Asked::Later(receiver)
    }

    /// Forgets a request that has ended.
    pub(super) fn forget(&mut self, request: RequestId) {
        self.waiting.remove(&request);
        self.cancel_signals.remove(&request);
    }

    /// Hands verdicts to the requests that wait for them, cancels those whose replica is lost, passes
    /// questions on, and lists the replicas that are released.
    pub(super) fn hand_out(&mut self, released: &mut Vec<ReplicaId>) {
        for action in self.actions.drain(..) {
            if let Some((request, verdict)) = action.verdict()
                && let Some(waiting) = self.waiting.remove(&request)
            {
                if verdict.is_err() {
                    self.cancel_signals.remove(&request);
                }
                // A request that is no longer there tells the brain so, which then takes it off its
                // books.
                _ = waiting.send(verdict);
            }
            match action {
                Action::Send { .. } | Action::Refuse { .. } => {}
                Action::Release { replica } => {
                    self.record.on_released(replica);
                    released.push(replica);
                }
                Action::GiveUp { request, replica } => {
                    if let Some(cancel) = self.cancel_signals.get(&request) {
                        cancel.give_up(replica);
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
        let wanted = self.relapses.closed_until().or_else(|| self.brain.next_wakeup());
        let next = wanted.filter(|at| *at < self.wake_at);
        self.wake_at = next.unwrap_or(self.wake_at);
        next.is_some()
    }
}
