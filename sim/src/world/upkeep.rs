//! What goes on whether or not requests come: metrics are read, health is checked, brains are woken,
//! measures are taken. Each of these puts its own next time into the heap.

use std::sync::Arc;
use std::time::Duration;

use cleave_core::brain::Event;
use cleave_core::domain::{Moment, ReplicaId};
use cleave_core::fleet::Probe;
use cleave_core::queue;

use super::World;
use super::heap::Happening;
use super::replica::Standing;
use super::requests::tenant_of;
use super::router::{Reading, offset};

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

impl World {
    /// Starts what a router does for ever.
    pub(super) fn start_upkeep(&mut self, router: usize) {
        let interval = self.settings.view.interval;
        let at = Moment::ZERO + offset(interval, router, self.settings.routers);
        self.heap.push(at, Happening::Scrape { router });
        self.heap.push(Moment::ZERO, Happening::Probe { router });
        self.heap.push(Moment::ZERO, Happening::Wake { router });
    }

    /// Tells a router which replicas there are.
    pub(super) fn introduce_fleet(&mut self, router: usize) {
        let limits = self.limits();
        self.tell(router, Event::Contracted { limits });
        for replica in 0..self.replicas.len() {
            if self.replicas[replica].standing != Standing::Gone {
                self.introduce(router, replica);
            }
        }
    }

    /// Lists what tenants may use.
    pub(super) fn limits(&self) -> Vec<(queue::Tenant, queue::Limits)> {
        let all = self.settings.contracts.iter();
        all.map(|(tenant, limits)| (tenant_of(*tenant), *limits)).collect()
    }

    /// Tells a router of one replica, and lets it see that it is there.
    pub(super) fn introduce(&mut self, router: usize, replica: usize) {
        let it = &self.replicas[replica];
        let (name, weight) = (it.name.clone(), it.settings.weight);
        let hardware = Arc::clone(&it.hardware);
        self.tell(router, Event::Joined { replica: id(replica), name, weight, hardware });
        self.probe_replica(router, replica);
    }

    pub(super) fn scrape(&mut self, router: usize) {
        let now = self.now;
        let readings = self.replicas.iter().enumerate();
        let reading: Reading =
            readings.filter_map(|(at, it)| Some((id(at), it.report(now)?))).collect();
        self.routers[router].readings.push_back(reading);
        self.heap.push(now + self.settings.view.delay, Happening::Told { router });
        self.heap.push(now + self.settings.view.interval, Happening::Scrape { router });
    }

    pub(super) fn deliver_reading(&mut self, router: usize) {
        let reading = self.routers[router].readings.pop_front().unwrap_or_default();
        for (replica, report) in reading {
            self.tell(router, Event::Reported { replica, report });
        }
    }

    pub(super) fn probe(&mut self, router: usize) {
        for replica in 0..self.replicas.len() {
            self.probe_replica(router, replica);
        }
        let next = self.now + self.settings.timeouts.probe_interval;
        self.heap.push(next, Happening::Probe { router });
    }

    pub(super) fn probe_replica(&mut self, router: usize, replica: usize) {
        let probe = match self.replicas[replica].standing {
            Standing::Up => Probe::Passed,
            Standing::Down => Probe::Refused,
            Standing::Hung { since } => {
                Probe::TimedOut { asked_at: self.now, last_byte_at: Some(since) }
            }
            Standing::Gone => return,
        };
        self.tell(router, Event::Probed { replica: id(replica), probe });
    }

    /// Asks a replica for a token; a hung one is waited for as long as the router would.
    pub(super) fn ask(&mut self, router: usize, replica: usize, limit: Duration) {
        let asked_at = self.now;
        match self.replicas[replica].standing {
            Standing::Hung { .. } => {
                self.heap.push(self.now + limit, Happening::Asked { router, replica, asked_at });
            }
            Standing::Up | Standing::Down | Standing::Gone => {
                self.answer_question(router, replica, asked_at);
            }
        }
    }

    /// Tells a router what came of asking for a token.
    pub(super) fn answer_question(&mut self, router: usize, replica: usize, asked_at: Moment) {
        let probe = match self.replicas[replica].standing {
            Standing::Up => Probe::Generated,
            Standing::Down | Standing::Gone => Probe::Refused,
            Standing::Hung { .. } => Probe::Mute { asked_at, last_byte_at: None },
        };
        self.tell(router, Event::Probed { replica: id(replica), probe });
    }

    pub(super) fn wake(&mut self, router: usize) {
        let it = &mut self.routers[router];
        // Another came before this one and knows when it is time again.
        if self.now < it.wake_at {
            return;
        }
        for (replica, at) in it.heard.iter_mut().enumerate() {
            if let Some(at) = at.take() {
                let heard = Event::Sign { replica: id(replica), at };
                it.brain.on_event(self.now, heard, &mut self.actions);
            }
        }
        it.brain.on_time(self.now, &mut self.actions);
        let soonest = self.now + Duration::from_nanos(1);
        it.wake_at = it.brain.next_wakeup().map_or(Moment::MAX, |at| at.max(soonest));
        self.heap.push(it.wake_at, Happening::Wake { router });
        self.note_actions(router);
    }

    /// Wakes a brain sooner than was planned, if it wants that now.
    pub(super) fn wake_in_time(&mut self, router: usize) {
        let it = &mut self.routers[router];
        if let Some(at) = it.brain.next_wakeup().filter(|at| *at < it.wake_at) {
            it.wake_at = at.max(self.now);
            self.heap.push(it.wake_at, Happening::Wake { router });
        }
    }

    pub(super) fn sample(&mut self) {
        for (at, it) in self.replicas.iter().enumerate() {
            if it.standing != Standing::Gone {
                let stats = it.engine.stats();
                self.measures.on_sample(at, stats.kv_used_share, stats.waiting);
            }
        }
        self.heap.push(self.now + SAMPLE_INTERVAL, Happening::Sample);
    }
}

pub(super) fn id(replica: usize) -> ReplicaId {
    ReplicaId(u32::try_from(replica).expect("a fleet fits 32 bits"))
}
