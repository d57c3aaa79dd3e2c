//! What tenants may use and have used, as JSON. Keys are never shown, not even their hashes.

use cleave_core::brain::TenantSnapshot;
use cleave_core::queue::{Use, Work};
use serde::Serialize;

use crate::proxy::{Pool, Router, Tenants};

/// What `/tenants` answers.
#[derive(Clone, Debug, Serialize)]
pub struct TenantList {
    pub pools: Vec<PoolTenants>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PoolTenants {
    pub name: String,
    pub tenants: Vec<TenantFigures>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TenantFigures {
    /// `default` is all requests without a tenant's key.
    pub name: String,
    pub waiting: usize,
    /// Requests that hold a part of the contract: in line or at a replica.
    pub in_flight: u64,
    pub limits: Figures,
    pub remaining: Figures,
    pub reset_seconds: f64,
    pub used: Vec<Used>,
}

/// Null where nothing is limited.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    pub mu: Option<f64>,
    pub tokens: Option<u64>,
    pub requests: Option<u64>,
}

/// What was used since the start, of one kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Used {
    /// `guaranteed`, `burst` or `best_effort`.
    pub kind: &'static str,
    pub mu: f64,
    pub tokens: u64,
    pub requests: u64,
}

impl TenantList {
    pub(super) fn of(router: &Router) -> Self {
        let known = router.tenants();
        Self { pools: router.pools().iter().map(|it| PoolTenants::of(it, &known)).collect() }
    }
}

impl PoolTenants {
    fn of(pool: &Pool, known: &Tenants) -> Self {
        let tenants = pool.tenants().iter().map(|it| TenantFigures::of(it, known)).collect();
        Self { name: pool.name.clone(), tenants }
    }
}

impl TenantFigures {
    fn of(snapshot: &TenantSnapshot, known: &Tenants) -> Self {
        let usage = &snapshot.usage;
        Self {
            name: known.name(snapshot.tenant).unwrap_or("default").to_owned(),
            waiting: snapshot.waiting,
            in_flight: usage.reserved,
            limits: Figures {
                mu: usage.limits.work_per_min.map(Work::as_mu),
                tokens: usage.limits.tokens_per_min,
                requests: usage.limits.requests_per_min,
            },
            remaining: Figures {
                mu: usage.work_remaining.map(Work::as_mu),
                tokens: usage.tokens_remaining,
                requests: usage.requests_remaining,
            },
            reset_seconds: usage.reset_in.as_secs_f64(),
            used: Use::ALL
                .iter()
                .zip(usage.used)
                .map(|(kind, it)| Used {
                    kind: kind.as_str(),
                    mu: it.work.as_mu(),
                    tokens: it.tokens,
                    requests: it.requests,
                })
                .collect(),
        }
    }
}
