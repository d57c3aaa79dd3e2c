//! Replicas that were asked for and are not ready yet: they count as coming, so that they are not asked for again,
//! and not for ever, so that one that gets no GPU does not stand for capacity.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::Moment;

/// They are given up after this many start-up times.
const EXPIRE_AFTER: u32 = 2;
/// How many times of asking are told apart; older ones are joined.
const ORDERS_MAX: usize = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// When, and how many, oldest first.
    orders: VecDeque<(Moment, usize)>,
}

impl Asked {
    pub(super) fn ask(&mut self, now: Moment, replicas: usize) {
        if replicas == 0 {
            return;
        }
        if self.orders.len() == ORDERS_MAX
            && let Some((_, count)) = self.orders.pop_front()
            && let Some(next) = self.orders.front_mut()
        {
            next.1 += count;
        }
        self.orders.push_back((now, replicas));
    }

    /// Takes in that no more than `missing` are still to come. Those that were asked for first came first.
    pub(super) fn on_missing(&mut self, missing: usize) {
        let mut extra = self.total().saturating_sub(missing);
        while 0 < extra
            && let Some((_, count)) = self.orders.front_mut()
        {
            let came = extra.min(*count);
            *count -= came;
            extra -= came;
            if *count == 0 {
                self.orders.pop_front();
            }
        }
    }

    /// Counts those that may still come, and those that are overdue.
    pub(super) fn count(&self, now: Moment, start_up: Duration) -> (usize, usize) {
        let is_due = |at: Moment| now.since(at) <= start_up * EXPIRE_AFTER;
        let coming = self.orders.iter().filter(|it| is_due(it.0)).map(|it| it.1).sum();
        (coming, self.total() - coming)
    }

    fn total(&self) -> usize {
        self.orders.iter().map(|it| it.1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_UP: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn what_was_asked_for_comes_in_order_and_is_overdue_after_two_start_ups() {
        let mut asked = Asked::default();
        asked.ask(at(0), 3);
        asked.ask(at(40), 2);
        assert_eq!(asked.count(at(50), START_UP), (5, 0));
        asked.on_missing(3);
        assert_eq!(asked.count(at(61), START_UP), (2, 1), "two of the first three came");
        asked.on_missing(0);
        assert_eq!(asked.count(at(61), START_UP), (0, 0));
    }

    #[test]
    fn orders_are_bounded_in_number_and_none_is_lost() {
        let mut asked = Asked::default();
        (0..10_000).for_each(|it| asked.ask(at(it), 1));
        assert_eq!(asked.orders.len(), ORDERS_MAX);
        assert_eq!(asked.total(), 10_000);
    }
}
