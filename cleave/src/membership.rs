//! The replicas of each pool: those that the configuration lists, and those that were discovered.
//! Either may change while the router runs; whenever one does, the router takes on the whole of
//! both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_io::config::Config;
use cleave_io::discovery::{self, Source};
use cleave_io::proxy::{PoolSettings, ReplicaSettings, Router, Tenants};
use cleave_io::replicas::{Access, Origin};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) struct Membership {
    pub(crate) router: Arc<Router>,
    state: Mutex<MembershipState>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct MembershipState {
    configured: Vec<PoolSettings>,
    tenants: Tenants,
    /// By the pool's name.
    watches: BTreeMap<String, Watch>,
}

struct Watch {
    source: Source,
    found: Vec<Origin>,
    end: CancellationToken,
}

impl Membership {
    pub(crate) fn new(router: Arc<Router>) -> Arc<Self> {
        Arc::new(Self { router, state: Mutex::default(), tasks: TaskTracker::new() })
    }

    /// Takes on the configuration, at the start or later. Needs a tokio runtime.
    pub(crate) fn configure(self: &Arc<Self>, config: &Config) {
        let mut state = self.lock();
        state.configured.clone_from(&config.pools);
        state.tenants.clone_from(&config.tenants);
        state.watches.retain(|pool, watch| {
            let stays = config.discover.get(pool) == Some(&watch.source);
            if !stays {
                watch.end.cancel();
            }
            stays
        });
        for (pool, source) in &config.discover {
            if !state.watches.contains_key(pool) {
                let watch = self.watch(pool.clone(), source.clone());
                state.watches.insert(pool.clone(), watch);
            }
        }
        self.router.renew_certificate(config.proxy.tls.as_ref());
        self.router.renew_admin_certificate(config.admin.tls.as_ref());
        self.router.apply(state.pools(), state.tenants.clone());
    }

    fn watch(self: &Arc<Self>, pool: String, source: Source) -> Watch {
        let end = CancellationToken::new();
        let (own, watched, ended) = (Arc::clone(self), source.clone(), end.clone());
        let watching = move || {
            let (own, pool) = (Arc::clone(&own), pool.clone());
            let (watched, ended) = (watched.clone(), ended.clone());
            async move {
                let found = |there| own.on_found(&pool, there);
                ended.run_until_cancelled(discovery::watch(watched, found)).await;
            }
        };
        self.tasks.spawn(Arc::clone(&self.router).keep_up("discovery", watching));
        Watch { source, found: Vec::new(), end }
    }

    fn on_found(&self, pool: &str, there: Vec<Origin>) {
        let mut state = self.lock();
        if let Some(watch) = state.watches.get_mut(pool) {
            watch.found = there;
            self.router.apply(state.pools(), state.tenants.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, MembershipState> {
        // Every change is a whole value put in place of another.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What opens a replica that was found: one that is found by the address of a name shows that name.
fn access_of(access: &Access, source: &Source) -> Access {
    let tls = access.tls.as_ref().map(|it| match source.server_name() {
        Some(name) => Arc::new(it.named(name)),
        None => Arc::clone(it),
    });
    Access { tls, ..access.clone() }
}

impl MembershipState {
    fn pools(&self) -> Vec<PoolSettings> {
        let mut pools = self.configured.clone();
        for pool in &mut pools {
            let Some(watch) = self.watches.get(&pool.name) else { continue };
            for origin in &watch.found {
                // What the configuration says of a replica counts.
                if pool.replicas.iter().all(|it| it.origin != *origin) {
                    let (origin, hardware, zone) = (origin.clone(), Arc::default(), None);
                    let access = access_of(&pool.access, &watch.source);
                    let (weight, found) = (1.0, &mut pool.replicas);
                    found.push(ReplicaSettings { origin, weight, hardware, zone, access });
                }
            }
        }
        pools
    }
}
