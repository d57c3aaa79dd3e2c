//! What the page, the admin port and the tests may see of a brain.

use std::collections::BTreeMap;

use crate::cost::learned::Learned;
use crate::domain::{Moment, ReplicaId, Report, RouterId};
use crate::fleet::{Drift, Load};
use crate::policy::PolicyKind;
use crate::queue::{ClassSnapshot, ContractUsage, GateSnapshot, Tenant};
use crate::tokens::TokenErrors;

use super::{AssignmentView, Brain, MoveTotals, TtftError, WorkloadDrift};

/// One pool at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub policy: PolicyKind,
    pub requests_in_flight: usize,
    /// Sessions that changed replica since the start, and why.
    pub sessions_moved: MoveTotals,
    /// Requests held in quarantine now, and times that a request was put there since the start.
    pub quarantined: usize,
    pub quarantined_total: u64,
    /// How well lengths were predicted since the start.
    pub misses: TokenErrors,
    pub queue: QueueSnapshot,
    /// How well first tokens were predicted since the start.
    pub ttft_error: TtftError,
    pub replicas: Vec<ReplicaSnapshot>,
}

/// The requests that wait at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSnapshot {
    pub waiting: usize,
    pub bytes: usize,
    /// By class, heaviest first, with its name.
    pub classes: Vec<(String, ClassSnapshot)>,
    /// Model units that leave the line in a minute while others wait.
    pub mu_per_min: f64,
    pub sessions: GateSnapshot,
}

/// One tenant's books at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantSnapshot {
    pub tenant: Tenant,
    pub waiting: usize,
    pub usage: ContractUsage,
}

/// One replica at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSnapshot {
    pub id: ReplicaId,
    pub name: String,
    pub weight: f64,
    /// `joining`, `up`, `draining`, `drained`, `suspect`, `out`, `trial`, or `leaving`.
    pub state: &'static str,
    pub reason: Option<&'static str>,
    pub in_flight: u32,
    pub sessions: u32,
    pub sent_total: u64,
    pub failed_total: u64,
    /// The last report of its engine, however old.
    pub report: Option<Report>,
    /// What this router has booked there, in model units.
    pub in_flight_mu: f64,
    /// What it makes in a minute, in model units, as fast as it has shown itself to be; nothing before it came up.
    pub capacity_mu_per_min: f64,
    /// The ratio of the time that work takes there to the time its hardware promises.
    pub pace: f64,
    pub drift: Drift,
}

/// What is booked on one replica at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaLoad {
    pub id: ReplicaId,
    pub name: String,
    pub in_flight: u32,
    /// The hardware class whose coefficients price its work.
    pub class: String,
    /// Work and KV of the requests in flight, as this router expects them.
    pub booked: Load,
    pub in_flight_mu: f64,
    pub capacity_mu_per_min: f64,
    pub pace: f64,
    /// What other routers have booked there.
    pub elsewhere: Load,
    /// Requests of each other router there, and their work in milliseconds.
    pub by_router: BTreeMap<RouterId, (usize, f64)>,
    /// Prompt tokens of requests whose answer has not begun, cached ones included.
    pub waiting_prompt_tokens: u64,
    /// Prompt tokens of requests being answered.
    pub answering_prompt_tokens: u64,
    /// Tokens that all of their answers are expected to have.
    pub output_tokens: u64,
    pub report: Option<Report>,
}

impl Brain {
    pub fn snapshot(&self) -> Snapshot {
        let replicas = self.fleet.iter().map(|it| {
            let (state, reason) = self.state_of(it);
            ReplicaSnapshot {
                id: it.id,
                name: it.name.clone(),
                weight: it.weight,
                state,
                reason,
                in_flight: it.sent.in_flight(),
                sessions: self.placement.sessions_at(it.id),
                sent_total: it.sent.total(),
                failed_total: it.sent.failed_total(),
                report: it.reported.report(),
                in_flight_mu: it.in_flight_mu(),
                capacity_mu_per_min: it.counted_mu_per_min(),
                pace: it.pace.factor(),
                drift: it.ledger.drift,
            }
        });
        let (quarantined, quarantined_total) = self.poison.held();
        Snapshot {
            policy: self.settings.policy,
            requests_in_flight: self.books.len(),
            sessions_moved: self.placement.moves(),
            quarantined,
            quarantined_total,
            misses: self.books.misses(),
            queue: self.queue(),
            ttft_error: self.books.ttft_error().clone(),
            replicas: replicas.collect(),
        }
    }

    fn queue(&self) -> QueueSnapshot {
        let line = self.admission.waiting.line();
        let classes = self.settings.line.classes.iter();
        QueueSnapshot {
            waiting: line.len(),
            bytes: line.bytes(),
            classes: classes.map(|(id, it)| (it.name.clone(), line.class(id))).collect(),
            mu_per_min: self.admission.waiting.mu_per_min(),
            sessions: self.admission.sessions(),
        }
    }

    /// Shows where a tenant stands; nothing for one without a contract.
    pub fn contract(&mut self, now: Moment, tenant: Tenant) -> Option<ContractUsage> {
        self.admission.contract(now, tenant, self.placement.open(now, &self.fleet))
    }

    /// Shows what each tenant with a name has used, and all others together.
    pub fn tenants(&self) -> Vec<TenantSnapshot> {
        let tenants = self.admission.tenants();
        tenants.map(|(tenant, waiting, usage)| TenantSnapshot { tenant, waiting, usage }).collect()
    }

    /// What was learned of what work takes, for each class of replicas.
    pub fn learned_costs(&self) -> Vec<Learned> {
        self.learning.learned()
    }

    /// How far predictions were off, for each workload seen lately.
    pub fn workload_drifts(&self) -> Vec<WorkloadDrift> {
        self.books.drifts().collect()
    }

    /// Counts the rounds that were planned.
    pub const fn rounds_planned(&self) -> u64 {
        self.placement.rounds_planned()
    }

    /// Shows which replicas hold which keys.
    pub fn assignment(&self, now: Moment) -> AssignmentView {
        self.placement.view(now)
    }

    /// Adds up what is booked on each replica. Goes through all requests in flight, so it is for the
    /// operator interface, not for decisions.
    pub fn load(&self, _: Moment) -> Vec<ReplicaLoad> {
        let replicas = self.fleet.iter().map(|it| ReplicaLoad {
            id: it.id,
            name: it.name.clone(),
            in_flight: it.sent.in_flight(),
            class: it.hardware.class.clone(),
            booked: it.ledger.own_load(),
            in_flight_mu: it.in_flight_mu(),
            capacity_mu_per_min: it.counted_mu_per_min(),
            pace: it.pace.factor(),
            elsewhere: it.ledger.elsewhere().load(),
            by_router: BTreeMap::new(),
            waiting_prompt_tokens: 0,
            answering_prompt_tokens: 0,
            output_tokens: 0,
            report: it.reported.report(),
        });
        let mut loads: Vec<ReplicaLoad> = replicas.collect();
        for (_, booking) in self.books.iter() {
            let Ok(at) = loads.binary_search_by_key(&booking.replica, |it| it.id) else { continue };
            let (load, outline) = (&mut loads[at], &booking.outline);
            let prompt_tokens = u64::from(outline.prompt_tokens);
            if booking.account.is_read {
                load.answering_prompt_tokens += prompt_tokens;
            } else {
                load.waiting_prompt_tokens += prompt_tokens;
            }
            let expected = outline.output_tokens.unwrap_or(0).max(booking.account.streamed_tokens);
            load.output_tokens += u64::from(expected);
        }
        for (router, booking) in self.peers.bookings_by_router() {
            let Ok(at) = loads.binary_search_by_key(&booking.replica, |it| it.id) else { continue };
            let (in_flight, work_ms) = loads[at].by_router.entry(router).or_default();
            *in_flight += 1;
            *work_ms += booking.charge.work_ms();
        }
        loads
    }
}
