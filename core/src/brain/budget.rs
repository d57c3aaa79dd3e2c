//! How much may be tried again? Retries are paid from a purse that every arriving request fills a
//! little, so that they never add more than a share to the load of a fleet in trouble. The purse
//! holds a reserve for the burst when one replica dies with many requests in flight.

use super::settings::RetrySettings;

#[derive(Debug)]
pub(super) struct RetryBudget {
    share: f64,
    reserve: f64,
    purse: f64,
}

impl RetryBudget {
    pub(super) fn new(settings: RetrySettings) -> Self {
        let reserve = f64::from(settings.reserve);
        Self { share: settings.share, reserve, purse: reserve }
    }

    pub(super) fn on_arrival(&mut self, in_flight: usize) {
        // A fleet with more in flight loses more at once when a replica dies: the purse may grow
        // to what is in flight, so that each of those can go elsewhere once.
        let in_flight = u32::try_from(in_flight).map_or(f64::MAX, f64::from);
        self.purse = (self.purse + self.share).min(self.reserve.max(in_flight));
    }

    /// Pays for one retry, or says that there is nothing left to pay with.
    pub(super) fn pay(&mut self) -> bool {
        let pays = 1.0 <= self.purse;
        if pays {
            self.purse -= 1.0;
        }
        pays
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
            budget.on_arrival(5);
            paid += u32::from(budget.pay()) + u32::from(budget.pay());
        }
        assert!((255..=262).contains(&paid), "{paid}");
    }

    #[test]
    fn a_fleet_with_much_in_flight_saves_for_its_loss() {
        let mut budget = RetryBudget::new(RetrySettings { tries_max: 3, share: 0.2, reserve: 10 });
        (0..5000).for_each(|_| budget.on_arrival(500));
        let paid = (0..1000).filter(|_| budget.pay()).count();
        assert_eq!(paid, 500);
    }
}
