//! Replicas that come, change and go, and what health finds of them.

use std::sync::Arc;

use crate::cost::Hardware;
use crate::cost::learned::Learned;
use crate::domain::{Moment, ReplicaId};
use crate::fleet::{Fleet, Replica, Standing};

use super::event::Action;
use super::health::{self, Finding, Health};
use super::{Brain, Notice};

impl Brain {
    /// Adds a replica to every machine that keeps state by replica.
    pub(super) fn join(
        &mut self,
        id: ReplicaId,
        name: String,
        weight: f64,
        hardware: Arc<Hardware>,
    ) {
        let hardware = self.learning.on_joined(id, hardware);
        let it = Replica::new(id, name, weight, hardware, self.settings.breaker);
        self.placement.on_joined(id, it.place);
        self.admission.on_joined(&it);
        self.fleet.join(it);
    }

    pub(super) fn release_if_done(&mut self, replica: ReplicaId, actions: &mut Vec<Action>) {
        if self.fleet.get(replica).is_some_and(|it| it.leaving && it.sent.in_flight() == 0) {
            self.fleet.leave(replica);
            self.placement.on_left(replica);
            self.admission.on_left(replica);
            self.learning.on_left(replica);
            self.measure();
            self.notices.push(Notice::Left { replica });
            actions.push(Action::Release { replica });
        }
    }

    /// Takes over what was learned of what work takes; replicas that are there already are priced by it.
    pub(super) fn recall(&mut self, costs: Vec<Learned>) {
        self.learning.recall(costs);
        self.reprice();
        self.measure();
    }

    /// Prices the fleet by what was learned since the last time.
    pub(super) fn reprice(&mut self) {
        for (replica, stretch) in self.learning.on_time(&mut self.fleet) {
            if let Some(it) = self.fleet.get(replica) {
                self.admission.on_repriced(it, stretch);
            }
        }
    }

    /// Has admission learn how much the fleet can do and hold, now that it changed or may have.
    pub(super) fn measure(&mut self) {
        let (admission, placement) = (&mut self.admission, &self.placement);
        let stays =
            |it: &&Replica| 0.0 < it.weight && !placement.is_drained(it.place) && !it.leaving;
        admission.measure(self.fleet.iter().filter(stays));
    }

    /// Has health look at something, and acts on what it found.
    pub(super) fn check(
        &mut self,
        now: Moment,
        actions: &mut Vec<Action>,
        look: impl FnOnce(&mut Health, &mut Fleet, &mut Vec<Finding>),
    ) {
        let mut found = Vec::new();
        look(&mut self.health, &mut self.fleet, &mut found);
        self.act_on(now, found, actions);
    }

    /// Carries what health found to the machines that it concerns, in order.
    pub(super) fn act_on(&mut self, now: Moment, found: Vec<Finding>, actions: &mut Vec<Action>) {
        for finding in found {
            match finding {
                Finding::Changed { replica, before, now, silence } => {
                    self.tell_state(replica, now);
                    if before.name == Standing::Joining.as_str() {
                        // From now on it counts.
                        self.measure();
                    }
                    self.notices.push(Notice::Changed { replica, before, now, silence });
                }
                Finding::Hung { replica } => {
                    self.poison.on_death(now, replica);
                    self.confirm_death(now, replica);
                    self.placement.on_gone(replica);
                    let there = self.books.at(replica);
                    actions.extend(there.map(|request| Action::GiveUp { request, replica }));
                }
                Finding::Ask { replica, limit } => actions.push(Action::Ask { replica, limit }),
                Finding::Gone { replica } => {
                    self.confirm_death(now, replica);
                    self.placement.on_gone(replica);
                }
                Finding::Alive { replica } => self.placement.on_alive(replica),
                Finding::Restarted { replica } => self.on_restarted(now, replica),
            }
        }
    }

    /// Changes what is known of a replica, and notes it for operators if its state changed.
    pub(super) fn change(&mut self, replica: ReplicaId, change: impl FnOnce(&mut Replica)) {
        let found = health::change(&mut self.fleet, replica, change);
        if let Some(Finding::Changed { replica, before, now, silence }) = found {
            self.tell_state(replica, now);
            self.notices.push(Notice::Changed { replica, before, now, silence });
        }
    }
}
