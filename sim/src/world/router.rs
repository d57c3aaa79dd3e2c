//! One pretended router: the very brain that serves, and what is under way to it: readings of metrics,
//! letters of other routers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cleave_core::brain::{self, Brain};
use cleave_core::cluster::{Election, Link};
use cleave_core::domain::{Moment, ReplicaId, Report, RouterId};

use super::exchange::Letter;

/// What a router read of all replicas at one moment.
pub(super) type Reading = Vec<(ReplicaId, Report)>;

#[derive(Debug)]
pub(super) struct Router {
    /// Another one after every restart, as for a process.
    pub(super) id: RouterId,
    pub(super) brain: Brain,
    /// Readings under way. The delay is the same for all, so they arrive in order.
    pub(super) readings: VecDeque<Reading>,
    /// Letters of other routers under way, which arrive in order too.
    pub(super) letters: VecDeque<Letter>,
    /// The links to other routers, by their numbers.
    pub(super) links: BTreeMap<usize, Link>,
    /// When what waits to be told is sent at the latest, as far as the heap knows.
    pub(super) send_at: Moment,
    /// The connection that each link is on.
    pub(super) connections: BTreeMap<usize, u64>,
    /// Whether it speaks the version of the protocol before this one.
    pub(super) is_older: bool,
    /// Which router leads, as this one sees it.
    pub(super) election: Election,
    /// Whether it cannot reach the others.
    pub(super) is_apart: bool,
    /// When the brain is woken next.
    pub(super) wake_at: Moment,
    /// When each replica last gave a sign that the brain does not know of.
    pub(super) heard: Vec<Option<Moment>>,
    /// What brains before this one counted.
    sessions_moved_before: u64,
    settings: brain::Settings,
    /// How many routers there are.
    routers: u32,
}

impl Router {
    /// Makes one of `routers` that tell each other what they do, or one by itself.
    pub(super) fn new(
        id: RouterId,
        settings: &brain::Settings,
        seed: u64,
        routers: Option<u32>,
    ) -> Self {
        let settings = brain::Settings { seed, router: routers.map(|_| id), ..settings.clone() };
        let routers = routers.unwrap_or(1);
        let brain = Brain::new(settings.clone());
        let (readings, letters, heard) = (VecDeque::new(), VecDeque::new(), Vec::new());
        let (wake_at, sessions_moved_before, links) = (Moment::ZERO, 0, BTreeMap::new());
        Self {
            id,
            brain,
            readings,
            letters,
            links,
            send_at: Moment::MAX,
            connections: BTreeMap::new(),
            is_older: false,
            election: Election::new(id, routers),
            is_apart: false,
            wake_at,
            heard,
            sessions_moved_before,
            settings,
            routers,
        }
    }

    /// Forgets everything.
    pub(super) fn restart(&mut self) {
        self.sessions_moved_before = self.sessions_moved();
        self.id = RouterId(self.id.0 + (1 << 32));
        self.settings.router = self.settings.router.map(|_| self.id);
        self.brain = Brain::new(self.settings.clone());
        self.links.clear();
        self.is_older = false;
        self.election = Election::new(self.id, self.routers);
        // Entries of the heap still point here, one for each reading under way.
        self.readings.iter_mut().for_each(Vec::clear);
    }

    /// Notes that something came from a replica.
    pub(super) fn hear(&mut self, replica: usize, now: Moment) {
        if self.heard.len() <= replica {
            self.heard.resize(replica + 1, None);
        }
        self.heard[replica] = Some(now);
    }

    pub(super) fn sessions_moved(&self) -> u64 {
        self.sessions_moved_before + self.brain.snapshot().sessions_moved.all()
    }
}

/// Spreads the first readings of several routers over one interval.
pub(super) fn offset(interval: Duration, router: usize, routers: usize) -> Duration {
    let (router, routers) = (u32::try_from(router), u32::try_from(routers));
    interval * router.unwrap_or(0) / routers.unwrap_or(1).max(1)
}
