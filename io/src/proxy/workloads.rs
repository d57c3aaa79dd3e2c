//! What people call a workload: its tenant and its model. A key holds only a hash of both, so names are
//! found the other way round, from every tenant and model that is known here. Nothing is kept for it
//! and no request pays for it. A workload of a tenant known only by its API key, or named by a header,
//! has no name but its digits.

use std::collections::BTreeMap;

use cleave_core::domain::SliceKey;

use super::pool::Pool;
use super::tenants::Tenants;

/// Names made at most; tenants times models.
const NAMES_MAX: usize = 1 << 16;
/// Requests without a key, or with one of no tenant.
const DEFAULT_TENANT: &str = "default";

/// Names the workloads of a pool, each with the number that its sessions are hashed with.
pub(super) fn seeds(pool: &Pool, tenants: &Tenants) -> Vec<(String, u64)> {
    let models = pool.models();
    let pairs = models.iter().flat_map(|model| {
        let default_tenant = std::iter::once((0, DEFAULT_TENANT));
        default_tenant.chain(tenants.salts()).map(move |(salt, tenant)| (salt, tenant, model))
    });
    let named = pairs
        .take(NAMES_MAX)
        .map(|(salt, tenant, model)| (format!("{tenant} × {model}"), SliceKey::seed(salt, model)));
    named.collect()
}

fn workload_of(seed: u64) -> u32 {
    SliceKey(seed).workload()
}

/// Names by workload.
#[derive(Clone, Debug, Default)]
pub struct WorkloadNames(BTreeMap<u32, String>);

impl WorkloadNames {
    pub(super) fn of(pool: &Pool, tenants: &Tenants) -> Self {
        let seeds = seeds(pool, tenants).into_iter();
        Self(seeds.map(|(name, seed)| (workload_of(seed), name)).collect())
    }

    /// Names a workload, if its tenant and its model are known.
    pub fn find(&self, workload: u32) -> Option<&str> {
        self.0.get(&workload).map(String::as_str)
    }

    /// Names a workload, or gives the eight digits of its half of a key.
    pub fn name(&self, workload: u32) -> String {
        self.find(workload).map_or_else(|| format!("{workload:08x}"), str::to_owned)
    }
}
