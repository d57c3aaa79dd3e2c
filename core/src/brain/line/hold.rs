//! What is held, and the books around it: the line with the requests that wait in it, contracts, the
//! gate, the knees of the replicas and the pace at which the line moves.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey};
use crate::policy::Ask;
use crate::queue::{Admission, Claim, Contracts, DrainRate, Gate, Lane, Line, Ticket, Work};

use super::super::knee::Knees;
use super::super::request::{Booking, CostEstimate, Fingerprint, micros};
use super::super::settings::LineSettings;
use super::headroom::Headroom;
use super::lanes::{Fill, LaneKey, Scene};
use super::reach::Reaches;

/// A request as it arrived.
#[derive(Debug)]
pub(in super::super) struct Arrival {
    pub(in super::super) request: RequestId,
    pub(in super::super) key: SliceKey,
    pub(in super::super) outline: Outline,
    pub(in super::super) extent: Extent,
    pub(in super::super) claim: Claim,
}

#[derive(Debug)]
pub(in super::super) struct Hold {
    pub(in super::super) line: Line,
    pub(in super::super) contracts: Contracts,
    pub(in super::super) gate: Gate,
    pub(in super::super) knees: Knees,
    pub(in super::super) pace: DrainRate,
    pub(super) headroom: Headroom,
    pub(super) reaches: Reaches,
    /// The requests in the line. As many, so bounded as it is.
    pub(super) parked: IndexMap<RequestId, Parked, FxBuildHasher>,
    /// How full those are that may take something; reused by every look.
    pub(super) fills: Vec<Fill>,
    waits_max: Vec<Duration>,
    capacity_per_min: Work,
}

/// A request that has not been sent.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) key: SliceKey,
    pub(super) outline: Outline,
    pub(super) extent: Extent,
    pub(super) fingerprint: Fingerprint,
    /// Where its session was last, if that may take it.
    pub(super) home: Option<ReplicaId>,
    /// Whether its workload may use only some of the replicas.
    pub(super) is_divided: bool,
    pub(super) admission: Admission,
    pub(super) estimate: CostEstimate,
}

impl Parked {
    pub(super) fn lane(&self) -> LaneKey {
        LaneKey {
            class: self.estimate.class.0,
            is_fresh: self.admission == Admission::Wait,
            is_long: self.estimate.is_long,
            workload: self.is_divided.then(|| self.key.workload()),
            home: self.home,
        }
    }

    pub(super) fn ask(&self, now: Moment) -> Ask<'_> {
        let first_token = self.estimate.first_token;
        Ask { now, key: self.key, outline: &self.outline, home: None, first_token }
    }

    pub(super) fn booking(self, replica: ReplicaId) -> Booking {
        Booking::new(self.key, self.outline, self.extent, replica, self.estimate)
    }
}

impl Hold {
    pub(in super::super) fn new(settings: &LineSettings) -> Self {
        let headroom = Headroom::new(&settings.classes);
        Self {
            line: Line::new(settings.limits, &settings.classes),
            contracts: Contracts::default(),
            gate: Gate::new(settings.gate),
            knees: Knees::new(headroom.patience_min()),
            pace: DrainRate::new(Work::ZERO),
            headroom,
            reaches: Reaches::default(),
            parked: IndexMap::default(),
            fills: Vec::new(),
            waits_max: settings.classes.iter().map(|it| it.1.wait_max).collect(),
            capacity_per_min: Work::ZERO,
        }
    }

    pub(super) fn scene(&self) -> Scene<'_> {
        let Self { gate, headroom, reaches, fills, .. } = self;
        Scene { gate, headroom, reaches, fills }
    }

    /// Works out what each class may take now.
    pub(super) fn look(&mut self, now: Moment) {
        self.headroom.look(now, &self.line, self.capacity_per_min);
    }

    /// Takes out who goes next: first among those who can go where their cache is or have none, then
    /// among all, so that no capacity is idle while somebody waits. Who would be late even where the next
    /// one waits the least is taken for lost.
    pub(super) fn next(&mut self, now: Moment) -> Option<Ticket> {
        let Self { line, gate, headroom, reaches, fills, .. } = self;
        let scene = Scene { gate, headroom, reaches, fills };
        if !scene.has_room() {
            return None;
        }
        let soonest_ms = fills.iter().map(|it| it.wait_ms).fold(f64::INFINITY, f64::min);
        let now = now + Duration::from_micros(micros(soonest_ms));
        let has_home = |it: &Ticket| LaneKey::from(it.lane).home.is_some();
        line.next(now, |it| scene.is_open(it.into(), true), has_home)
            .or_else(|| line.next(now, |it| scene.is_open(it.into(), false), has_home))
    }

    pub(super) fn ticket(
        &self,
        now: Moment,
        request: RequestId,
        parked: &Parked,
        lane: Lane,
    ) -> Ticket {
        let estimate = &parked.estimate;
        let class = estimate.class.index().min(self.waits_max.len() - 1);
        let waited_out = now + self.waits_max[class];
        Ticket {
            request,
            class: estimate.class,
            tenant: estimate.tenant,
            weight: estimate.weight,
            lane,
            deadline: estimate.due.sent_by,
            target: estimate.target,
            expires_at: estimate.due.sent_by.map_or(waited_out, |it| it.min(waited_out)),
            work: estimate.work,
            bytes: estimate.bytes,
        }
    }

    /// Predicts how long a request that joins now waits; nothing where nothing is known.
    pub(super) fn predict_wait(&self, now: Moment, ticket: &Ticket) -> Duration {
        self.pace.wait(self.line.ahead(now, ticket)).unwrap_or(Duration::ZERO)
    }

    /// Says when one who is turned away should come back: when what waits before it will be gone.
    pub(super) fn retry_after(&self, now: Moment, ticket: &Ticket) -> Duration {
        self.pace.retry_after(self.line.ahead(now, ticket))
    }

    /// Lists those who wait.
    pub(in super::super) fn waiting(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.parked.keys().copied()
    }

    /// Counts those who wait and hold something of a contract.
    pub(in super::super) fn waiting_held(&self) -> usize {
        self.parked.values().filter(|it| it.estimate.is_held()).count()
    }

    /// Tells whether the line and the requests kept for it are the same.
    pub(in super::super) fn is_sound(&self) -> bool {
        self.parked.len() == self.line.len() && self.waiting().all(|it| self.line.get(it).is_some())
    }

    /// Gives back what a request holds of its contract: it was never served.
    pub(super) fn refund(&mut self, estimate: &CostEstimate) {
        if let Some(held) = estimate.held {
            self.contracts.holder(estimate.tenant, &held).cancel(held);
        }
    }

    /// Gives back what all that wait hold of their contracts: none of them will be served.
    pub(in super::super) fn refund_all(&mut self) {
        for parked in std::mem::take(&mut self.parked).values() {
            self.refund(&parked.estimate);
        }
    }

    /// Takes back what a request was charged and holds: it was let go and could not be sent.
    pub(super) fn take_back(&mut self, estimate: &CostEstimate) {
        self.refund(estimate);
        self.line.settle(estimate.class, estimate.tenant, estimate.work, Work::ZERO);
    }

    pub(super) fn on_fleet(&mut self, capacity_per_min: Work, kv_tokens: Option<u64>) {
        if capacity_per_min != self.capacity_per_min {
            self.pace.expect(self.capacity_per_min, capacity_per_min);
            self.capacity_per_min = capacity_per_min;
        }
        self.gate.on_room(kv_tokens);
    }
}
