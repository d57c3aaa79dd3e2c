//! The replicas of a pool: they join, change and leave as settings say, and are found by their
//! names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cleave_core::brain::{Event, Order};
use cleave_core::domain::{Place, ReplicaId};
use cleave_core::fleet::Probe;
use cleave_core::protocol::Model;
use twox_hash::XxHash3_64;

use crate::proxy::settings::{PoolSettings, ReplicaSettings};
use crate::replicas::Origin;

use super::member::HostingChange;
use super::{Member, Pool};

impl Pool {
    /// Takes on new settings: replicas come, change weight, or finish and leave. Returns those that
    /// came.
    pub(in crate::proxy) fn apply(&self, new: PoolSettings, ids: &AtomicU32) -> Vec<Arc<Member>> {
        let members = self.members();
        let present: BTreeMap<&Origin, &Arc<Member>> = members
            .iter()
            .filter(|it| !it.gone.is_cancelled())
            .map(|it| (&it.origin, it))
            .collect();
        let wanted: BTreeMap<&Origin, &ReplicaSettings> =
            new.replicas.iter().map(|it| (&it.origin, it)).collect();
        let old = self.spec();
        let before: BTreeMap<&Origin, &ReplicaSettings> =
            old.replicas.iter().map(|it| (&it.origin, it)).collect();
        // First those that leave: another one may come in at the same address.
        for (origin, member) in &present {
            let stays = |it: &&ReplicaSettings| !member.is_replaced_by(&it.hosting);
            if wanted.get(origin).is_none_or(|it| !stays(it)) {
                member.gone.cancel();
                self.tell(Event::Leaving { replica: member.id });
            }
        }
        let mut joined = Vec::new();
        for (origin, replica) in &wanted {
            match present.get(origin).filter(|it| !it.gone.is_cancelled()) {
                // Of thousands, few change at a time.
                Some(_) if before.get(origin) == Some(replica) => {}
                Some(member) => self.change(member, replica),
                None => joined.push(self.join(replica, ids)),
            }
        }
        self.spec.store(Arc::new(new));
        joined
    }

    /// Takes on what is said of a replica now.
    fn change(&self, member: &Member, new: &ReplicaSettings) {
        let replica = member.id;
        member.set_access(&new.access);
        self.tell(Event::Weighed { replica, weight: new.weight });
        self.tell(Event::Classed { replica, hardware: Arc::clone(&new.hardware) });
        self.tell_zone(replica, new);
        let HostingChange { is_restarted, is_ready } = member.set_hosting(&new.hosting);
        if is_restarted {
            self.tell(Event::Restarted { replica });
        }
        match is_ready {
            None => {}
            Some(false) => self.tell(Event::Probed { replica, probe: Probe::Unready }),
            Some(true) => member.probe_now.notify_one(),
        }
    }

    fn join(&self, replica: &ReplicaSettings, ids: &AtomicU32) -> Arc<Member> {
        let weight = replica.weight;
        let id = ReplicaId(ids.fetch_add(1, Relaxed));
        let handles = self.metrics.replica(replica.origin.as_str());
        let member = Member::new(id, replica, handles);
        // First a member, then a candidate: what can be chosen must be found.
        self.members.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(member.clone());
            all
        });
        let name = member.origin.as_str().to_owned();
        let hardware = Arc::clone(&replica.hardware);
        self.tell(Event::Joined { replica: member.id, name, weight, hardware });
        self.tell_zone(member.id, replica);
        member
    }

    fn tell_zone(&self, id: ReplicaId, replica: &ReplicaSettings) {
        // Names differ in their hashes, but for a chance of one in 2^32.
        let number = |it: &String| (XxHash3_64::oneshot(it.as_bytes()) >> 32).try_into().ok();
        let zone = replica.zone.as_ref().and_then(number);
        self.tell(Event::Ordered(Order::Zone { replica: id, zone }));
    }

    /// Names the zones of its replicas, by their address, as far as they are in one.
    pub fn zones(&self) -> BTreeMap<String, String> {
        let spec = self.spec.load();
        let zone = |it: &ReplicaSettings| Some((it.origin.as_str().to_owned(), it.zone.clone()?));
        spec.replicas.iter().filter_map(zone).collect()
    }

    /// Tells whether a replica at this place belongs to the pool.
    pub(in crate::proxy) fn has_member_at(&self, place: Place) -> bool {
        self.members.load().iter().any(|it| it.place == place && !it.gone.is_cancelled())
    }

    /// Finds a replica by its address, with or without the scheme.
    pub fn find(&self, address: &str) -> Option<ReplicaId> {
        let members = self.members.load();
        let found = members.iter().filter(|it| !it.gone.is_cancelled());
        let named =
            |it: &&Arc<Member>| it.origin.as_str() == address || it.origin.authority() == address;
        found.into_iter().find(named).map(|it| it.id)
    }

    /// The model by which a replica is asked for a token: the first it lists, or is known to serve.
    pub(in crate::proxy) fn model_of(&self, member: &Member) -> String {
        let listed = member.models.load().first().map(|it| it.id.clone());
        listed.or_else(|| self.spec.load().models.first().cloned()).unwrap_or_default()
    }

    /// Tells whether a replica that lists these models belongs here: it serves something that the pool
    /// is configured to serve or, failing that, that another of its replicas serves.
    pub(in crate::proxy) fn is_served_by(&self, member: &Member, models: &[Model]) -> bool {
        let spec = self.spec.load();
        let configured = || spec.models.iter().any(|id| models.iter().any(|it| it.id == *id));
        if !spec.models.is_empty() || models.is_empty() {
            return models.is_empty() || configured();
        }
        let members = self.members.load();
        let others: Vec<_> = members
            .iter()
            .filter(|it| it.id != member.id)
            .map(|it| it.models.load_full())
            .filter(|it| !it.is_empty())
            .collect();
        let shares =
            |theirs: &Vec<Model>| theirs.iter().any(|it| models.iter().any(|own| own.id == it.id));
        others.is_empty() || others.iter().any(|it| shares(it))
    }

    pub(super) fn release(&self, replica: ReplicaId) {
        let members = self.members.load();
        let gone = members.iter().find(|it| it.id == replica);
        let is_same = |it: &&Arc<Member>| {
            it.id != replica && gone.is_some_and(|gone| gone.origin == it.origin)
        };
        // One that left and came back at the same address goes on counting.
        if let Some(gone) = gone.filter(|_| !members.iter().any(|it| is_same(&it))) {
            self.metrics.forget(gone.origin.as_str());
        }
        self.members
            .rcu(|all| all.iter().filter(|it| it.id != replica).cloned().collect::<Vec<_>>());
    }
}
