//! When a connection is woken if nothing else happens on it. A thread that wakes is what costs most here, and requests are
//! served by other threads, which would have to wake this one. So soon after something was sent it wakes by itself once
//! more, and what may wait until then wakes it not. A timer that is far off is left, although nothing is to be done so soon
//! any more.

use std::pin::Pin;
use std::time::Duration;

use cleave_core::cluster::{Link, News};
use cleave_core::domain::Moment;
use tokio::time::{Sleep, sleep};

/// Upkeep of a link is no more frequent than this, also where its peer takes nothing.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// A timer that is this far off is left.
const FAR: Duration = Duration::from_millis(50);

/// A timer that knows when it fires.
#[derive(Debug)]
pub(super) struct Waking {
    timer: Pin<Box<Sleep>>,
    until: Moment,
    has_fired: bool,
    /// Until when what may wait need not wake it, because it wakes then; [`Moment::MAX`] where it does not.
    look_at: Moment,
}

impl Waking {
    pub(super) fn new() -> Self {
        let (timer, until) = (Box::pin(sleep(Duration::ZERO)), Moment::ZERO);
        Self { timer, until, has_fired: true, look_at: Moment::MAX }
    }

    /// Notes that news are sent.
    pub(super) fn on_sent(&mut self, now: Moment) {
        self.look_at = now + News::PATIENT;
    }

    /// Tells whether it is time to send what has come since something was sent.
    pub(super) fn is_look_due(&mut self, now: Moment) -> bool {
        let is_due = self.look_at <= now;
        if is_due {
            self.look_at = Moment::MAX;
        }
        is_due
    }

    /// When it fires.
    pub(super) const fn until(&self) -> Moment {
        self.until
    }

    /// Sets it to when a link wants to be seen to. What waits to be sent wakes none that is still writing.
    pub(super) fn set(&mut self, now: Moment, link: &Link, is_idle: bool) {
        let due = if is_idle { link.due().min(self.look_at) } else { Moment::MAX };
        let until = due.min(link.next_wakeup().max(now + PAUSE_MIN));
        if self.has_fired || self.must_change(now, until) {
            self.timer.set(sleep(until.since(now)));
            (self.until, self.has_fired) = (until, false);
        }
    }

    fn must_change(&self, now: Moment, until: Moment) -> bool {
        until < self.until || (self.until < until && self.until < now + FAR)
    }

    pub(super) async fn fired(&mut self) {
        self.timer.as_mut().await;
        self.has_fired = true;
    }
}
