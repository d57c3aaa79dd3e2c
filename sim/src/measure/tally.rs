//! How much each got: one account for each tenant, each class, and the requests that a fault was
//! not meant for. A tenant's share is the work it got in time per work it asked for: tenants that
//! ask for little are not unlucky for getting little.

use std::collections::BTreeMap;

use cleave_core::domain::Moment;

use super::{End, Ended, Histogram, ratio};

/// The account of some of the requests; work is in milliseconds of a busy replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    pub requests: u64,
    pub finished: u64,
    pub good: u64,
    /// Requests with a deadline for their first token, and those that kept it.
    pub due: u64,
    pub met: u64,
    /// Those that were sent and missed it, and of these those that could not have kept it when they
    /// were sent, had the replica had nothing else to do.
    pub missed: u64,
    pub in_vain: u64,
    /// What was asked for, what was served, and what was served within the promise.
    pub work_ms: f64,
    pub served_ms: f64,
    pub good_ms: f64,
    /// What was sent on while something of every tenant waited.
    pub contested_ms: f64,
    pub ttft: Histogram,
    /// From arrival until the router first sent it somewhere.
    pub wait: Histogram,
    /// Refusals of the router, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Enters a request that has ended.
    pub(super) fn add(&mut self, it: &Ended, good: bool) {
        self.requests += 1;
        self.work_ms += it.asked_ms;
        if let Some(sent) = it.sent {
            self.wait.record(sent.since(it.arrival));
        }
        let ttft = it.first_token.map(|first: Moment| first.since(it.arrival));
        if let Some(time) = ttft {
            self.ttft.record(time);
        }
        if let Some(deadline) = it.deadline {
            let met = ttft.is_some_and(|it| it <= deadline);
            self.due += 1;
            self.met += u64::from(met);
            self.missed += u64::from(it.sent.is_some() && !met);
            self.in_vain += u64::from(it.in_vain);
        }
        match it.end {
            End::Finished => {
                self.finished += 1;
                self.served_ms += it.asked_ms;
            }
            End::Refused { reason } => *self.refused.entry(reason).or_default() += 1,
            End::Cut | End::TooLong => {}
        }
        if good {
            self.good += 1;
            self.good_ms += it.asked_ms;
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
    // When no tenant has anything, none is worse off than the others.
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
