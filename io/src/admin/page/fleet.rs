//! What does not change from one look to the next: pools, their models and classes, and the names of their replicas.

use cleave_core::brain::LeaveCause;
use serde::Serialize;

use crate::proxy::{LiveMember, Pool, Router};

use super::assets;

/// The first thing that the page is told, and told again when it changes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FleetNames {
    version: &'static str,
    /// The page that this router serves; one that says otherwise of itself is another's.
    page: String,
    /// The id of this router; null for one that is alone.
    router: Option<String>,
    /// The share of requests whose decision is kept.
    explained: f64,
    /// Pools that are to be shown side by side.
    compared: Vec<String>,
    sample_seconds: u32,
    /// What a session can leave its replica for, in the order of the counts.
    causes: [&'static str; LeaveCause::ALL.len()],
    pools: Vec<FleetPool>,
}

#[derive(Clone, Debug, Serialize)]
struct FleetPool {
    name: String,
    policy: &'static str,
    parts: String,
    models: Vec<String>,
    classes: Vec<FleetClass>,
    replicas: Vec<FleetReplica>,
}

/// What a class promises.
#[derive(Clone, Debug, Serialize)]
struct FleetClass {
    name: String,
    first_token_ms: Option<u128>,
    wait_max_ms: u128,
}

#[derive(Clone, Debug, Serialize)]
struct FleetReplica {
    url: String,
    class: String,
    zone: Option<String>,
    weight: f64,
}

impl FleetNames {
    pub(super) fn of(router: &Router, compared: &[String]) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            page: assets::build(),
            router: router.sharing().map(|it| it.router().to_string()),
            explained: router.explanations.sample(),
            compared: compared.to_vec(),
            sample_seconds: router.flow.sample_seconds(),
            causes: LeaveCause::ALL.map(LeaveCause::as_str),
            pools: router.pools().iter().map(|it| FleetPool::of(it)).collect(),
        }
    }
}

impl FleetPool {
    fn of(pool: &Pool) -> Self {
        let classes = pool.classes().iter().map(|(id, it)| FleetClass {
            name: it.name.clone(),
            first_token_ms: pool.classes().promise(id).first_token.map(|it| it.as_millis()),
            wait_max_ms: it.wait_max.as_millis(),
        });
        let replica = |it: LiveMember| FleetReplica {
            url: it.url,
            class: it.class,
            zone: it.zone,
            weight: it.weight,
        };
        Self {
            name: pool.name.clone(),
            policy: pool.snapshot().policy.as_str(),
            parts: pool.parts(),
            models: pool.models(),
            classes: classes.collect(),
            replicas: pool.live_members().into_iter().map(replica).collect(),
        }
    }
}
