//! What must hold of a world after everything that happens. The brain's and the engine's own
//! predicates are asked here too, so that a swarm of random worlds checks all three at once.

use std::time::Duration;

use cleave_core::brain::{self, Action, Brain};
use cleave_core::cluster::Link;
use cleave_core::domain::{Moment, Place, RequestId};
use cleave_core::fleet::Load;

use crate::engine::{self, Engine};

use super::replica::Standing;
use super::router::Router;
use super::{RunError, World};

/// How much later than it should a router may drop what a lost one had: it looks once a second.
const SWEEP_SLACK: Duration = Duration::from_secs(3);

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

/// Routers that have told each other everything go by one plan, and one of them leads.
pub fn routers_agree(world: &World) -> bool {
    let routers = &world.routers;
    let Some(first) = routers.first().filter(|it| !it.links.is_empty()) else { return true };
    let same = |it: &Router| {
        it.brain.generation() == first.brain.generation()
            && it.election.standing().leader == first.election.standing().leader
    };
    routers.iter().all(same) && routers.iter().filter(|it| it.election.leads()).count() == 1
}

/// No router believes that another one has something in flight when nothing is.
pub fn nothing_is_left_of_others(world: &World) -> bool {
    let is_clear = |it: &Router| {
        it.brain.heard_in_flight().iter().all(|it| it.1 == 0)
            && it.brain.load(world.now).iter().all(|it| it.elsewhere == Load::default())
    };
    !world.flights.is_empty() || world.routers.iter().all(is_clear)
}

/// Routers that have heard everything of each other have the same books: each booking is known to all, at the same
/// replica and once, and nothing else is.
pub fn books_agree(world: &World) -> bool {
    world.routers.iter().all(|one| {
        let own = sorted(one.brain.booked());
        let others = world.routers.iter().filter(|it| it.id != one.id);
        others.into_iter().all(|it| sorted(it.brain.booked_by(one.id)) == own)
    })
}

fn sorted(mut booked: Vec<(RequestId, Place)>) -> Vec<(RequestId, Place)> {
    booked.sort_unstable();
    booked
}

/// Nothing is held for a router that has been gone longer than its work should take.
pub fn nothing_outlives_its_router(world: &World) -> bool {
    !world.routers.iter().any(|it| it.brain.holds_of_lost(world.now, SWEEP_SLACK))
}

impl World {
    /// Compares the books of routers that have heard everything of each other, if checks are on.
    pub(super) fn compare_books(&mut self) {
        if !self.settings.checks || self.broken.is_some() {
            return;
        }
        if !nothing_outlives_its_router(self) {
            self.broken = Some("not so: nothing outlives its router".to_owned());
        }
        let others = self.routers.len() - 1;
        let is_settled = |it: &Router| {
            it.links.len() == others
                && it.letters.is_empty()
                && it.links.values().all(Link::is_settled)
        };
        // A replica that comes or goes is known to all at once, but not for ever to all.
        let is_steady = self.replicas.iter().all(|it| it.leaving_from == 0);
        if is_steady && self.routers.iter().all(is_settled) {
            self.books_compared += 1;
            if !books_agree(self) {
                self.broken = Some("not so: books agree".to_owned());
            }
        }
    }

    /// How often the books of all routers were compared.
    pub const fn books_compared(&self) -> u64 {
        self.books_compared
    }

    /// Ends the run if routers differ although all is quiet, if checks are on.
    pub fn check_agreement(&self) -> Result<(), RunError> {
        let what = match self.settings.checks {
            true if !routers_agree(self) => "not so: routers agree",
            true if !nothing_is_left_of_others(self) => "not so: nothing is left of others",
            _ => return Ok(()),
        };
        Err(RunError::Broken { at: self.now, what: what.to_owned() })
    }

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
