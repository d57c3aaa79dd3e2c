//! Is a workload one of several, or nearly all there is? A ring of what was served whole last. Where
//! clients send no key, all requests are one workload, and to hold it would stop all of them for what two
//! did.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::Moment;

/// Completions remembered.
const RING_MAX: usize = 256;
/// Fewer completions of others than this show no company.
const OTHERS_MIN: usize = 20;

/// The workloads of the last requests that were served whole, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Company(VecDeque<(Moment, u32)>);

impl Company {
    /// Notes that a request of the workload was served whole.
    pub(super) fn note(&mut self, now: Moment, workload: u32) {
        if self.0.len() == RING_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, workload));
    }

    /// Tells whether others than this workload were served lately, and at least as often as it.
    pub(super) fn is_one_of_several(&self, now: Moment, lately: Duration, workload: u32) -> bool {
        let recent = self.0.iter().filter(|(at, _)| now.since(*at) < lately);
        let (own, others): (Vec<u32>, Vec<u32>) =
            recent.map(|(_, whose)| *whose).partition(|whose| *whose == workload);
        OTHERS_MIN <= others.len() && own.len() <= others.len()
    }

    #[cfg(test)]
    pub(super) const fn bytes() -> usize {
        2 * RING_MAX * size_of::<(Moment, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_workload_has_company_while_others_are_half_of_what_is_served() {
        let mut it = Company::default();
        assert!(!it.is_one_of_several(at(0), TTL, 1), "nothing is known");
        (0..19).for_each(|_| it.note(at(0), 2));
        assert!(!it.is_one_of_several(at(0), TTL, 1), "too few");
        it.note(at(0), 3);
        assert!(it.is_one_of_several(at(0), TTL, 1));
        assert!(!it.is_one_of_several(at(0), TTL, 2));
        (0..20).for_each(|_| it.note(at(1), 1));
        assert!(it.is_one_of_several(at(1), TTL, 1));
        it.note(at(1), 1);
        assert!(!it.is_one_of_several(at(1), TTL, 1));
        assert!(!it.is_one_of_several(at(601), TTL, 7), "the others left long ago");
        (0..1000).for_each(|_| it.note(at(2), 1));
        assert_eq!(it.0.len(), RING_MAX);
    }
}
