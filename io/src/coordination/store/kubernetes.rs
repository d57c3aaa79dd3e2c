//! Kubernetes as the store: the seat is a Lease, and what is kept is in a `ConfigMap` of the same name. The API server
//! changes one object at a time, so a write cannot be compared with the Lease. Instead a router that takes the seat
//! writes its term into the `ConfigMap` before it leads, and every write names the version of the `ConfigMap` that it
//! goes on from: from then on whatever the leader before still sends is refused.
//!
//! A router that does not lead asks for the Lease and writes nothing; a lease of its own, as etcd gives one, is only a
//! number here. When the Lease of another is over is in `core/cluster/observed.rs`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use cleave_core::cluster::{ObservedLease, SeatHolder, StoreAnswer, kept_name, read_kept_name};
use cleave_core::domain::{Moment, RouterId};
use cleave_core::protocol::{
    LeaseChange, MapChange, ObjectLease, ObjectMap, read_lease, read_map, write_lease, write_map,
};

use super::client::{StoreError, read_holder, write_holder};
use super::settings::KubernetesStoreSettings;
use crate::discovery::{KubernetesObjects, ObjectKind};

/// All that a `ConfigMap` holds is 1 MiB; this leaves room for what surrounds it.
const MAP_BYTES_MAX: usize = (1 << 20) - (16 << 10);
/// The longest name of an entry.
const ENTRY_NAME_MAX: usize = 253;
/// How often is tried where another writer was faster.
const TRIES_MAX: u32 = 2;
const RIGHTS: &str = "to share a store, grant get and patch on the Lease and the ConfigMap that \
                      cluster.kubernetes.name names, and create on leases and configmaps \
                      (deploy/kubernetes/overlays/three-routers/rbac.yaml)";

/// The seat, while this router has it.
struct OwnSeat {
    /// The number of the lease under which it was taken.
    lease: i64,
    /// The version of the Lease that this router wrote last.
    version: String,
    term: i64,
    holder: String,
    /// The version of the `ConfigMap`, once this router's term stands in it.
    map: Option<String>,
}

impl OwnSeat {
    /// What stands in the `ConfigMap` while this router leads.
    fn writer(&self) -> String {
        format!("{} {}", self.term, self.holder)
    }
}

/// A client of the API server for one Lease and one `ConfigMap`.
pub(super) struct KubernetesClient {
    settings: KubernetesStoreSettings,
    /// Opened when it is needed, and anew after a failure, because credentials change.
    objects: Option<KubernetesObjects>,
    observed: ObservedLease,
    leases: i64,
    /// The number of the lease that this router believes in.
    granted: Option<i64>,
    seat: Option<OwnSeat>,
}

impl KubernetesClient {
    pub(super) fn new(settings: KubernetesStoreSettings) -> Self {
        let observed = ObservedLease::default();
        Self { settings, objects: None, observed, leases: 0, granted: None, seat: None }
    }

    /// Numbers a lease; it means nothing to others before the seat is taken under it.
    pub(super) fn grant(&mut self) -> StoreAnswer {
        self.leases += 1;
        (self.granted, self.seat) = (Some(self.leases), None);
        StoreAnswer::Granted { lease: self.leases, ttl: self.trusted() }
    }

    /// Renews the Lease, where this router has it.
    pub(super) async fn renew(&mut self, lease: i64) -> Result<StoreAnswer, StoreError> {
        let over = StoreAnswer::Renewed { ttl: Duration::ZERO };
        if self.granted != Some(lease) {
            return Ok(over);
        }
        let Some(seat) = &self.seat else {
            return Ok(StoreAnswer::Renewed { ttl: self.trusted() });
        };
        let (version, holder, term) = (seat.version.clone(), seat.holder.clone(), seat.term);
        let renewed = self.put_lease(Some(&version), Some(&holder), term, false).await?;
        let Some(renewed) = renewed else {
            self.forget();
            return Ok(over);
        };
        if let Some(seat) = &mut self.seat {
            seat.version = renewed.version;
        }
        Ok(StoreAnswer::Renewed { ttl: self.trusted() })
    }

    /// Gives the Lease back, so that another router leads at once.
    pub(super) async fn revoke(&mut self) -> Result<(), StoreError> {
        let Some(seat) = self.seat.take() else { return Ok(()) };
        // The version is asked for: a renewal may have been under way.
        if let Some(there) = self.lease().await?.filter(|it| it.holder == seat.holder) {
            self.put_lease(Some(&there.version), None, there.term, false).await?;
        }
        Ok(())
    }

    /// Takes the Lease if it is free or over, and says which router has it.
    pub(super) async fn campaign(
        &mut self,
        own: RouterId,
        address: &str,
        lease: i64,
        now: impl Fn() -> Moment,
    ) -> Result<StoreAnswer, StoreError> {
        if self.granted != Some(lease) {
            return Ok(StoreAnswer::NoLease);
        }
        if let Some(OwnSeat { term: revision, .. }) = self.seat {
            // The renewal before this question has shown it.
            return Ok(StoreAnswer::Seat(Some(SeatHolder { router: own, revision, lease })));
        }
        let holder = write_holder(own, address);
        for _ in 0..TRIES_MAX {
            let there = self.lease().await?;
            if let Some(it) = &there {
                let ttl = Duration::from_secs(it.seconds.into());
                let is_over = self.observed.is_over(now(), &it.version, ttl);
                // One that this router took and lost sight of is taken anew.
                if !it.holder.is_empty() && it.holder != holder && !is_over {
                    let seat = read_holder(&it.holder);
                    let seat =
                        seat.map(|router| SeatHolder { router, revision: it.term, lease: 0 });
                    return Ok(StoreAnswer::Seat(seat));
                }
            }
            if let Some(revision) = self.take(there, &holder, lease).await? {
                return Ok(StoreAnswer::Seat(Some(SeatHolder { router: own, revision, lease })));
            }
        }
        Ok(StoreAnswer::Seat(None))
    }

    /// Takes the Lease; none where another writer was faster.
    async fn take(
        &mut self,
        there: Option<ObjectLease>,
        holder: &str,
        lease: i64,
    ) -> Result<Option<i64>, StoreError> {
        // Terms grow also where the Lease was deleted.
        let written = self.map().await?.map_or(0, |it| term_of(&it.writer));
        let term = there.as_ref().map_or(0, |it| it.term).max(written).saturating_add(1);
        let version = there.map(|it| it.version);
        let taken = self.put_lease(version.as_deref(), Some(holder), term, true).await?;
        let Some(ObjectLease { version, .. }) = taken else { return Ok(None) };
        self.seat = Some(OwnSeat { lease, version, term, holder: holder.to_owned(), map: None });
        Ok(Some(term))
    }

    /// Reads what is kept; a router that has the seat writes its term there.
    pub(super) async fn read(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let there = self.map().await?;
        let Some((writer, term)) = self.seat.as_ref().map(|it| (it.writer(), it.term)) else {
            return Ok(names(there.unwrap_or_default().entries));
        };
        let version = match there.as_ref() {
            Some(it) if it.writer == writer => Some(it.version.clone()),
            Some(it) if term < term_of(&it.writer) => return Err(StoreError::Overtaken),
            _ => self.put_map(there.as_ref().map(|it| it.version.as_str()), &writer, None).await?,
        };
        let Some(version) = version else { return Err(StoreError::Overtaken) };
        if let Some(seat) = &mut self.seat {
            seat.map = Some(version);
        }
        Ok(names(there.unwrap_or_default().entries))
    }

    /// Writes a value if this router's term stands in the `ConfigMap`; tells whether it does.
    pub(super) async fn write(
        &mut self,
        fence: i64,
        name: &str,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let seat =
            self.seat.as_ref().filter(|it| it.term == fence && self.granted == Some(it.lease));
        let known = seat.and_then(|it| Some((it.writer(), it.map.clone()?)));
        let Some((writer, mut version)) = known else {
            self.forget();
            return Ok(false);
        };
        let name = kept_name(name);
        for _ in 0..TRIES_MAX {
            let entry = Some((name.as_str(), value));
            if let Some(written) = self.put_map(Some(&version), &writer, entry).await? {
                if let Some(seat) = &mut self.seat {
                    seat.map = Some(written);
                }
                return Ok(true);
            }
            // Another hand may have changed it, as an operator's, that is no leader.
            match self.map().await? {
                Some(there) if there.writer == writer => version = there.version,
                Some(_) | None => break,
            }
        }
        self.forget();
        Ok(false)
    }

    /// Connects anew for the next question.
    pub(super) fn reset(&mut self) {
        self.objects = None;
    }

    /// For how long this router may rely on what it wrote.
    fn trusted(&self) -> Duration {
        ObservedLease::trusted(self.settings.lease)
    }

    /// Steps down; the next lease has another number, and the seat is taken anew under it.
    fn forget(&mut self) {
        (self.granted, self.seat) = (None, None);
    }

    async fn lease(&mut self) -> Result<Option<ObjectLease>, StoreError> {
        let found = self.read_object(ObjectKind::Lease).await?;
        found.map(|it| read_lease(&it)).transpose().map_err(|_| StoreError::Answer)
    }

    async fn map(&mut self) -> Result<Option<ObjectMap>, StoreError> {
        let found = self.read_object(ObjectKind::ConfigMap).await?;
        found.map(|it| read_map(&it)).transpose().map_err(|_| StoreError::Answer)
    }

    async fn put_lease(
        &mut self,
        version: Option<&str>,
        holder: Option<&str>,
        term: i64,
        is_taken: bool,
    ) -> Result<Option<ObjectLease>, StoreError> {
        let now = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let seconds = u32::try_from(self.settings.lease.as_secs()).unwrap_or(u32::MAX);
        let name = self.settings.name.clone();
        let change =
            LeaseChange { name: &name, version, holder, seconds, term, now: &now, is_taken };
        let body = write_lease(change);
        let put = self.put(ObjectKind::Lease, version.is_none(), body).await?;
        put.map(|it| read_lease(&it)).transpose().map_err(|_| StoreError::Answer)
    }

    /// Writes into the `ConfigMap`; returns its new version.
    async fn put_map(
        &mut self,
        version: Option<&str>,
        writer: &str,
        entry: Option<(&str, &[u8])>,
    ) -> Result<Option<String>, StoreError> {
        let name = self.settings.name.clone();
        let body = write_map(MapChange { name: &name, version, writer, entry });
        let put = self.put(ObjectKind::ConfigMap, version.is_none(), body).await?;
        let map = put.map(|it| read_map(&it)).transpose().map_err(|_| StoreError::Answer)?;
        Ok(map.map(|it| it.version))
    }

    async fn read_object(&mut self, kind: ObjectKind) -> Result<Option<Vec<u8>>, StoreError> {
        let name = self.settings.name.clone();
        let answer = self.objects().await?.read(kind, &name).await;
        answer.map_err(|trouble| self.failed(trouble))
    }

    async fn put(
        &mut self,
        kind: ObjectKind,
        is_new: bool,
        body: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let name = self.settings.name.clone();
        let objects = self.objects().await?;
        let answer = if is_new {
            objects.create(kind, body).await
        } else {
            objects.change(kind, &name, body).await
        };
        answer.map_err(|trouble| self.failed(trouble))
    }

    fn failed(&mut self, trouble: crate::discovery::SourceTrouble) -> StoreError {
        self.reset();
        trouble.into()
    }

    async fn objects(&mut self) -> Result<&KubernetesObjects, StoreError> {
        if self.objects.is_none() {
            let KubernetesStoreSettings { kubeconfig, namespace, .. } = &self.settings;
            let opening =
                KubernetesObjects::open(kubeconfig.as_deref(), namespace.as_deref(), RIGHTS);
            self.objects = Some(opening.await?);
        }
        self.objects.as_ref().ok_or(StoreError::Answer)
    }
}

/// The term that a router wrote into the `ConfigMap`.
fn term_of(writer: &str) -> i64 {
    writer.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn names(entries: BTreeMap<String, Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    entries.into_iter().filter_map(|(name, it)| Some((read_kept_name(&name)?, it))).collect()
}

/// Says why there is no room for a value beside what is kept, and what to do.
pub(super) fn overflow(
    kept: &BTreeMap<String, Vec<u8>>,
    name: &str,
    value: &[u8],
) -> Option<String> {
    let written = kept_name(name);
    if ENTRY_NAME_MAX < written.len() {
        return Some(format!("{written} is too long a name; give the pool a shorter one"));
    }
    let others = kept.iter().filter(|it| it.0 != name).map(|it| it.0.len() + it.1.len());
    let bytes = others.sum::<usize>() + written.len() + value.len();
    (MAP_BYTES_MAX < bytes).then(|| {
        format!(
            "with it the ConfigMap would have {bytes} bytes, and Kubernetes takes 1 MiB; \
             use cluster.store = \"etcd\", or fewer pools for each cluster of routers"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_its_remedy() {
        let kept: BTreeMap<String, Vec<u8>> =
            [("pools/a/plan".to_owned(), vec![0; 600_000])].into();
        let fits = |name: &str, bytes: usize| overflow(&kept, name, &vec![0; bytes]);
        assert_eq!(fits("pools/a/orders", 400_000), None);
        assert_eq!(fits("pools/a/plan", 1_000_000), None, "it takes the place of what is there");
        let full = fits("pools/b/plan", 500_000).unwrap();
        assert!(full.contains("1 MiB") && full.contains("etcd"), "{full}");
        let long = format!("pools/{}/plan", "ü".repeat(100));
        assert!(fits(&long, 1).unwrap().contains("a shorter one"));
    }

    #[test]
    fn a_writer_says_its_term() {
        assert_eq!((term_of("12 00ff a:1"), term_of(""), term_of("x 1")), (12, 0, 0));
    }
}
