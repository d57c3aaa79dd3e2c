//! What was served by each replica and for each tenant and class. Handles are made once for each of them, so
//! that a request looks up no label. Their number is bounded: replicas are as many as there are, tenants beyond
//! the first hundred are `other`.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use cleave_core::domain::Usage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::labels::{STATUS_CLASSES, TOKEN_TYPES, class_of, seconds};
use super::replicas::ReplicaLabel;

/// Tenants that are shown by name.
const TENANTS_SHOWN_MAX: usize = 100;
/// Why a try at a replica failed.
const REASONS: [&str; 9] =
    ["unreachable", "late", "lost", "died", "hung", "status", "busy", "ours", "cut"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplicaStreamLabel {
    pool: String,
    replica: String,
    stream: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplicaTokenLabel {
    pool: String,
    replica: String,
    token_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplicaReasonLabel {
    pool: String,
    replica: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantStatusLabel {
    pool: String,
    tenant: String,
    class: String,
    status_class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantTokenLabel {
    pool: String,
    tenant: String,
    class: String,
    token_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantReasonLabel {
    pool: String,
    tenant: String,
    class: String,
    reason: &'static str,
}

/// What came of one request, for the books of its replica and its tenant.
#[derive(Clone, Copy, Debug)]
pub struct ServedRequest {
    pub status: u16,
    pub stream: bool,
    pub first_token: Option<Duration>,
    /// Between two tokens of a stream, on the average.
    pub gap: Option<Duration>,
    pub total: Duration,
    pub usage: Usage,
    /// Why the router refused it, if it did.
    pub refused: Option<&'static str>,
}

#[derive(Debug)]
pub(super) struct ServedFamilies {
    first_token: Family<ReplicaLabel, Histogram>,
    gap: Family<ReplicaLabel, Histogram>,
    total: Family<ReplicaStreamLabel, Histogram>,
    tokens: Family<ReplicaTokenLabel, Counter>,
    errors: Family<ReplicaReasonLabel, Counter>,
    tenant_requests: Family<TenantStatusLabel, Counter>,
    tenant_tokens: Family<TenantTokenLabel, Counter>,
    tenant_refused: Family<TenantReasonLabel, Counter>,
}

impl Default for ServedFamilies {
    fn default() -> Self {
        Self {
            first_token: Family::new_with_constructor(seconds),
            gap: Family::new_with_constructor(seconds),
            total: Family::new_with_constructor(seconds),
            tokens: Family::default(),
            errors: Family::default(),
            tenant_requests: Family::default(),
            tenant_tokens: Family::default(),
            tenant_refused: Family::default(),
        }
    }
}

/// What requests at one replica touch.
#[derive(Clone, Debug)]
pub struct ReplicaHandles {
    first_token: Histogram,
    gap: Histogram,
    /// Of whole answers, then of streams.
    total: [Histogram; 2],
    tokens: [Counter; 3],
    errors: Family<ReplicaReasonLabel, Counter>,
    label: ReplicaLabel,
}

/// What requests of one tenant and class touch.
#[derive(Clone, Debug)]
struct TenantHandles {
    answered: [Counter; 5],
    tokens: [Counter; 3],
    tenant: String,
}

type ByTenant = BTreeMap<(u64, u8), Arc<TenantHandles>>;

/// The tenants of one pool.
#[derive(Clone, Debug)]
pub struct TenantMetrics {
    pool: String,
    families: Arc<ServedFamilies>,
    /// By the tenant's number and the class's.
    handles: Arc<RwLock<ByTenant>>,
}

impl ServedFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register(
            "cleave_replica_first_token_seconds",
            "Request received to first content of a stream, by the replica that served it",
            self.first_token.clone(),
        );
        it.register(
            "cleave_replica_token_gap_seconds",
            "Time between two tokens of a stream, its average, by replica",
            self.gap.clone(),
        );
        it.register(
            "cleave_replica_request_seconds",
            "Request received to end of answer, by replica, streams apart",
            self.total.clone(),
        );
        it.register(
            "cleave_replica_tokens",
            "Tokens as the engine reports them",
            self.tokens.clone(),
        );
        it.register(
            "cleave_replica_errors",
            "Tries that failed there, by reason",
            self.errors.clone(),
        );
        it.register(
            "cleave_tenant_requests",
            "Answers by tenant, class and status class",
            self.tenant_requests.clone(),
        );
        it.register(
            "cleave_tenant_tokens",
            "Tokens by tenant and class",
            self.tenant_tokens.clone(),
        );
        it.register(
            "cleave_tenant_refused",
            "Requests the router refused, by tenant, class and reason",
            self.tenant_refused.clone(),
        );
    }

    pub(super) fn replica(&self, pool: &str, replica: &str) -> ReplicaHandles {
        let (pool, replica) = (pool.to_owned(), replica.to_owned());
        let label = ReplicaLabel { pool: pool.clone(), replica: replica.clone() };
        let total = ["false", "true"].map(|stream| {
            let (pool, replica) = (pool.clone(), replica.clone());
            self.total.get_or_create_owned(&ReplicaStreamLabel { pool, replica, stream })
        });
        let tokens = TOKEN_TYPES.map(|token_type| {
            let (pool, replica) = (pool.clone(), replica.clone());
            self.tokens.get_or_create_owned(&ReplicaTokenLabel { pool, replica, token_type })
        });
        ReplicaHandles {
            first_token: self.first_token.get_or_create_owned(&label),
            gap: self.gap.get_or_create_owned(&label),
            total,
            tokens,
            errors: self.errors.clone(),
            label,
        }
    }

    /// Forgets a replica that is gone.
    pub(super) fn forget(&self, pool: &str, replica: &str) {
        let (pool, replica) = (pool.to_owned(), replica.to_owned());
        let label = ReplicaLabel { pool: pool.clone(), replica: replica.clone() };
        self.first_token.remove(&label);
        self.gap.remove(&label);
        for stream in ["false", "true"] {
            let (pool, replica) = (pool.clone(), replica.clone());
            self.total.remove(&ReplicaStreamLabel { pool, replica, stream });
        }
        for token_type in TOKEN_TYPES {
            let (pool, replica) = (pool.clone(), replica.clone());
            self.tokens.remove(&ReplicaTokenLabel { pool, replica, token_type });
        }
        for reason in REASONS {
            let (pool, replica) = (pool.clone(), replica.clone());
            self.errors.remove(&ReplicaReasonLabel { pool, replica, reason });
        }
    }

    fn tenant(&self, pool: &str, tenant: &str, class: &str) -> TenantHandles {
        let own = || (pool.to_owned(), tenant.to_owned(), class.to_owned());
        let answered = STATUS_CLASSES.map(|status_class| {
            let (pool, tenant, class) = own();
            let label = TenantStatusLabel { pool, tenant, class, status_class };
            self.tenant_requests.get_or_create_owned(&label)
        });
        let tokens = TOKEN_TYPES.map(|token_type| {
            let (pool, tenant, class) = own();
            let label = TenantTokenLabel { pool, tenant, class, token_type };
            self.tenant_tokens.get_or_create_owned(&label)
        });
        TenantHandles { answered, tokens, tenant: tenant.to_owned() }
    }
}

fn add_tokens(counters: &[Counter; 3], usage: Usage) {
    for (counter, count) in counters.iter().zip([usage.input, usage.cached, usage.output]) {
        counter.inc_by(count.unwrap_or(0).into());
    }
}

impl ReplicaHandles {
    pub fn on_served(&self, it: &ServedRequest) {
        if let Some(first_token) = it.first_token {
            self.first_token.observe(first_token.as_secs_f64());
        }
        if let Some(gap) = it.gap {
            self.gap.observe(gap.as_secs_f64());
        }
        self.total[usize::from(it.stream)].observe(it.total.as_secs_f64());
        add_tokens(&self.tokens, it.usage);
    }

    /// Counts a try that failed there.
    pub fn on_error(&self, reason: &'static str) {
        debug_assert!(REASONS.contains(&reason), "{reason} is forgotten with its replica");
        let ReplicaLabel { pool, replica } = self.label.clone();
        self.errors.get_or_create(&ReplicaReasonLabel { pool, replica, reason }).inc();
    }
}

impl TenantMetrics {
    pub(super) fn new(pool: &str, families: Arc<ServedFamilies>) -> Self {
        Self { pool: pool.to_owned(), families, handles: Arc::default() }
    }

    /// Counts a request of a tenant and a class, each by its number and its name.
    pub fn on_ended(
        &self,
        (tenant_id, tenant): (u64, &str),
        (class_id, class): (u8, &str),
        it: &ServedRequest,
    ) {
        let handles = self.find((tenant_id, class_id), tenant, class);
        handles.answered[class_of(it.status)].inc();
        add_tokens(&handles.tokens, it.usage);
        if let Some(reason) = it.refused {
            let (pool, tenant) = (self.pool.clone(), handles.tenant.clone());
            let label = TenantReasonLabel { pool, tenant, class: class.to_owned(), reason };
            self.families.tenant_refused.get_or_create(&label).inc();
        }
    }

    fn find(&self, key: (u64, u8), tenant: &str, class: &str) -> Arc<TenantHandles> {
        // Handles are only added, each whole.
        let known = self.handles.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let mut all = self.handles.write().unwrap_or_else(PoisonError::into_inner);
            let mut named: Vec<u64> = all.keys().map(|it| it.0).collect();
            named.dedup();
            let is_shown = named.contains(&key.0) || named.len() < TENANTS_SHOWN_MAX;
            if !is_shown {
                // Not kept: there may be any number of them.
                return Arc::new(self.families.tenant(&self.pool, "other", class));
            }
            let made = || Arc::new(self.families.tenant(&self.pool, tenant, class));
            Arc::clone(all.entry(key).or_insert_with(made))
        })
    }
}
