//! How much waits, and what tenants use. However many tenants there are, only some have labels.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::{Real, RealCounter, whole};

/// At most this many tenants are shown by name; what all others use is summed.
const TENANTS_SHOWN_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    pool: String,
    class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabel {
    pool: String,
    tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UseLabel {
    pool: String,
    tenant: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    pool: String,
    tenant: String,
    limit: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct LineFamilies {
    waiting: Family<ClassLabel, Gauge>,
    tenant_work: Family<UseLabel, RealCounter>,
    tenant_waiting: Family<TenantLabel, Gauge>,
    contract_used: Family<LimitLabel, Real>,
}

/// One tenant's books at the time of a scrape.
#[derive(Clone, Debug)]
pub struct TenantGauges<'a> {
    pub tenant: &'a str,
    pub waiting: usize,
    /// Kind of use and model units since the start.
    pub used_mu: [(&'static str, f64); 3],
    /// The share of each limit of its contract that is used now, where it has that limit.
    pub contract_used: [(&'static str, Option<f64>); 3],
}

impl LineFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register("cleave_line_waiting", "Requests in the line", self.waiting.clone());
        it.register(
            "cleave_tenant_model_units",
            "Model units by tenant: guaranteed, burst, best_effort",
            self.tenant_work.clone(),
        );
        it.register(
            "cleave_tenant_waiting",
            "Requests of a tenant in line",
            self.tenant_waiting.clone(),
        );
        it.register(
            "cleave_tenant_contract_used_ratio",
            "Share of a tenant's contract that is used now",
            self.contract_used.clone(),
        );
    }

    pub(super) fn set<'a>(
        &self,
        pool: &str,
        classes: impl Iterator<Item = (&'a str, usize)>,
        tenants: &[TenantGauges<'_>],
    ) {
        for (class, waiting) in classes {
            let label = ClassLabel { pool: pool.to_owned(), class: class.to_owned() };
            self.waiting.get_or_create(&label).set(whole(waiting));
        }
        for (at, it) in tenants.iter().enumerate() {
            let name = if at < TENANTS_SHOWN_MAX { it.tenant } else { "other" };
            let (pool, tenant) = (pool.to_owned(), name.to_owned());
            for (kind, mu) in it.used_mu {
                let label = UseLabel { pool: pool.clone(), tenant: tenant.clone(), kind };
                self.tenant_work.get_or_create(&label).inc_by(mu);
            }
            // Shares of many tenants add up to nothing.
            let shares = it.contract_used.iter().filter(|_| at < TENANTS_SHOWN_MAX);
            for (limit, share) in shares.filter_map(|it| Some((it.0, it.1?))) {
                let (pool, tenant) = (pool.clone(), tenant.clone());
                self.contract_used.get_or_create(&LimitLabel { pool, tenant, limit }).set(share);
            }
            let label = TenantLabel { pool, tenant };
            self.tenant_waiting.get_or_create(&label).inc_by(whole(it.waiting));
        }
    }

    /// Forgets them all, before those that are still there are set anew.
    pub(super) fn clear(&self) {
        self.waiting.clear();
        self.tenant_work.clear();
        self.tenant_waiting.clear();
        self.contract_used.clear();
    }
}
