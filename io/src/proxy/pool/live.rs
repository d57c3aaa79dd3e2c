//! What the page sees of a pool: figures twice a second, and names when they change.

use std::collections::BTreeMap;
use std::time::Duration;

use cleave_core::brain::{LiveView, WaitingGroup};
use cleave_core::domain::{ReplicaId, SliceKey};

use crate::proxy::flow::{Lately, RefusedKind};

use super::Pool;

/// What does not change of a replica from one look to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveMember {
    pub id: ReplicaId,
    pub url: String,
    pub class: String,
    pub zone: Option<String>,
    pub weight: f64,
}

impl Pool {
    /// Shows it in figures.
    pub fn live(&self) -> LiveView {
        self.look(cleave_core::brain::Brain::live)
    }

    /// Names its replicas, in the order of their figures.
    pub fn live_members(&self) -> Vec<LiveMember> {
        let (zones, load) = (self.zones(), self.load());
        let weights: BTreeMap<ReplicaId, f64> =
            self.snapshot().replicas.iter().map(|it| (it.id, it.weight)).collect();
        let member = |it: cleave_core::brain::ReplicaLoad| LiveMember {
            id: it.id,
            zone: zones.get(&it.name).cloned(),
            url: it.name,
            class: it.class,
            weight: weights.get(&it.id).copied().unwrap_or(0.0),
        };
        load.into_iter().map(member).collect()
    }

    /// Names one of its replicas.
    pub fn address_of(&self, replica: ReplicaId) -> Option<String> {
        let members = self.members.load();
        let at = members.binary_search_by_key(&replica, |it| it.id).ok()?;
        Some(members[at].origin.as_str().to_owned())
    }

    /// How its replicas do lately.
    pub fn lately(&self) -> BTreeMap<ReplicaId, Lately> {
        self.members.load().iter().map(|it| (it.id, it.flow.lately())).collect()
    }

    /// Groups the requests that wait by class, tenant and cause.
    pub fn waiting(&self) -> Vec<WaitingGroup> {
        self.look(cleave_core::brain::Brain::waiting)
    }

    /// What was refused since the start.
    pub fn refused(&self) -> Vec<(RefusedKind, u64)> {
        self.flow.refused()
    }

    /// Names the replica that served a session last, and says how long ago that was.
    pub fn session_home(&self, key: SliceKey) -> Option<(String, Duration)> {
        let home = self.look(|brain, now| brain.session_home(now, key))?;
        Some((self.address_of(home.replica)?, home.served))
    }
}
