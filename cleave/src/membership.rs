//! The replicas of each pool: those that the configuration lists, and those that were discovered.
//! Either may change while the router runs; whenever one does, the router takes on the whole of
//! both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_io::config::Config;
use cleave_io::discovery::{self, FoundReplica, Source, SourceEvent, SourceTrouble};
use cleave_io::proxy::{Hosting, PoolSettings, ReplicaSettings, Router, Tenants};
use cleave_io::replicas::Access;
use cleave_io::telemetry::Incident;
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
    found: Vec<FoundReplica>,
    /// Whether the source was ever read.
    is_read: bool,
    /// A class that a replica names and the pool does not know, as it was told.
    unknown_class: Option<String>,
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
        if let (Some(sharing), Some(cluster)) = (self.router.sharing(), &config.cluster) {
            sharing.renew_tls(cluster.tls.as_ref());
        }
        self.router.set_certificates(&config.certificates);
        self.router.apply(state.pools(), state.tenants.clone());
    }

    fn watch(self: &Arc<Self>, pool: String, source: Source) -> Watch {
        let end = CancellationToken::new();
        let (own, watched, ended) = (Arc::clone(self), source.clone(), end.clone());
        let watching = move || {
            let (own, pool) = (Arc::clone(&own), pool.clone());
            let (watched, ended) = (watched.clone(), ended.clone());
            async move {
                let tell = |event| own.on_source(&pool, event);
                ended.run_until_cancelled(discovery::watch(watched, tell)).await;
            }
        };
        self.tasks.spawn(Arc::clone(&self.router).keep_up("discovery", watching));
        let (found, is_read, unknown_class) = Default::default();
        Watch { source, found, is_read, unknown_class, end }
    }

    fn on_source(&self, pool: &str, event: SourceEvent) {
        let (state, trouble) = match event {
            SourceEvent::Found(there) => return self.on_found(pool, there),
            SourceEvent::Failed(trouble) => ("failing", Some(trouble)),
            SourceEvent::Doubtful(trouble) => ("doubtful", Some(trouble)),
            SourceEvent::Mended => ("mended", None),
        };
        self.publish(pool, state, trouble);
    }

    fn publish(&self, pool: &str, state: &'static str, trouble: Option<SourceTrouble>) {
        self.router.events.publish(Incident {
            kind: "discovery",
            pool: Some(pool.to_owned()),
            state,
            alert: trouble.is_some(),
            reason: trouble.as_ref().map(|it| it.word),
            detail: trouble.map(|it| it.detail),
            ..Incident::default()
        });
    }

    fn on_found(&self, pool: &str, there: Vec<FoundReplica>) {
        let mut state = self.lock();
        let unknown = state.unknown_class(pool, &there);
        let Some(watch) = state.watches.get_mut(pool) else { return };
        (watch.found, watch.is_read) = (there, true);
        let is_news = watch.unknown_class != unknown;
        watch.unknown_class.clone_from(&unknown);
        self.router.apply(state.pools(), state.tenants.clone());
        drop(state);
        if let Some(detail) = unknown.filter(|_| is_news) {
            self.publish(pool, "doubtful", Some(SourceTrouble { word: "class", detail }));
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
            let listed: BTreeSet<_> = pool.replicas.iter().map(|it| it.origin.clone()).collect();
            pool.is_whole = watch.is_read;
            // What the configuration says of a replica counts.
            let found = watch.found.iter().filter(|it| !listed.contains(&it.origin));
            let access = access_of(&pool.access, &watch.source);
            let found: Vec<_> = found.map(|it| replica(pool, it, access.clone())).collect();
            pool.replicas.extend(found);
        }
        pools
    }

    /// Says which class a replica names that its pool does not know, if one does.
    fn unknown_class(&self, pool: &str, there: &[FoundReplica]) -> Option<String> {
        let pool = self.configured.iter().find(|it| it.name == pool)?;
        let known = &pool.classes.named;
        let mut named = there.iter().filter_map(|it| Some((it.class.as_deref()?, it)));
        let (class, it) = named.find(|(class, _)| !known.contains_key(*class))?;
        let known: Vec<&str> = known.keys().map(String::as_str).collect();
        Some(format!(
            "{} names the class {class}, which is not known here ({}); it is priced as the pool's others",
            it.origin,
            known.join(", ")
        ))
    }
}

/// Makes of a replica that was found what its pool needs.
fn replica(pool: &PoolSettings, found: &FoundReplica, access: Access) -> ReplicaSettings {
    let named = found.class.as_ref().and_then(|it| pool.classes.named.get(it));
    let hosting = Hosting {
        unit: found.unit.clone(),
        name: found.name.clone(),
        process: found.process.clone(),
        is_ready: found.is_ready,
    };
    ReplicaSettings {
        origin: found.origin.clone(),
        weight: found.weight,
        hardware: Arc::clone(named.unwrap_or(&pool.classes.usual)),
        zone: found.zone.clone(),
        access,
        hosting,
    }
}
