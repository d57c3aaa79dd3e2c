//! What was expected of a request when it was sent. The books know it of every request, so a driver can say later
//! what took longer than it should have, also of a request whose reasons were not written down. And what is
//! known of the wait of a request that was held in the line.

use crate::domain::{ReplicaId, RequestId};

use super::super::request::Booking;
use super::super::{Brain, Move};
use super::{Explaining, HELD_MAX, Marked, Waited};

/// What was expected of one try when it was booked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// The replica that served its session before, if that was another; it may still have its state.
    pub moved_from: Option<ReplicaId>,
    /// Why the session left that.
    pub moved: Option<Move>,
    /// The time to the first token.
    pub ttft_ms: f64,
    /// The time between two tokens of the answer.
    pub gap_ms: f64,
    pub prompt_tokens: u32,
    /// Prompt tokens believed to be cached.
    pub cached_tokens: u32,
    pub output_tokens: Option<u32>,
}

impl Expected {
    fn of(booking: &Booking) -> Self {
        let Booking { account, outline, moved_from, moved, .. } = booking;
        Self {
            moved_from: *moved_from,
            moved: *moved,
            ttft_ms: account.ttft_ms,
            gap_ms: account.gap_ms,
            prompt_tokens: outline.prompt_tokens,
            cached_tokens: account.cached_tokens,
            output_tokens: outline.output_tokens,
        }
    }
}

impl Brain {
    /// Says what is expected of a request that was just sent, and takes what was written down of its wait if it
    /// was held in the line without a mark. To be asked once for each verdict.
    pub fn take_expected(&mut self, request: RequestId) -> (Option<Expected>, Option<Waited>) {
        (self.books.get(request).map(Expected::of), self.explaining.take_held(request))
    }
}

impl Explaining {
    /// Has the wait of a request written down that is not marked; says whether there is room for it.
    pub(in super::super) fn mark_held(&mut self, request: RequestId) -> bool {
        let has_room = self.marked.len() < HELD_MAX;
        if has_room {
            self.marked.insert(request, Marked { is_held: true, ..Marked::default() });
        }
        has_room
    }

    fn take_held(&mut self, request: RequestId) -> Option<Waited> {
        let is_held = self.marked.get(&request).is_some_and(|it| it.is_held);
        is_held.then(|| self.marked.swap_remove(&request)?.waited).flatten()
    }
}
