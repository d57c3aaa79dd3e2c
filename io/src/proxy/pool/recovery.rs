//! When a brain panics, whatever it was changing is half changed, so it is not used any more. A new one is
//! built from the record, in the same hold of the lock: no event ever meets the old one again. All that
//! waited are refused, because their places in the line are lost; requests at replicas go on, and news of
//! them means nothing to the new brain. If panics repeat, the pool rests for a moment and refuses.

use std::time::Duration;

use cleave_core::brain::{Action, Brain, Event, Inherit, Refusal, Remedy};
use cleave_core::domain::Moment;

use crate::proxy::panics::attempt;

use super::brain_state::BrainState;

/// When a client should come back after a panic, at the soonest.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What was done about a panic.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) remedy: Remedy,
    /// What the new brain took over; nothing if there is none yet.
    pub(super) kept: Option<Inherit>,
    /// How many waited and were refused.
    pub(super) refused: usize,
    /// The brain that panicked, to be dropped when the lock is free.
    pub(super) old: Option<Brain>,
}

impl Recovery {
    /// What those are told that asked or waited.
    pub(super) fn refusal(&self) -> Refusal {
        restarted(self.remedy.pause.unwrap_or_default())
    }
}

const fn restarted(rest: Duration) -> Refusal {
    let is_longer = RETRY_AFTER.as_nanos() < rest.as_nanos();
    Refusal::Restarted { retry_after: if is_longer { rest } else { RETRY_AFTER } }
}

impl BrainState {
    /// Puts a new brain in the place of the one that has just panicked.
    pub(super) fn recover(&mut self, now: Moment) -> Recovery {
        let remedy = self.relapses.on_panic(now);
        let (kept, old) = self.rebuild(now, remedy.inherit);
        let mut recovery = Recovery { remedy, kept, refused: 0, old };
        for (request, waiting) in std::mem::take(&mut self.waiting) {
            self.cancel_signals.remove(&request);
            // A request that is no longer there need not know.
            _ = waiting.send(Err(recovery.refusal()));
            recovery.refused += 1;
        }
        self.wake_at = now;
        recovery
    }

    /// Ends a rest that is over. What was said meanwhile is in the record, so a new brain is built.
    pub(super) fn reopen(&mut self, now: Moment) {
        if self.relapses.reopen(now) && self.is_stale {
            self.rebuild(now, Inherit::Books);
        }
    }

    /// Refuses a request that asks for a place while the pool rests.
    pub(super) fn refuse_at_rest(&mut self, now: Moment, until: Moment, event: &Event) {
        if let Event::Arrived { request, .. } | Event::Failed { request, .. } = event {
            let refusal = restarted(until.since(now));
            self.actions.push(Action::Refuse { request: *request, refusal });
        }
    }

    /// Builds a new brain that keeps as much as asked for, or less where that panics too. If there is
    /// none to be had, the pool rests until the next try.
    fn rebuild(&mut self, now: Moment, most: Inherit) -> (Option<Inherit>, Option<Brain>) {
        #[cfg(test)]
        let trap = &mut self.trap;
        let (brain, actions) = (&mut self.brain, &mut self.actions);
        let tries = [Inherit::All, Inherit::Books, Inherit::Nothing];
        for inherit in tries.into_iter().skip_while(|it| *it != most) {
            actions.clear();
            let built = attempt(|| {
                #[cfg(test)]
                trap.at_rebuild();
                Brain::rebuild(now, self.settings.clone(), &self.record, (brain, inherit), actions)
            });
            if let Ok(new) = built {
                self.is_stale = false;
                return (Some(inherit), Some(std::mem::replace(brain, new)));
            }
        }
        actions.clear();
        self.is_stale = true;
        self.relapses.rest(now);
        (None, None)
    }
}
