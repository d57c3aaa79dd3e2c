//! What befalls the fleet, by script or by a tenant whose requests do harm.

use std::time::Duration;

use cleave_core::brain::Event;

use crate::measure::{End, Exposure};

use super::heap::Happening;
use super::replica::{Replica, Standing};
use super::settings::FaultKind;
use super::upkeep::id;
use super::{Poison, World};

/// How long it takes until a replica that a tenant brought down is started again.
const REVIVED_AFTER: Duration = Duration::from_secs(30);

impl World {
    pub(super) fn begin_fault(&mut self, number: usize) {
        let fault = self.settings.faults[number];
        self.faulted |= fault.kind.is_harm();
        if let Some(lasts) = fault.lasts {
            self.heap.push(self.now + lasts, Happening::Mend { number });
        }
        match fault.kind {
            FaultKind::Crash { replica } => self.crash(replica),
            FaultKind::Hang { replica } => self.hang(replica),
            FaultKind::Slow { replica, factor } => self.slow(replica, factor),
            FaultKind::Freeze { replica } => self.freeze(replica, true),
            FaultKind::Drain { replica } => self.drain(replica),
            FaultKind::Join => self.join(),
            FaultKind::RestartRouter { router } => self.restart_router(router),
            FaultKind::Apart { router } => self.set_apart(router, true),
            FaultKind::HangUp { router } => self.hang_up(router),
            FaultKind::Poison { tenant, hangs } => {
                self.poison = Some(Poison { tenant, hangs, active: true });
            }
            FaultKind::Lie { replica } => self.set_lying(replica, true),
            FaultKind::Reload => self.contract(false),
        }
    }

    pub(super) fn end_fault(&mut self, number: usize) {
        match self.settings.faults[number].kind {
            FaultKind::Crash { replica } | FaultKind::Hang { replica } => self.revive(replica),
            FaultKind::Slow { replica, .. } => self.slow(replica, 1.0),
            FaultKind::Freeze { replica } => self.freeze(replica, false),
            FaultKind::Poison { .. } => {
                self.poison = self.poison.map(|it| Poison { active: false, ..it });
            }
            FaultKind::Lie { replica } => self.set_lying(replica, false),
            FaultKind::Reload => self.contract(true),
            FaultKind::Apart { router } => self.set_apart(router, false),
            FaultKind::Drain { .. }
            | FaultKind::Join
            | FaultKind::RestartRouter { .. }
            | FaultKind::HangUp { .. } => {}
        }
    }

    /// Lets the replica fail that a harmful request has reached.
    pub(super) fn poison_replica(&mut self, request: u64, replica: usize) {
        let Some(poison) = self.poison.filter(|it| it.active) else { return };
        if self.flights.get(&request).is_none_or(|it| it.tenant != poison.tenant) {
            return;
        }
        self.reached.insert(replica);
        if self.replicas[replica].is_up() {
            self.quarantined.brought_down += 1;
            self.heap.push(self.now + REVIVED_AFTER, Happening::Revive { replica });
        }
        if poison.hangs {
            self.hang(replica);
        } else {
            self.crash(replica);
        }
    }

    /// Brings a replica back: cold after a crash, where it stopped after a hang.
    pub(super) fn revive(&mut self, replica: usize) {
        let Some(it) = self.replicas.get_mut(replica) else { return };
        match it.standing {
            Standing::Up | Standing::Gone => return,
            Standing::Down => {}
            Standing::Hung { .. } => it.engine.postpone(self.now),
        }
        it.standing = Standing::Up;
        it.well_since = Some(self.now);
        self.schedule(replica);
    }

    fn crash(&mut self, replica: usize) {
        let Some(it) = self.replicas.get_mut(replica) else { return };
        if it.standing == Standing::Gone {
            return;
        }
        it.standing = Standing::Down;
        it.well_since = None;
        let mut engine = it.replace_engine();
        self.residency.forget(&mut engine);
        for request in self.strike(replica) {
            self.lose(request);
        }
    }

    fn hang(&mut self, replica: usize) {
        let Some(it) = self.replicas.get_mut(replica).filter(|it| it.is_up()) else { return };
        it.standing = Standing::Hung { since: self.now };
        it.well_since = None;
        it.due = None;
        let at = self.now + self.settings.timeouts.idle;
        for request in self.strike(replica) {
            if let Some(flight) = self.flights.get(&request).filter(|it| it.has_shown()) {
                self.heap.push(at, Happening::GiveUp { request, tries: flight.tries });
            }
        }
    }

    /// Marks the requests that are on a replica as it fails, and lists them.
    fn strike(&mut self, replica: usize) -> Vec<u64> {
        let there = self.flights.iter_mut().filter(|(_, it)| it.replica == Some(replica));
        let struck = there.map(|(id, flight)| {
            flight.exposure = Exposure::Struck;
            *id
        });
        struck.collect()
    }

    fn slow(&mut self, replica: usize, factor: f64) {
        if let Some(it) = self.replicas.get_mut(replica) {
            it.engine.set_slow_factor(factor);
            it.well_since = (factor <= 1.0).then_some(self.now);
        }
    }

    fn freeze(&mut self, replica: Option<usize>, frozen: bool) {
        for (at, it) in self.replicas.iter_mut().enumerate() {
            if replica.is_none_or(|replica| replica == at) {
                it.set_frozen(frozen);
            }
        }
    }

    fn set_lying(&mut self, replica: usize, lies: bool) {
        if let Some(it) = self.replicas.get_mut(replica) {
            it.lies = lies;
        }
    }

    /// Tells all routers what tenants may use; nothing while they are not in the configuration.
    fn contract(&mut self, is_listed: bool) {
        for router in 0..self.routers.len() {
            let limits = if is_listed { self.limits() } else { Vec::new() };
            self.tell(router, Event::Contracted { limits });
        }
    }

    pub(super) fn drain(&mut self, replica: usize) {
        let Some(it) = self.replicas.get_mut(replica) else { return };
        if it.standing == Standing::Gone || 0 < it.leaving_from {
            return;
        }
        it.leaving_from = self.routers.len();
        for router in 0..self.routers.len() {
            self.tell(router, Event::Leaving { replica: id(replica) });
        }
    }

    /// A router has released a replica that leaves; when all have, it is gone.
    pub(super) fn let_go(&mut self, replica: usize) {
        let it = &mut self.replicas[replica];
        it.leaving_from = it.leaving_from.saturating_sub(1);
        if it.leaving_from == 0 {
            it.standing = Standing::Gone;
            let mut engine = it.replace_engine();
            self.residency.forget(&mut engine);
        }
    }

    pub(super) fn join(&mut self) {
        let number = self.replicas.len();
        let replica = Replica::new(number, self.settings.replicas[0], &self.settings.belief);
        self.replicas.push(replica);
        for router in 0..self.routers.len() {
            self.introduce(router, number);
        }
    }

    fn restart_router(&mut self, router: usize) {
        let relayed: Vec<u64> =
            self.flights.iter().filter(|(_, it)| it.router == router).map(|(id, _)| *id).collect();
        self.routers[router].restart();
        self.served.retain(|(of, _), _| *of != router);
        self.todo.retain(|(of, _)| *of != router);
        for id in relayed {
            if let Some(replica) = self.flights.get(&id).and_then(|it| it.replica) {
                self.replicas[replica].engine.cancel(id);
            }
            if let Some(flight) = self.flights.get_mut(&id) {
                flight.exposure = Exposure::Struck;
            }
            self.end(id, End::Cut);
        }
        self.introduce_fleet(router);
        self.reconnect(router);
        // What was leaving when the router fell is still leaving.
        for replica in 0..self.replicas.len() {
            if 0 < self.replicas[replica].leaving_from {
                self.tell(router, Event::Leaving { replica: id(replica) });
            }
        }
    }
}
