//! What the number of replicas is worked out from, and what is told the brain of it.

use std::time::Duration;

use cleave_core::brain::{Brain, Event, Order};
use cleave_core::domain::{Moment, Place, ReplicaId};
use cleave_core::scaling::{Holding, Sample};

use super::Pool;
use crate::proxy::scale::ScalingSettings;

/// A replica that scaling looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaledReplica {
    pub id: ReplicaId,
    pub address: String,
    /// What an orchestrator calls it.
    pub name: Option<String>,
    /// Whether it has taken requests.
    pub is_up: bool,
}

impl Pool {
    /// How many replicas it may have; nothing where that is not set.
    pub fn scaling(&self) -> Option<ScalingSettings> {
        self.spec.load().scaling.clone()
    }

    /// Tells whether all of its replicas are known. Before that nothing can be said of their number.
    pub fn is_whole(&self) -> bool {
        self.spec.load().is_whole
    }

    /// Tells the brain that the number of replicas follows the work, and when one that is asked for now is ready; or
    /// that it does not.
    pub fn follow_work(&self, ready_in: Option<Duration>) {
        let hardware = self.spec.load().classes.usual.clone();
        self.tell(Event::Scaling { ready_in, hardware });
    }

    /// Takes what the pool was like since the last time.
    pub fn take_sample(&self) -> Sample {
        let missing = Sample { is_missing: true, ..Sample::default() };
        self.mark(Brain::take_sample).unwrap_or(missing)
    }

    /// Says what would be lost with each replica.
    pub fn holdings(&self) -> Vec<Holding> {
        self.look(Brain::holdings)
    }

    /// Lists the replicas that are there.
    pub fn scaled_replicas(&self) -> Vec<ScaledReplica> {
        let snapshot = self.snapshot();
        let members = self.members.load();
        let there = members.iter().filter(|it| !it.gone.is_cancelled());
        let state_of = |id| snapshot.replicas.iter().find(|it| it.id == id).map(|it| it.state);
        let replica = |it: &std::sync::Arc<super::Member>| ScaledReplica {
            id: it.id,
            address: it.origin.as_str().to_owned(),
            name: it.name(),
            is_up: state_of(it.id).is_some_and(|it| it != "joining"),
        };
        there.map(replica).collect()
    }

    /// Lists the replicas that are drained and have finished all they had.
    pub fn drained_replicas(&self) -> Vec<ReplicaId> {
        self.look(|brain, _| brain.drained())
    }

    /// Forgets that a replica was drained which is gone for good.
    pub fn forget_drained(&self, address: &str) {
        self.standing().drained.remove(address);
        self.tell(Event::Ordered(Order::Forget { place: Place::of(address) }));
    }

    /// The time by the clock of its brain.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }
}
