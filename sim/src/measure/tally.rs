//! Who got how much. A tenant's share is the work it got in time per work it asked for: tenants that
//! ask for little are not unlucky for getting little.

use super::ratio;

/// One tenant's account, in milliseconds of a busy replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantTally {
    pub requests: u64,
    pub good: u64,
    pub work_ms: f64,
    pub good_ms: f64,
}

impl TenantTally {
    pub fn add(&mut self, work_ms: f64, good: bool) {
        self.requests += 1;
        self.work_ms += work_ms;
        if good {
            self.good += 1;
            self.good_ms += work_ms;
        }
    }

    /// Work served in time per work asked for.
    pub fn share(&self) -> f64 {
        ratio(self.good_ms, self.work_ms)
    }
}

/// Jain's index of shares: one when all are equal, 1/n when one of n has all.
pub fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    // When nobody has anything, nobody is worse off than the others.
    if 0.0 < squares { sum * sum / (count * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_a_share_for_a_monopoly() {
        assert!((jain([2.0; 5].into_iter()) - 1.0).abs() < 1e-12);
        assert!((jain([0.0, 0.0, 0.0, 7.0].into_iter()) - 0.25).abs() < 1e-12);
        assert!((jain([0.0; 3].into_iter()) - 1.0).abs() < 1e-12);
    }
}
