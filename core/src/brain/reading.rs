//! An answer that comes in one piece does not show when its prompt has been read: nothing comes until
//! all of it does. Such a prompt is taken off the line when its first token was predicted. Otherwise a
//! replica that writes would seem to read all the time, and nobody would be sent there.

use std::collections::BTreeSet;

use crate::domain::{Moment, RequestId, span_of_ms};

use super::Brain;
use super::request::{Account, Booking};

/// Prompts of answers in one piece, by when they are taken to have been read.
#[derive(Debug, Default)]
pub(super) struct Readings(BTreeSet<(Moment, RequestId)>);

impl Readings {
    pub(super) fn on_sent(&mut self, request: RequestId, booking: &Booking) {
        if !booking.extent.streams {
            self.0.insert((read_at(&booking.account), request));
        }
    }

    pub(super) fn on_ended(&mut self, request: RequestId, booking: &Booking) {
        self.0.remove(&(read_at(&booking.account), request));
    }

    pub(super) fn next_wakeup(&self) -> Option<Moment> {
        self.0.first().map(|it| it.0)
    }

    /// Takes one of which it is time.
    fn take(&mut self, now: Moment) -> Option<RequestId> {
        let first = self.0.first().copied().filter(|it| it.0 <= now)?;
        self.0.remove(&first);
        Some(first.1)
    }
}

impl Brain {
    /// Takes the prompts off the line that should have been read by now.
    pub(super) fn note_read(&mut self, now: Moment) {
        while let Some(request) = self.readings.take(now) {
            self.read_account(now, request);
        }
    }
}

fn read_at(account: &Account) -> Moment {
    account.sent_at + span_of_ms(account.ttft_ms)
}
