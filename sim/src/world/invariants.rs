//! What must hold of a world after everything that happens. The brain's and the engine's own
//! predicates are asked here too, so that a swarm of random worlds checks all three at once.

use cleave_core::brain::{self, Action, Brain};
use cleave_core::domain::Moment;

use crate::engine::{self, Engine};

use super::replica::Standing;
use super::{RunError, World};

/// Says what is wrong with a brain after an event; nothing in a sound one.
pub(super) fn broken_brain(brain: &Brain, now: Moment, actions: &[Action]) -> Option<String> {
    let broken = brain::invariants::broken(brain, now, actions)?;
    Some(format!("a router does not keep this: {broken}"))
}

/// Says what is wrong with an engine after a step; nothing in a sound one.
pub(super) fn broken_engine(replica: usize, engine: &Engine) -> Option<String> {
    let broken = engine::invariants::broken(engine);
    (!broken.is_empty()).then(|| format!("replica {replica}: not so: {}", broken.join(", ")))
}

/// Every request that is at a replica is in its engine, and nothing else is.
pub fn engines_match_flights(world: &World) -> bool {
    world.replicas.iter().enumerate().all(|(at, replica)| {
        let sent = world.flights.values().filter(|it| it.replica == Some(at)).count();
        let stats = replica.engine.stats();
        stats.waiting + stats.running == sent
    })
}

/// Every request that arrived has ended exactly once or is still on its way.
pub fn every_request_is_accounted_for(world: &World) -> bool {
    let it = &world.measures;
    let in_flight = u64::try_from(world.flights.len()).unwrap_or(u64::MAX);
    it.arrived == it.finished + it.cut + it.refused + it.too_long + in_flight
}

/// A replica that is gone or down has nothing in its cache and no request waits for it.
pub fn no_request_is_at_a_lost_replica(world: &World) -> bool {
    world
        .flights
        .values()
        .filter_map(|it| it.replica)
        .all(|at| matches!(world.replicas[at].standing, Standing::Up | Standing::Hung { .. }))
}

/// The truth about caches is what the engines hold.
pub fn residency_matches_engines(world: &World) -> bool {
    let mut held: Vec<u64> =
        world.replicas.iter().flat_map(|it| it.engine.cached_blocks()).collect();
    held.sort_unstable();
    held.dedup();
    held.len() == world.residency.blocks() && world.residency.leading(&held) == held.len()
}

impl World {
    /// Ends the run when something is wrong, if checks are on.
    pub(super) fn check(&mut self) -> Result<(), RunError> {
        type Predicate = fn(&World) -> bool;
        if !self.settings.checks {
            return Ok(());
        }
        let all: [(&str, Predicate); 3] = [
            ("engines match flights", engines_match_flights),
            ("every request is accounted for", every_request_is_accounted_for),
            ("no request is at a lost replica", no_request_is_at_a_lost_replica),
        ];
        let broken = self.broken.take().or_else(|| {
            let found = all.iter().find(|(_, holds)| !holds(self));
            found.map(|(name, _)| format!("not so: {name}"))
        });
        broken.map_or(Ok(()), |what| Err(RunError::Broken { at: self.now, what }))
    }
}
