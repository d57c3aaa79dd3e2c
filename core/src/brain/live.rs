//! What a page shows of a pool twice a second: figures only. Names do not change, so they are looked up once
//! elsewhere, and a look at hundreds of replicas copies no text while the lock is held.

use std::time::Duration;

use crate::domain::{Moment, ReplicaId, Report, SliceKey};
use crate::fleet::{Reason, Replica};
use crate::queue::ClassSnapshot;

use super::{Brain, MoveTotals};

pub use super::admission::groups::WaitingGroup;

/// One pool at one moment, in figures.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveView {
    pub requests_in_flight: usize,
    pub quarantined: usize,
    pub sessions_moved: MoveTotals,
    pub waiting: usize,
    pub waiting_bytes: usize,
    /// By class, in the order of the settings.
    pub classes: Vec<ClassSnapshot>,
    /// Model units that leave the line in a minute while others wait.
    pub mu_per_min: f64,
    pub replicas: Vec<LiveReplica>,
}

/// One replica at one moment, in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveReplica {
    pub id: ReplicaId,
    /// `joining`, `up`, `draining`, `drained`, `suspect`, `out`, `trial`, or `leaving`.
    pub state: &'static str,
    pub reason: Option<&'static str>,
    pub in_flight: u32,
    pub sessions: u32,
    pub sent_total: u64,
    pub failed_total: u64,
    /// The last report of its engine, however old.
    pub report: Option<Report>,
    /// Work of the requests in flight, in model units.
    pub in_flight_mu: f64,
    pub capacity_mu_per_min: f64,
    /// How full it is; from 1 on it is past its knee.
    pub fill: f64,
    pub pace: f64,
    /// Tokens in KV memory, as booked: as if no two requests shared any.
    pub kv_tokens: u64,
}

/// Where a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionHome {
    pub replica: ReplicaId,
    /// How long ago it was served last, to the second.
    pub served: Duration,
}

impl Brain {
    /// Says in a word how a replica is, and why, as operators are shown it.
    pub(super) fn state_of(&self, it: &Replica) -> (&'static str, Option<&'static str>) {
        let state = it.state();
        let name = match (state.name, self.placement.is_drained(it.place), it.sent.in_flight()) {
            ("up", true, 0) => "drained",
            ("up", true, _) => "draining",
            (name, ..) => name,
        };
        (name, state.reason.map(Reason::as_str))
    }

    /// Shows the pool in figures.
    pub fn live(&self, now: Moment) -> LiveView {
        let replicas = self.fleet.iter().map(|it| {
            let (state, reason) = self.state_of(it);
            LiveReplica {
                id: it.id,
                state,
                reason,
                in_flight: it.sent.in_flight(),
                sessions: self.placement.sessions_at(it.id),
                sent_total: it.sent.total(),
                failed_total: it.sent.failed_total(),
                report: it.reported.report(),
                in_flight_mu: it.in_flight_mu(),
                capacity_mu_per_min: it.counted_mu_per_min(),
                fill: self.admission.fill(now, it),
                pace: it.pace.factor(),
                kv_tokens: it.ledger.own_load().kv_tokens,
            }
        });
        let line = self.admission.waiting.line();
        LiveView {
            requests_in_flight: self.books.len(),
            quarantined: self.poison.held().0,
            sessions_moved: self.placement.moves(),
            waiting: line.len(),
            waiting_bytes: line.bytes(),
            classes: self.settings.line.classes.iter().map(|(id, _)| line.class(id)).collect(),
            mu_per_min: self.admission.waiting.mu_per_min(),
            replicas: replicas.collect(),
        }
    }

    /// Counts the requests that wait.
    pub fn waiting_count(&self) -> usize {
        self.admission.waiting.line().len()
    }

    /// Groups the requests that wait by class, tenant and cause.
    pub fn waiting(&self, now: Moment) -> Vec<WaitingGroup> {
        self.admission.groups(now, self.placement.open(now, &self.fleet))
    }

    /// Finds the replica that served a session last, unless that is too long ago.
    pub fn session_home(&self, now: Moment, key: SliceKey) -> Option<SessionHome> {
        let replica = self.placement.home(now, key)?;
        let served = now.since(self.placement.last_served(now, key)?);
        Some(SessionHome { replica, served })
    }
}
