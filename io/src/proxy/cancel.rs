//! The cancel signal: tells the task that waits for a replica that nothing more will come from
//! there. One per request, because a request that has moved on meanwhile must not be cancelled
//! where it is now. A flag and a waker rather than a channel: most requests are never told
//! anything.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use cleave_core::domain::ReplicaId;
use futures_util::task::AtomicWaker;

#[derive(Debug, Default)]
pub(super) struct CancelSignal {
    /// The replica that was given up, counted from 1; 0 for none.
    from: AtomicU64,
    waker: AtomicWaker,
}

impl CancelSignal {
    /// Tells the request to give up the replica.
    pub(super) fn give_up(&self, replica: ReplicaId) {
        self.from.store(number(replica), Ordering::Release);
        self.waker.wake();
    }

    /// Becomes ready once the request, which is at `replica`, is to give that up.
    pub(super) fn poll(&self, cx: &Context<'_>, replica: ReplicaId) -> Poll<()> {
        self.waker.register(cx.waker());
        let given_up = self.from.load(Ordering::Acquire) == number(replica);
        if given_up { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(super) async fn wait(&self, replica: ReplicaId) {
        poll_fn(|cx| self.poll(cx, replica)).await;
    }
}

fn number(replica: ReplicaId) -> u64 {
    u64::from(replica.0) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn only_the_replica_that_was_given_up_is_left() {
        let cancel = CancelSignal::default();
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(cancel.poll(&cx, ReplicaId(0)), Poll::Pending);
        cancel.give_up(ReplicaId(0));
        assert_eq!(cancel.poll(&cx, ReplicaId(0)), Poll::Ready(()));
        assert_eq!(cancel.poll(&cx, ReplicaId(1)), Poll::Pending, "it has moved on");
    }
}
