//! Mean time to the end of jobs on one server that always does what ends first. No way to serve the
//! same arrivals on servers that are together as fast has a lower mean, so this is a theorem and
//! not a comparison. Time is whole nanoseconds: sums do not depend on the machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cleave_core::domain::Moment;

/// A server that takes the job with the least left first, at any time.
#[derive(Clone, Debug, Default)]
pub(super) struct Srpt {
    now_ns: u64,
    /// What is left and when it came.
    jobs: BinaryHeap<Reverse<(u64, u64)>>,
    ended: u64,
    sum_ns: u128,
}

impl Srpt {
    /// Takes a job of `work_ns`; moments never decrease.
    pub(super) fn on_arrival(&mut self, now: Moment, work_ns: u64) {
        self.advance(now.as_nanos());
        self.jobs.push(Reverse((work_ns, now.as_nanos())));
    }

    /// The mean time from arrival to end, were nothing more to come.
    pub(super) fn mean_ns(&self) -> u64 {
        let mut rest = self.clone();
        rest.advance(u64::MAX);
        let mean = rest.sum_ns.checked_div(u128::from(rest.ended)).unwrap_or(0);
        u64::try_from(mean).unwrap_or(u64::MAX)
    }

    fn advance(&mut self, until_ns: u64) {
        while let Some(Reverse((left, came))) = self.jobs.pop() {
            let end = self.now_ns.saturating_add(left);
            if until_ns < end {
                self.jobs.push(Reverse((end - until_ns, came)));
                break;
            }
            self.now_ns = end;
            self.ended += 1;
            self.sum_ns += u128::from(end - came);
        }
        if until_ns != u64::MAX {
            self.now_ns = until_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_job_overtakes_a_long_one() {
        let mut server = Srpt::default();
        server.on_arrival(Moment::from_nanos(100), 100);
        server.on_arrival(Moment::from_nanos(150), 10);
        // The short one takes 10, the long one 100 and the 10 it waited.
        assert_eq!(server.mean_ns(), 60);
        server.on_arrival(Moment::from_nanos(1_000), 30);
        assert_eq!(server.mean_ns(), (10 + 110 + 30) / 3);
    }
}
