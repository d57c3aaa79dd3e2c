//! What tenants may use and have used, as JSON. Keys are never shown, not even their hashes.

use cleave_core::brain::TenantSnapshot;
use cleave_core::queue::{Use, Work};
use serde::{Deserialize, Serialize};

use super::asking::{PeerQuery, ask};
use crate::proxy::{Pool, Router, Tenants};

/// What `/tenants` answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantList {
    pub pools: Vec<PoolTenants>,
    /// Other routers that did not say what tenants used there, by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolTenants {
    pub name: String,
    pub tenants: Vec<TenantFigures>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// What waits, is in flight and was used at each router; empty for a router that is alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<RouterUse>,
}

/// A tenant's part at one router.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouterUse {
    /// The router, by its id.
    pub router: String,
    pub waiting: usize,
    pub in_flight: u64,
    pub used: Vec<Used>,
}

/// Null where nothing is limited.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Figures {
    pub mu: Option<f64>,
    pub tokens: Option<u64>,
    pub requests: Option<u64>,
}

/// What was used since the start, of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Used {
    /// `guaranteed`, `burst` or `best_effort`.
    pub kind: String,
    pub mu: f64,
    pub tokens: u64,
    pub requests: u64,
}

impl TenantList {
    /// What tenants did at this router.
    pub(super) fn of(router: &Router) -> Self {
        let known = router.tenants();
        let pools = router.pools().iter().map(|it| PoolTenants::of(it, &known)).collect();
        Self { pools, silent: Vec::new() }
    }

    /// What they did at all routers, added up.
    pub(super) async fn of_all(router: &Router) -> Self {
        let mut all = Self::of(router);
        let Some(sharing) = router.sharing() else { return all };
        all.each(|it| it.routers = vec![it.part(sharing.router().to_string())]);
        for (id, told) in ask::<Self>(router, &PeerQuery::Tenants).await {
            match told {
                Some(told) => all.add(&id.to_string(), told),
                None => all.silent.push(id.to_string()),
            }
        }
        all
    }

    fn each(&mut self, change: impl Fn(&mut TenantFigures)) {
        self.pools.iter_mut().flat_map(|it| &mut it.tenants).for_each(change);
    }

    /// Adds what another router told.
    fn add(&mut self, router: &str, told: Self) {
        for pool in told.pools {
            // A pool or a tenant that is not known here cannot be named to an operator of this router.
            let Some(own) = self.pools.iter_mut().find(|it| it.name == pool.name) else { continue };
            for it in pool.tenants {
                if let Some(own) = own.tenants.iter_mut().find(|own| own.name == it.name) {
                    own.add(it.part(router.to_owned()));
                }
            }
        }
    }
}

impl PoolTenants {
    fn of(pool: &Pool, known: &Tenants) -> Self {
        let tenants = pool.tenants().iter().map(|it| TenantFigures::of(it, known)).collect();
        Self { name: pool.name.clone(), tenants }
    }
}

impl TenantFigures {
    fn part(&self, router: String) -> RouterUse {
        let (waiting, in_flight, used) = (self.waiting, self.in_flight, self.used.clone());
        RouterUse { router, waiting, in_flight, used }
    }

    fn add(&mut self, part: RouterUse) {
        self.waiting += part.waiting;
        self.in_flight += part.in_flight;
        for more in &part.used {
            if let Some(own) = self.used.iter_mut().find(|it| it.kind == more.kind) {
                own.mu += more.mu;
                own.tokens += more.tokens;
                own.requests += more.requests;
            }
        }
        self.routers.push(part);
    }

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
                    kind: kind.as_str().to_owned(),
                    mu: it.work.as_mu(),
                    tokens: it.tokens,
                    requests: it.requests,
                })
                .collect(),
            routers: Vec::new(),
        }
    }
}
