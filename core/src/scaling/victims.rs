//! Which replica goes? The one whose cache is worth least: what its sessions would cost to read again elsewhere, by
//! their odds to return. One that has not served yet has nothing to lose.

use crate::domain::ReplicaId;

/// What would be lost with a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holding {
    pub replica: ReplicaId,
    /// Whether it takes requests.
    pub is_ready: bool,
    /// What its cache is worth, in milliseconds of a replica; see [`cache_value`].
    pub cache_ms: f64,
    /// Work under way there, which must be waited for.
    pub in_flight_mu: f64,
}

/// What a cache is worth: each session's odds to return, times what it would cost to read it again.
pub fn cache_value(sessions: impl Iterator<Item = (f64, f64)>) -> f64 {
    let value = |(odds, again_ms): (f64, f64)| odds.clamp(0.0, 1.0) * again_ms.max(0.0);
    sessions.map(value).filter(|it| it.is_finite()).sum()
}

/// Picks `count` replicas to take away, the one that costs least first. Of equals the newest goes.
pub fn victims(holdings: &[Holding], count: usize) -> Vec<ReplicaId> {
    let mut order: Vec<&Holding> = holdings.iter().collect();
    order.sort_by(|one, other| {
        let by_cache = one.cache_ms.total_cmp(&other.cache_ms);
        let by_work = one.in_flight_mu.total_cmp(&other.in_flight_mu);
        let by_age = other.replica.cmp(&one.replica);
        one.is_ready.cmp(&other.is_ready).then(by_cache).then(by_work).then(by_age)
    });
    order.into_iter().take(count).map(|it| it.replica).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(id: u32, is_ready: bool, cache_ms: f64, in_flight_mu: f64) -> Holding {
        Holding { replica: ReplicaId(id), is_ready, cache_ms, in_flight_mu }
    }

    #[test]
    fn the_least_valuable_cache_goes_first_and_before_it_what_never_served() {
        let all = [
            holding(0, true, 500.0, 0.0),
            holding(1, true, 20.0, 9.0),
            holding(2, true, 20.0, 1.0),
            holding(3, false, 0.0, 0.0),
            holding(4, false, 0.0, 0.0),
        ];
        assert_eq!(victims(&all, 4), [4, 3, 2, 1].map(ReplicaId));
        assert_eq!(victims(&all, 9).len(), 5);
    }

    #[test]
    fn a_session_that_will_not_return_is_worth_nothing() {
        let many_idle = cache_value([(0.01, 100.0); 50].into_iter());
        let one_live = cache_value([(0.9, 100.0)].into_iter());
        assert!(many_idle < one_live);
        assert!((cache_value([(f64::NAN, 1.0), (2.0, 3.0)].into_iter()) - 3.0).abs() < 1e-9);
    }
}
