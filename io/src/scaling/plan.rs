//! From a number to steps: which replicas are drained, which stay after all, and what the actuator is told. Pure: it
//! is shown what is there and says what should be done.

use std::collections::BTreeSet;

use cleave_core::domain::ReplicaId;

use crate::proxy::ScaledReplica;

/// What the actuator is told: how many replicas there should be, and which of those that are there should go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScaleOrder {
    pub(super) replicas: usize,
    /// Addresses; they have finished all they had.
    pub(super) victims: Vec<String>,
}

/// What is there.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) replicas: &'a [ScaledReplica],
    /// Addresses that operators drained: they are left alone.
    pub(super) held: &'a BTreeSet<String>,
    /// Addresses that are drained to be taken away.
    pub(super) leaving: &'a BTreeSet<String>,
    /// Of those, which the actuator was told of.
    pub(super) told: &'a BTreeSet<String>,
    /// Replicas that have finished all they had.
    pub(super) idle: &'a [ReplicaId],
    pub(super) wanted: usize,
}

/// What should be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) drain: Vec<ReplicaId>,
    pub(super) undrain: Vec<ReplicaId>,
    pub(super) order: ScaleOrder,
}

/// Makes a plan; `pick` names that many replicas whose loss costs least, of all that take new work.
pub(super) fn plan(scene: &Scene<'_>, pick: impl FnOnce(usize) -> Vec<ReplicaId>) -> Plan {
    let Scene { replicas, held, leaving, told, idle, wanted } = *scene;
    let is_leaving = |it: &&ScaledReplica| leaving.contains(&it.address);
    let is_held = |it: &&ScaledReplica| held.contains(&it.address) && !is_leaving(it);
    let staying = replicas.iter().filter(|it| !is_leaving(it) && !is_held(it)).count();
    let mut plan = Plan::default();
    if wanted < staying {
        plan.drain = pick(staying - wanted);
    }
    // One that the actuator was told of is gone already, or will be.
    let may_stay = |it: &&ScaledReplica| is_leaving(it) && !told.contains(&it.address);
    let back = replicas.iter().filter(may_stay).take(wanted.saturating_sub(staying));
    plan.undrain = back.map(|it| it.id).collect();
    let goes = |it: &&ScaledReplica| {
        (is_leaving(it) || plan.drain.contains(&it.id)) && !plan.undrain.contains(&it.id)
    };
    let is_done = |it: &&ScaledReplica| {
        told.contains(&it.address) || (is_leaving(it) && idle.contains(&it.id))
    };
    let staying = staying - plan.drain.len().min(staying) + plan.undrain.len();
    let draining = replicas.iter().filter(goes).filter(|it| !is_done(it)).count();
    let victims = replicas.iter().filter(goes).filter(is_done);
    plan.order = ScaleOrder {
        replicas: wanted.max(staying) + draining + replicas.iter().filter(is_held).count(),
        victims: victims.map(|it| it.address.clone()).collect(),
    };
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        replicas: Vec<ScaledReplica>,
        held: BTreeSet<String>,
        leaving: BTreeSet<String>,
        told: BTreeSet<String>,
        idle: Vec<ReplicaId>,
    }

    impl World {
        fn of(count: u32) -> Self {
            let replica = |id| ScaledReplica {
                id: ReplicaId(id),
                address: format!("r{id}"),
                name: None,
                is_up: true,
            };
            let (held, leaving, told, idle) = Default::default();
            Self { replicas: (0..count).map(replica).collect(), held, leaving, told, idle }
        }

        fn plan(&self, wanted: usize) -> Plan {
            let Self { replicas, held, leaving, told, idle } = self;
            let scene = Scene { replicas, held, leaving, told, idle, wanted };
            plan(&scene, |count| {
                (0..count).map(|it| ReplicaId(u32::try_from(it).unwrap())).collect()
            })
        }
    }

    fn order(replicas: usize, victims: &[&str]) -> ScaleOrder {
        ScaleOrder { replicas, victims: victims.iter().map(|it| (*it).to_owned()).collect() }
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn more_are_asked_for_at_once() {
        assert_eq!(World::of(2).plan(5), Plan { order: order(5, &[]), ..Plan::default() });
        assert_eq!(World::of(0).plan(1).order, order(1, &[]));
    }

    #[test]
    fn a_victim_is_drained_before_the_actuator_hears_of_it() {
        let mut world = World::of(3);
        let plan = world.plan(1);
        assert_eq!((plan.drain, plan.order), (vec![ReplicaId(0), ReplicaId(1)], order(3, &[])));
        world.leaving = names(&["r0", "r1"]);
        assert_eq!(world.plan(1).order, order(3, &[]), "both still answer");
        world.idle = vec![ReplicaId(0)];
        assert_eq!(world.plan(1).order, order(2, &["r0"]));
        world.idle = vec![ReplicaId(0), ReplicaId(1)];
        assert_eq!(world.plan(1).order, order(1, &["r0", "r1"]));
    }

    #[test]
    fn a_victim_stays_after_all_when_work_comes_back_unless_it_was_told_of() {
        let mut world = World::of(3);
        (world.leaving, world.told) = (names(&["r0", "r1"]), names(&["r0"]));
        let plan = world.plan(3);
        assert_eq!(plan.undrain, [ReplicaId(1)]);
        assert_eq!(plan.order, order(3, &["r0"]), "one that goes is replaced");
    }

    #[test]
    fn what_operators_drained_is_left_alone_and_still_counted() {
        let mut world = World::of(3);
        world.held = names(&["r2"]);
        assert_eq!(world.plan(2), Plan { order: order(3, &[]), ..Plan::default() });
    }
}
