//! Follows the pods of one cluster: a list, then watches that go on from each other, and a list again now and then.
//! Whatever fails, what is known stays: it is tried again, ever more slowly. A version that is too old means a new
//! list, but never one right after another: many routers that lost their watch together must not bring the API
//! server down together.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use cleave_core::protocol::PodChange;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use uuid::Uuid;

use super::api::{Api, ApiError, Changes, POD_RIGHTS, POOL_RIGHTS};
use super::roster::{Listing, PODS_MAX, Roster};
use super::settings::{EnginePort, KubernetesSettings};
use crate::discovery::found::{Failures, SourceEvent, SourceTrouble};

/// The pause after a failure doubles from the first to the second.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The least time between two lists.
const LIST_PAUSE: Duration = Duration::from_secs(2);
/// How often everything is listed again, in case a watch lost something.
const RELIST: Duration = Duration::from_secs(10 * 60);
/// Changes within this time are told together: a rollout changes many pods at once.
const GATHER: Duration = Duration::from_millis(50);
/// The least time between two looks at the zones of nodes.
const ZONES_PAUSE: Duration = Duration::from_secs(30);
/// How often an `InferencePool` is looked at.
const POOL_LOOK: Duration = Duration::from_secs(10);
/// A watch that ends sooner than this was cut.
const WATCH_MIN: Duration = Duration::from_secs(1);

pub(super) struct Follower<'a> {
    /// What is watched; an `InferencePool` changes selector and port.
    settings: KubernetesSettings,
    kubeconfig: Option<&'a Path>,
    /// Which cluster this is, and where to tell what happens there.
    number: usize,
    tell: mpsc::Sender<(usize, SourceEvent)>,
    roster: Roster,
    zones: BTreeMap<String, String>,
    zones_asked_at: Option<Instant>,
    /// From where the next watch goes on; `None` if a list is needed.
    version: Option<String>,
    listed_at: Option<Instant>,
    relist_at: Instant,
    /// When the `InferencePool` is looked at again, where there is one.
    look_at: Option<Instant>,
    /// Target ports of the `InferencePool` that are not used.
    ports_unused: usize,
    failures: Failures,
    doubt: Option<SourceTrouble>,
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        settings: &'a KubernetesSettings,
        kubeconfig: Option<&'a Path>,
        number: usize,
        tell: mpsc::Sender<(usize, SourceEvent)>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            kubeconfig,
            number,
            tell,
            roster: Roster::default(),
            zones: BTreeMap::new(),
            zones_asked_at: None,
            version: None,
            listed_at: None,
            relist_at: Instant::now(),
            look_at: None,
            ports_unused: 0,
            failures: Failures::default(),
            doubt: None,
        }
    }

    /// Follows the cluster for ever.
    pub(super) async fn run(mut self) {
        loop {
            let Err(error) = self.session().await;
            match error {
                ApiError::Expired | ApiError::Conflict => self.version = None,
                ApiError::Trouble(trouble) => {
                    if self.failures.on_failure() {
                        self.send(SourceEvent::Failed(trouble)).await;
                    }
                    let doublings = self.failures.count().saturating_sub(1).min(16);
                    sleep(jittered((RETRY_MIN * (1 << doublings)).min(RETRY_MAX))).await;
                }
            }
        }
    }

    /// Lists and watches until something fails.
    async fn session(&mut self) -> Result<std::convert::Infallible, ApiError> {
        let rights = if self.settings.inference_pool.is_some() { POOL_RIGHTS } else { POD_RIGHTS };
        let mut api = Api::open(&self.settings, self.kubeconfig, rights).await?;
        self.look_at = None;
        loop {
            self.look_at_pool(&mut api).await?;
            if self.is_list_due() {
                self.list(&api).await?;
            }
            let version = self.version.clone().unwrap_or_default();
            let (began, mut changes) = (Instant::now(), api.watch(&version).await?);
            let brought = self.watch(&api, &mut changes).await?;
            if !brought && began.elapsed() < WATCH_MIN {
                let detail = "the API server ends the watch at once";
                return Err(ApiError::Trouble(SourceTrouble::new("cut", detail)));
            }
        }
    }

    /// Takes over what the `InferencePool` says, where there is one and it is time to look.
    async fn look_at_pool(&mut self, api: &mut Api) -> Result<(), ApiError> {
        let Some(name) = &self.settings.inference_pool else { return Ok(()) };
        if self.look_at.is_some_and(|it| Instant::now() < it) {
            return Ok(());
        }
        let pool = api.inference_pool(name).await?;
        self.look_at = Some(Instant::now() + jittered(POOL_LOOK));
        self.ports_unused = pool.ports.len().saturating_sub(1);
        let port = pool
            .ports
            .first()
            .map_or_else(|| self.settings.port.clone(), |it| EnginePort::Numbered(*it));
        if (&self.settings.selector, &self.settings.port) != (&pool.selector, &port) {
            (self.settings.selector, self.settings.port) = (pool.selector, port);
            self.version = None;
        }
        api.select(&self.settings.selector);
        Ok(())
    }

    fn is_list_due(&self) -> bool {
        self.version.is_none() || self.relist_at <= Instant::now()
    }

    async fn list(&mut self, api: &Api) -> Result<(), ApiError> {
        if let Some(listed_at) = self.listed_at {
            sleep_until(listed_at + jittered(LIST_PAUSE)).await;
        }
        self.listed_at = Some(Instant::now());
        let (mut listing, mut rest) = (Listing::default(), None);
        let version = loop {
            let page = api.list(rest.as_deref()).await?;
            if !listing.add(&page.pods, &self.settings) {
                let detail = format!("more than {PODS_MAX} pods match kubernetes.selector");
                return Err(ApiError::Trouble(SourceTrouble::new("too_many", detail)));
            }
            rest = page.rest;
            if rest.is_none() {
                break page.version;
            }
        };
        self.roster.replace(listing);
        self.version = Some(version);
        self.relist_at = Instant::now() + jittered(RELIST);
        self.on_works().await;
        self.tell_replicas(api).await;
        Ok(())
    }

    /// Takes in changes until the watch ends, or a list or a look at the `InferencePool` is due; tells whether anything
    /// came, or is due.
    async fn watch(&mut self, api: &Api, changes: &mut Changes) -> Result<bool, ApiError> {
        let (mut brought, mut tell_at) = (false, None::<Instant>);
        let due_at = self.look_at.map_or(self.relist_at, |it| it.min(self.relist_at));
        loop {
            let change = match timeout_at(tell_at.unwrap_or(due_at), changes.next()).await {
                Ok(change) => change,
                Err(_) if tell_at.take().is_some() => {
                    self.tell_replicas(api).await;
                    continue;
                }
                Err(_) => return Ok(true),
            };
            // What came before the failure is told before it.
            if tell_at.is_some() && !matches!(change, Ok(Some(_))) {
                self.tell_replicas(api).await;
            }
            let Some(change) = change? else { return Ok(brought) };
            if !brought {
                self.on_works().await;
            }
            brought = true;
            if self.take(change)? {
                tell_at = tell_at.or(Some(Instant::now() + GATHER));
            }
        }
    }

    /// Takes in a change; tells whether there is something to tell.
    fn take(&mut self, change: PodChange) -> Result<bool, ApiError> {
        let (version, tells) = match change {
            PodChange::Put(pod) => {
                if !self.roster.put(&pod, &self.settings) {
                    let detail = format!("more than {PODS_MAX} pods match kubernetes.selector");
                    return Err(ApiError::Trouble(SourceTrouble::new("too_many", detail)));
                }
                (pod.version, true)
            }
            PodChange::Gone { uid, version } => {
                self.roster.remove(&uid);
                (version, true)
            }
            PodChange::Mark { version } => (version, false),
            // The watch has made an error of it.
            PodChange::Ended(_) => (String::new(), false),
        };
        if !version.is_empty() {
            self.version = Some(version);
        }
        Ok(tells)
    }

    async fn tell_replicas(&mut self, api: &Api) {
        // A pod that ends is told before anything is asked.
        self.send(SourceEvent::Found(self.roster.replicas(&self.zones))).await;
        let trouble = if self.settings.node_zones { self.learn_zones(api).await } else { None };
        let doubt = self.roster.doubt(&self.settings).or(trouble).or_else(|| self.pool_doubt());
        if doubt != self.doubt {
            self.doubt.clone_from(&doubt);
            if let Some(doubt) = doubt {
                self.send(SourceEvent::Doubtful(doubt)).await;
            }
        }
    }

    /// Says so where an `InferencePool` has more ports than are used.
    fn pool_doubt(&self) -> Option<SourceTrouble> {
        (0 < self.ports_unused).then(|| {
            let detail = format!(
                "the InferencePool has {} target ports, and only the first one ({}) is used",
                self.ports_unused + 1,
                self.settings.port
            );
            SourceTrouble::new("target_ports", detail)
        })
    }

    /// Asks for the zones of nodes if some are not known, now and then.
    async fn learn_zones(&mut self, api: &Api) -> Option<SourceTrouble> {
        let is_due = self.zones_asked_at.is_none_or(|at| ZONES_PAUSE <= at.elapsed());
        let is_unknown = |node: &str| !self.zones.contains_key(node);
        if !is_due || !self.roster.unplaced_nodes().any(is_unknown) {
            return self.doubt.clone().filter(|it| it.word == "node_zones");
        }
        self.zones_asked_at = Some(Instant::now());
        match api.node_zones().await {
            Ok(zones) => {
                self.zones = zones;
                self.send(SourceEvent::Found(self.roster.replicas(&self.zones))).await;
            }
            Err(ApiError::Expired | ApiError::Conflict) => {}
            Err(ApiError::Trouble(it)) => {
                let detail =
                    format!("zones of nodes are not known (kubernetes.node_zones): {}", it.detail);
                return Some(SourceTrouble::new("node_zones", detail));
            }
        }
        None
    }

    async fn on_works(&mut self) {
        if self.failures.on_success() {
            self.send(SourceEvent::Mended).await;
        }
    }

    async fn send(&self, event: SourceEvent) {
        // The other end lives as long as this does.
        _ = self.tell.send((self.number, event)).await;
    }
}

/// Makes a pause a quarter longer or shorter by chance, so that routers do not ask together.
fn jittered(span: Duration) -> Duration {
    let [byte, ..] = *Uuid::new_v4().as_bytes();
    span.mul_f64(0.75 + f64::from(byte) / 510.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jittered_pause_is_at_most_a_quarter_off() {
        for _ in 0..100 {
            let pause = jittered(Duration::from_secs(100)).as_secs_f64();
            assert!((75.0..=125.0).contains(&pause), "{pause}");
        }
    }
}
