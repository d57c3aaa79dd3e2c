//! What will happen, in order of moment and then of the order in which it became known. Two things at
//! one moment must happen in the same order in every run, and a heap alone does not promise that.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use cleave_core::domain::Moment;

/// Something that will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// A replica's engine ends a step.
    Step {
        replica: usize,
    },
    /// A router reads all metrics.
    Scrape {
        router: usize,
    },
    /// A reading reaches its router.
    Told {
        router: usize,
    },
    /// Routers see to the links between them.
    Exchange,
    /// What waited to be told to other routers has waited long enough.
    Send {
        router: usize,
    },
    /// What another router said reaches this one.
    Heard {
        router: usize,
    },
    /// A router checks the health of all replicas.
    Probe {
        router: usize,
    },
    /// A brain asked to be woken.
    Wake {
        router: usize,
    },
    /// The state of all replicas is noted for the measures.
    Sample,
    /// The rule that sizes the fleet looks at it.
    Look,
    /// A replica that was asked for has started.
    Started {
        asked_at: Moment,
        number: u64,
    },
    /// A fault of the script begins.
    Fault {
        number: usize,
    },
    /// A fault of the script ends.
    Mend {
        number: usize,
    },
    /// A replica that was struck by a tenant comes back.
    Revive {
        replica: usize,
    },
    /// A stream that a hung replica was sending is given up, unless it moves again.
    /// A question for a token is over, whatever came of it.
    Asked {
        router: usize,
        replica: usize,
        asked_at: Moment,
    },
    GiveUp {
        request: u64,
        tries: u32,
    },
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at: Moment,
    number: u64,
    what: Happening,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Default)]
pub(super) struct Heap {
    entries: BinaryHeap<Reverse<Entry>>,
    pushed: u64,
}

impl Heap {
    pub(super) fn push(&mut self, at: Moment, what: Happening) {
        self.entries.push(Reverse(Entry { at, number: self.pushed, what }));
        self.pushed += 1;
    }

    pub(super) fn next_at(&self) -> Option<Moment> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    pub(super) fn pop(&mut self) -> Option<(Moment, Happening)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ties_come_in_the_order_they_were_made() {
        let mut heap = Heap::default();
        let later = Moment::ZERO + Duration::from_secs(1);
        heap.push(later, Happening::Sample);
        for replica in 0..9 {
            heap.push(Moment::ZERO, Happening::Step { replica });
        }
        let order: Vec<_> = std::iter::from_fn(|| heap.pop()).map(|(_, what)| what).collect();
        let steps = (0..9).map(|replica| Happening::Step { replica });
        assert_eq!(order, steps.chain([Happening::Sample]).collect::<Vec<_>>());
    }
}
