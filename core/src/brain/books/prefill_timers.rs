//! An answer that comes in one piece does not show when its prompt has been read: nothing comes until
//! all of it does. Such a prompt is taken off the line when its first token was predicted. Otherwise a
//! replica that writes would seem to read all the time, and nothing would be sent there.

use std::collections::BTreeSet;

use crate::domain::{Moment, RequestId, span_of_ms};

use super::super::request::Account;

/// Prompts of answers in one piece, by when they are taken to have been read.
#[derive(Debug, Default)]
pub(super) struct PrefillTimers(BTreeSet<(Moment, RequestId)>);

impl PrefillTimers {
    pub(super) fn set(&mut self, request: RequestId, account: &Account) {
        self.0.insert((read_at(account), request));
    }

    pub(super) fn clear(&mut self, request: RequestId, account: &Account) {
        self.0.remove(&(read_at(account), request));
    }

    pub(super) fn next_wakeup(&self) -> Option<Moment> {
        self.0.first().map(|it| it.0)
    }

    /// Takes a request whose prompt should have been read by `now`.
    pub(super) fn take(&mut self, now: Moment) -> Option<RequestId> {
        let first = self.0.first().copied().filter(|it| it.0 <= now)?;
        self.0.remove(&first);
        Some(first.1)
    }
}

fn read_at(account: &Account) -> Moment {
    account.sent_at + span_of_ms(account.ttft_ms)
}
