//! How much work is asked for? Counted when it comes, so that a pool that refuses most of it still shows what it
//! should be. A request that was refused and comes again is the same work; what a tenant asks for beyond its contract
//! is counted apart. What requests cost in the end corrects what was predicted of them, all together.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, RequestId};

/// How long a refused request is waited for to come again.
const AGAIN_WITHIN: Duration = Duration::from_secs(600);
/// How many refused requests are remembered, the latest.
const REFUSED_MAX: usize = 16_384;
/// How many requests that wait are followed.
const WAITING_MAX: usize = 65_536;
/// Once this much was settled, all that was settled before counts half.
const SETTLED_MAX_MU: f64 = 1_000.0;
/// Work that must be settled before predictions are corrected by it.
const SETTLED_MIN_MU: f64 = 10.0;
/// Predictions are not corrected by more than this factor, either way.
const CORRECTION_MAX: f64 = 4.0;

/// What came since it was taken last, in model units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfferedWork {
    pub offered_mu: f64,
    pub beyond_contract_mu: f64,
    pub refused_mu: f64,
}

impl OfferedWork {
    fn add(&mut self, other: Self) {
        self.offered_mu += other.offered_mu;
        self.beyond_contract_mu += other.beyond_contract_mu;
        self.refused_mu += other.refused_mu;
    }

    /// Tells whether nothing was asked for.
    pub fn is_none(&self) -> bool {
        let Self { offered_mu, beyond_contract_mu, refused_mu } = *self;
        offered_mu.max(beyond_contract_mu).max(refused_mu) <= 0.0
    }
}

/// Counts the work that is asked for.
#[derive(Debug, Default)]
pub struct Offered {
    work: OfferedWork,
    /// What came to this router since others were told of it.
    untold: OfferedWork,
    /// Refused requests by what marks their prompt, and when that was.
    refused: IndexMap<u64, Moment, FxBuildHasher>,
    /// Requests in the line: what marks them, and their work.
    waiting: IndexMap<RequestId, (u64, f64), FxBuildHasher>,
    predicted_mu: f64,
    settled_mu: f64,
}

impl Offered {
    /// Counts a request that came. Its mark is 0 where it could not be told from others.
    pub fn on_arrival(&mut self, now: Moment, mark: u64, mu: f64) {
        let before = self.refused.swap_remove(&mark);
        if before.is_none_or(|at| AGAIN_WITHIN < now.since(at)) {
            self.count(OfferedWork { offered_mu: mu, ..OfferedWork::default() });
        }
    }

    /// Counts a request beyond its tenant's contract.
    pub fn on_beyond(&mut self, mu: f64) {
        self.count(OfferedWork { beyond_contract_mu: mu, ..OfferedWork::default() });
    }

    /// Counts a request that was refused for lack of room.
    pub fn on_refused(&mut self, now: Moment, mark: u64, mu: f64) {
        self.count(OfferedWork { refused_mu: mu, ..OfferedWork::default() });
        self.remember_refused(now, mark);
    }

    /// Counts what another router was asked for.
    pub fn on_elsewhere(&mut self, work: OfferedWork) {
        self.work.add(work);
    }

    /// Takes what was counted here since it was asked last, for other routers.
    pub fn take_untold(&mut self) -> OfferedWork {
        std::mem::take(&mut self.untold)
    }

    fn count(&mut self, work: OfferedWork) {
        self.work.add(work);
        self.untold.add(work);
    }

    /// Remembers a request that was refused, here or elsewhere, so that it is the same work when it comes again.
    pub fn remember_refused(&mut self, now: Moment, mark: u64) {
        if mark == 0 {
            return;
        }
        if self.refused.len() == REFUSED_MAX && !self.refused.contains_key(&mark) {
            self.refused.swap_remove_index(0);
        }
        self.refused.insert(mark, now);
    }

    /// Follows a request that waits in the line.
    pub fn on_waiting(&mut self, request: RequestId, mark: u64, mu: f64) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.insert(request, (mark, mu));
        }
    }

    /// A request has left the line for a replica, or because its client did.
    pub fn on_left(&mut self, request: RequestId) {
        self.waiting.swap_remove(&request);
    }

    /// A request has waited in vain. Returns what marks it.
    pub fn on_turned_away(&mut self, now: Moment, request: RequestId) -> Option<u64> {
        let (mark, mu) = self.waiting.swap_remove(&request)?;
        self.on_refused(now, mark, mu);
        Some(mark)
    }

    /// Takes in what a request came to.
    pub fn on_settled(&mut self, predicted_mu: f64, settled_mu: f64) {
        self.predicted_mu += predicted_mu;
        self.settled_mu += settled_mu;
        if SETTLED_MAX_MU < self.predicted_mu {
            self.predicted_mu /= 2.0;
            self.settled_mu /= 2.0;
        }
    }

    /// Takes what came since it was taken last.
    pub fn take(&mut self) -> OfferedWork {
        let OfferedWork { offered_mu, beyond_contract_mu, refused_mu } =
            std::mem::take(&mut self.work);
        let by = self.correction();
        OfferedWork {
            offered_mu: offered_mu * by,
            beyond_contract_mu: beyond_contract_mu * by,
            refused_mu: refused_mu * by,
        }
    }

    /// What requests came to, over what was predicted of them.
    pub fn correction(&self) -> f64 {
        if self.predicted_mu < SETTLED_MIN_MU {
            return 1.0;
        }
        (self.settled_mu / self.predicted_mu).clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_request_that_is_refused_and_comes_again_is_counted_once() {
        let mut offered = Offered::default();
        for second in 0..5 {
            offered.on_arrival(at(second), 7, 2.0);
            offered.on_refused(at(second), 7, 2.0);
        }
        let came = offered.take();
        assert!((came.offered_mu - 2.0).abs() < 1e-9, "{came:?}");
        assert!((came.refused_mu - 10.0).abs() < 1e-9);
        offered.on_arrival(at(5_000), 7, 2.0);
        assert!((offered.take().offered_mu - 2.0).abs() < 1e-9, "after an hour it is another");
    }

    #[test]
    fn the_same_prompt_twice_is_twice_the_work_where_none_was_refused() {
        let mut offered = Offered::default();
        offered.on_arrival(at(0), 7, 2.0);
        offered.on_arrival(at(0), 7, 2.0);
        offered.on_refused(at(1), 0, 2.0);
        offered.on_arrival(at(1), 0, 2.0);
        assert!((offered.take().offered_mu - 6.0).abs() < 1e-9, "one without a mark is itself");
    }

    #[test]
    fn one_that_waits_in_vain_is_refused_and_one_that_goes_is_not() {
        let mut offered = Offered::default();
        offered.on_waiting(RequestId(1), 11, 3.0);
        offered.on_waiting(RequestId(2), 12, 4.0);
        offered.on_left(RequestId(2));
        offered.on_turned_away(at(9), RequestId(1));
        offered.on_turned_away(at(9), RequestId(2));
        offered.on_arrival(at(10), 11, 3.0);
        let came = offered.take();
        assert!((came.refused_mu - 3.0).abs() < 1e-9 && came.offered_mu.abs() < 1e-9, "{came:?}");
    }

    #[test]
    fn what_came_here_is_told_once_and_what_came_elsewhere_is_not_told_on() {
        let mut offered = Offered::default();
        offered.on_arrival(at(0), 1, 2.0);
        offered.on_beyond(3.0);
        offered.on_refused(at(0), 2, 4.0);
        offered.on_elsewhere(OfferedWork { offered_mu: 50.0, ..OfferedWork::default() });
        offered.remember_refused(at(0), 9);
        offered.on_arrival(at(1), 9, 7.0);
        let told = offered.take_untold();
        let came = OfferedWork { offered_mu: 2.0, beyond_contract_mu: 3.0, refused_mu: 4.0 };
        assert_eq!(told, came, "one that was refused elsewhere was counted there");
        assert!(offered.take_untold().is_none() && !told.is_none());
        assert_eq!(offered.take(), OfferedWork { offered_mu: 52.0, ..came });
    }

    #[test]
    fn what_requests_come_to_corrects_what_is_predicted_within_bounds() {
        let mut offered = Offered::default();
        offered.on_settled(5.0, 1.0);
        assert!((offered.correction() - 1.0).abs() < 1e-9, "too little was seen");
        (0..10_000).for_each(|_| offered.on_settled(5.0, 2.5));
        offered.on_arrival(at(0), 1, 10.0);
        assert!((offered.take().offered_mu - 5.0).abs() < 1e-6);
        (0..10_000).for_each(|_| offered.on_settled(1.0, 0.0));
        assert!((offered.correction() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut offered = Offered::default();
        (1..100_000).for_each(|it| offered.on_refused(at(0), it, 1.0));
        (1..100_000).for_each(|it| offered.on_waiting(RequestId(it), it, 1.0));
        assert_eq!((offered.refused.len(), offered.waiting.len()), (REFUSED_MAX, WAITING_MAX));
    }
}
