//! How often each prompt and workload was served whole: the evidence for the defence. A prompt that is
//! answered all day long, a health check, a greeting, a benchmark's only question, is in flight at every
//! crash there is, and has nothing to do with any. A fixed table in which prompts stay that complete often:
//! another prompt takes one completion off the one that has its slot, and has the slot when nothing is left.
//! Counting all of them in a map would grow with every prompt ever seen.

use std::time::Duration;

use crate::brain::request::Fingerprint;
use crate::domain::Moment;

/// Prompts and workloads remembered, each 24 bytes.
const SLOTS: usize = 4096;
/// More completions than this say nothing more.
const COUNT_MAX: u32 = 10_000;

#[derive(Clone, Copy, Debug)]
struct Slot {
    whose: Fingerprint,
    last: Moment,
    count: u32,
}

/// Completions of the last while, by prompt and by workload.
#[derive(Debug)]
pub(super) struct CompletionCounts {
    slots: Vec<Slot>,
    ttl: Duration,
}

impl CompletionCounts {
    pub(super) fn new(ttl: Duration) -> Self {
        let empty = Slot { whose: Fingerprint(0), last: Moment::ZERO, count: 0 };
        Self { slots: vec![empty; SLOTS], ttl }
    }

    /// Notes that something was served whole.
    pub(super) fn note(&mut self, now: Moment, whose: Fingerprint) {
        let slot = &mut self.slots[place(whose)];
        let is_old = self.ttl <= now.since(slot.last);
        if slot.whose == whose && !is_old {
            slot.count = (slot.count + 1).min(COUNT_MAX);
            slot.last = now;
        } else if is_old || slot.count <= 1 {
            *slot = Slot { whose, last: now, count: 1 };
        } else {
            slot.count -= 1;
        }
    }

    /// Counts what was served whole of late.
    pub(super) fn count(&self, now: Moment, whose: Fingerprint) -> u32 {
        let slot = self.slots[place(whose)];
        if slot.whose == whose && now.since(slot.last) < self.ttl { slot.count } else { 0 }
    }

    #[cfg(test)]
    pub(super) const fn bytes() -> usize {
        SLOTS * size_of::<Slot>()
    }
}

fn place(whose: Fingerprint) -> usize {
    // Workloads are small numbers, so bits are mixed before they are cut.
    let mixed = whose.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    usize::try_from(mixed).unwrap_or(0) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn completions_are_counted_and_forgotten_when_they_are_old() {
        let mut it = CompletionCounts::new(TTL);
        (0..7).for_each(|_| it.note(at(10), Fingerprint(3)));
        assert_eq!(it.count(at(20), Fingerprint(3)), 7);
        assert_eq!(it.count(at(20), Fingerprint(4)), 0);
        assert_eq!(it.count(at(610), Fingerprint(3)), 0);
        it.note(at(700), Fingerprint(3));
        assert_eq!(it.count(at(700), Fingerprint(3)), 1, "it begins anew");
    }

    #[test]
    fn who_completes_often_stays_however_many_pass_by() {
        let mut it = CompletionCounts::new(TTL);
        for round in 0..200_u64 {
            (0..50).for_each(|_| it.note(at(round), Fingerprint(1)));
            (0..4096)
                .for_each(|other| it.note(at(round), Fingerprint(1_000 + round * 4096 + other)));
        }
        assert!(1_000 < it.count(at(200), Fingerprint(1)), "{}", it.count(at(200), Fingerprint(1)));
        assert!(CompletionCounts::bytes() <= 128 << 10);
    }
}
