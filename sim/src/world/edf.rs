//! How many deadlines could be kept at best? One server as fast as the whole fleet, free to drop any job
//! at any time and to return to it, that knows all arrivals beforehand and reads prompts only. Whatever
//! any fleet of these replicas gets done in time, it could too. Earliest deadline first finds a miss
//! exactly where there must be one: in some span more work arrives and falls due than the server can
//! do. As many jobs as must be left out of that span, the largest first, are missed in any order, and
//! spans that do not overlap have no job in common; so the sum is a bound and not an estimate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cleave_core::domain::Moment;

use crate::measure::{ratio, real};

/// Finds spans in which not all can be in time.
#[derive(Clone, Debug, Default)]
pub(super) struct Edf {
    now_ns: u64,
    /// When each is due, and what is left of it.
    left: BinaryHeap<Reverse<(u64, u64)>>,
    /// All that came since the server was last idle, or last found a miss.
    busy: Vec<EdfJob>,
    due: u64,
    missed: u64,
}

/// When it came, when it is due and what it takes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct EdfJob {
    came: u64,
    due: u64,
    work: u64,
}

impl Edf {
    /// Takes a job of `work_ns` for the server, or `alone_ns` on one replica by itself; moments
    /// never decrease.
    pub(super) fn on_arrival(&mut self, now: Moment, due: Moment, work_ns: u64, alone_ns: u64) {
        let (came_ns, due_ns) = (now.as_nanos(), due.as_nanos());
        self.due += 1;
        if due_ns < came_ns.saturating_add(alone_ns) {
            self.missed += 1;
            return;
        }
        self.advance(came_ns);
        if self.left.is_empty() {
            self.busy.clear();
        }
        self.left.push(Reverse((due_ns, work_ns)));
        self.busy.push(EdfJob { came: came_ns, due: due_ns, work: work_ns });
    }

    /// The share of deadlines that no order keeps more of, were nothing more to come.
    pub(super) fn met_max(&self) -> f64 {
        let mut rest = self.clone();
        rest.advance(u64::MAX);
        ratio(real(rest.due - rest.missed), real(rest.due))
    }

    fn advance(&mut self, until_ns: u64) {
        while let Some(Reverse((due, left))) = self.left.pop() {
            let end = self.now_ns.saturating_add(left);
            if due < end.min(until_ns) {
                self.miss(due);
            } else if until_ns < end {
                self.left.push(Reverse((due, end - until_ns)));
                break;
            } else {
                self.now_ns = end;
            }
        }
        if until_ns != u64::MAX {
            self.now_ns = until_ns;
        }
    }

    /// Counts the jobs that must be missed in the span up to `due_ns` that has the most too much,
    /// and starts anew behind it.
    fn miss(&mut self, due_ns: u64) {
        let (mut work_ns, mut most, mut from) = (0_u64, 0, self.busy.len());
        for (place, job) in self.busy.iter().enumerate().rev() {
            if due_ns < job.due {
                continue;
            }
            work_ns += job.work;
            let excess = work_ns.saturating_sub(due_ns - job.came);
            if most < excess {
                (most, from) = (excess, place);
            }
        }
        let inside = self.busy[from..].iter().filter(|it| it.due <= due_ns);
        let mut works: Vec<u64> = inside.map(|it| it.work).collect();
        works.sort_unstable();
        while 0 < most
            && let Some(largest) = works.pop()
        {
            most = most.saturating_sub(largest);
            self.missed += 1;
        }
        self.busy.clear();
        self.left.clear();
        self.now_ns = due_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(jobs: &[(u64, u64, u64)]) -> f64 {
        let mut server = Edf::default();
        for (came, due, work) in jobs {
            server.on_arrival(Moment::from_nanos(*came), Moment::from_nanos(*due), *work, *work);
        }
        server.met_max()
    }

    #[test]
    fn what_fits_is_kept_whatever_the_order_of_arrival() {
        let late_first = [(0, 100, 40), (1, 20, 10), (2, 30, 10), (90, 200, 100)];
        assert!((play(&late_first) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn as_few_as_must_be_are_missed() {
        // Three of thirty in a span of fifty: the larger of them is enough.
        assert!((play(&[(0, 50, 10), (0, 50, 10), (0, 50, 40)]) - 2.0 / 3.0).abs() < 1e-12);
        // One that cannot be in time by itself, and leaves the server to the others.
        assert!((play(&[(0, 50, 60), (0, 50, 50)]) - 0.5).abs() < 1e-12);
        // Two spans that have nothing to do with each other.
        let twice = [(0, 10, 8), (0, 10, 8), (100, 110, 8), (100, 110, 8)];
        assert!((play(&twice) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn what_is_due_later_is_not_blamed() {
        // The first is worked on until the others come; it has all the time it needs after them.
        assert!((play(&[(0, 1_000, 500), (10, 60, 30), (10, 60, 30)]) - 2.0 / 3.0).abs() < 1e-12);
    }
}
