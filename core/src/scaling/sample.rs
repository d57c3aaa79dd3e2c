//! What one pool was like since the sample before, in plain figures: a router takes them from its brain and adds
//! up what other routers say, the simulator takes them from the same brain.

/// One pool over a short while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Replicas that take requests.
    pub ready: usize,
    /// Replicas that are there and have not taken a request yet.
    pub starting: usize,
    /// Replicas that are there, were ready once and take nothing now.
    pub unhealthy: usize,
    /// Model units of the requests that came since the sample before. Each is counted once, also when it was refused
    /// and came again; what tenants ask for beyond their contracts is not in it.
    pub offered_mu: f64,
    /// Model units that tenants asked for beyond their contracts since the sample before: it buys no replicas.
    pub beyond_contract_mu: f64,
    /// Model units that wait in the line now.
    pub held_mu: f64,
    /// Model units that were refused for lack of room since the sample before; they are in `offered_mu` too.
    pub refused_mu: f64,
    /// The KV that live sessions need, from the router's own books: engines call cached sessions free.
    pub kv_tokens_needed: u64,
    pub kv_tokens_per_replica: Option<u64>,
    /// What one warm replica does in a minute within its promises; nothing where no replica was seen yet.
    pub capacity_mu_per_min: Option<f64>,
    /// The fewest replicas that subsets and zones allow.
    pub floor: usize,
    /// Whether some of these figures could not be had, as when another router is not heard.
    pub is_missing: bool,
    /// Whether the engines' reports no longer change although there is work.
    pub is_frozen: bool,
}

impl Sample {
    /// Replicas that are there, whatever they do.
    pub const fn there(&self) -> usize {
        self.ready.saturating_add(self.starting).saturating_add(self.unhealthy)
    }

    /// The same with figures that can be worked with: what makes no sense is nothing.
    #[must_use]
    pub(super) fn sensible(mut self) -> Self {
        for mu in [
            &mut self.offered_mu,
            &mut self.beyond_contract_mu,
            &mut self.held_mu,
            &mut self.refused_mu,
        ] {
            *mu = if mu.is_finite() { mu.max(0.0) } else { 0.0 };
        }
        let works = |it: &f64| it.is_finite() && MU_PER_MIN_MIN <= *it;
        self.capacity_mu_per_min = self.capacity_mu_per_min.filter(works);
        self.kv_tokens_per_replica = self.kv_tokens_per_replica.filter(|it| 0 < *it);
        self
    }
}

/// A replica that does less is not known: what is divided by it would make no sense.
const MU_PER_MIN_MIN: f64 = 1e-3;
