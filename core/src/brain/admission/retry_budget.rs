//! How much may be tried again? A retry is paid from a balance that every arriving request fills a
//! little, so that retries never add more than a share to the load of a fleet in trouble. The balance
//! holds a reserve for the burst when one replica dies with many requests in flight.
//!
//! Each workload has a balance of its own beside the common one, and a retry is paid from both. So a
//! workload whose requests fail everywhere spends what it earned, and not what others did.

use crate::tokens::Recent;

use super::super::settings::RetrySettings;

/// How many workloads have a balance of their own. One that is forgotten begins anew.
const WORKLOADS_MAX: usize = 1024;
/// The part of the reserve that a workload begins with where others were there before it.
const NEWCOMER_SHARE: f64 = 0.5;

#[derive(Debug)]
pub(in crate::brain) struct RetryBudget {
    share: f64,
    reserve: f64,
    common: f64,
    own: Recent<Option<f64>>,
}

impl RetryBudget {
    pub(super) fn new(settings: RetrySettings) -> Self {
        let reserve = f64::from(settings.reserve);
        let (share, own) = (settings.share, Recent::new(WORKLOADS_MAX));
        Self { share, reserve, common: reserve, own }
    }

    /// Notes that a request of the workload arrived while `in_flight` requests were in flight.
    pub(in crate::brain) fn on_arrival(&mut self, workload: u32, in_flight: usize) {
        // A fleet with more in flight loses more at once when a replica dies: the balance may grow
        // to what is in flight, so that each of those can go elsewhere once.
        let in_flight = u32::try_from(in_flight).map_or(f64::MAX, f64::from);
        let (share, most) = (self.share, self.reserve.max(in_flight));
        self.common = (self.common + share).min(most);
        let own = self.own_balance(workload);
        *own = (*own + share).min(most);
    }

    /// Pays for one retry of the workload, or says that there is nothing left to pay with.
    pub(in crate::brain) fn pay(&mut self, workload: u32) -> bool {
        let common = self.common;
        let own = self.own_balance(workload);
        let pays = 1.0 <= common && 1.0 <= *own;
        if pays {
            *own -= 1.0;
            self.common -= 1.0;
        }
        pays
    }

    fn own_balance(&mut self, workload: u32) -> &mut f64 {
        let is_alone = self.own.iter().next().is_none();
        let first = if is_alone { self.reserve } else { NEWCOMER_SHARE * self.reserve };
        self.own.get_or_insert(workload.into()).get_or_insert(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_arrivals_beyond_the_reserve() {
        let mut budget = RetryBudget::new(RetrySettings { tries_max: 3, share: 0.25, reserve: 10 });
        let mut paid = 0;
        for _ in 0..1000 {
            budget.on_arrival(1, 5);
            paid += u32::from(budget.pay(1)) + u32::from(budget.pay(1));
        }
        assert!((255..=262).contains(&paid), "{paid}");
    }

    #[test]
    fn a_fleet_with_much_in_flight_saves_for_its_loss() {
        let mut budget = RetryBudget::new(RetrySettings { tries_max: 3, share: 0.2, reserve: 10 });
        (0..5000).for_each(|_| budget.on_arrival(1, 500));
        let paid = (0..1000).filter(|_| budget.pay(1)).count();
        assert_eq!(paid, 500);
    }

    #[test]
    fn a_workload_that_fails_everywhere_leaves_others_what_they_earn() {
        let settings = RetrySettings { tries_max: 3, share: 0.2, reserve: 100 };
        let mut budget = RetryBudget::new(settings);
        (0..1000).for_each(|_| budget.on_arrival(1, 20));
        let mut refused = 0;
        for turn in 0..10_000 {
            budget.on_arrival(2, 20);
            while budget.pay(2) {}
            budget.on_arrival(1, 20);
            refused += u32::from(turn % 10 == 0 && !budget.pay(1));
        }
        assert_eq!(refused, 0);
    }
}
