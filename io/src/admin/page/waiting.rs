//! `GET /waiting`: which requests wait, how long already and what for; and what was refused. By pool, class and tenant.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use cleave_core::brain::WaitingGroup;
use cleave_core::queue::{ClassId, Tenant};
use serde::Serialize;

use crate::proxy::{Pool, RefusedKind, Router, Tenants};

/// Groups that are shown, the largest first.
const GROUPS_MAX: usize = 256;

/// What `/waiting` answers.
#[derive(Clone, Debug, Serialize)]
pub(in crate::admin) struct WaitingList {
    pools: Vec<PoolWaiting>,
}

#[derive(Clone, Debug, Serialize)]
struct PoolWaiting {
    name: String,
    groups: Vec<GroupSeen>,
    refused: Vec<RefusedSeen>,
}

#[derive(Clone, Debug, Serialize)]
struct GroupSeen {
    class: String,
    tenant: String,
    /// What they wait for, in a word and in a sentence.
    waits_for: &'static str,
    because: &'static str,
    count: usize,
    mu: f64,
    oldest_ms: f64,
}

#[derive(Clone, Debug, Serialize)]
struct RefusedSeen {
    class: Option<String>,
    tenant: String,
    reason: &'static str,
    count: u64,
}

/// Names of tenants by their number; all of them are looked up at once.
struct TenantNames(BTreeMap<Tenant, String>);

impl TenantNames {
    fn of(tenants: &Tenants) -> Self {
        Self(tenants.iter().map(|it| (Tenants::id(&it.name), it.name.clone())).collect())
    }

    fn name(&self, tenant: Tenant) -> String {
        self.0.get(&tenant).cloned().unwrap_or_else(|| "default".to_owned())
    }
}

pub(in crate::admin) async fn waiting(State(router): State<Arc<Router>>) -> Json<WaitingList> {
    let names = TenantNames::of(&router.tenants());
    Json(WaitingList {
        pools: router.pools().iter().map(|it| PoolWaiting::of(it, &names)).collect(),
    })
}

impl PoolWaiting {
    fn of(pool: &Pool, names: &TenantNames) -> Self {
        let class = |id: ClassId| pool.classes().get(id).name.clone();
        let group = |it: WaitingGroup| GroupSeen {
            class: class(it.class),
            tenant: names.name(it.tenant),
            waits_for: it.cause.as_str(),
            because: it.cause.sentence(),
            count: it.count,
            mu: it.work.as_mu(),
            oldest_ms: it.oldest.as_secs_f64() * 1e3,
        };
        let refusal = |(it, count): (RefusedKind, u64)| RefusedSeen {
            class: it.class.map(class),
            tenant: names.name(it.tenant),
            reason: it.reason,
            count,
        };
        let mut refused = pool.refused();
        refused.sort_by_key(|it| std::cmp::Reverse(it.1));
        Self {
            name: pool.name.clone(),
            groups: pool.waiting().into_iter().take(GROUPS_MAX).map(group).collect(),
            refused: refused.into_iter().take(GROUPS_MAX).map(refusal).collect(),
        }
    }
}
