//! What is held, and the books around it: the line with the requests that wait in it, contracts, the
//! gate, the knees of the replicas and the pace at which the line moves.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::cost::Hardware;
use crate::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey, span_ms, span_of_ms};
use crate::policy::Ask;
use crate::queue::{
    Admission, Claim, ClassId, Contracts, DrainRate, Gate, Lane, Line, Reservation, Tenant, Ticket,
    Weight, Work,
};

use super::super::booking::Booking;
use super::super::knee::Knees;
use super::super::settings::LineSettings;
use super::headroom::Headroom;
use super::lanes::{Fill, LaneKey, Scene};
use super::reach::Reaches;

/// A request aims at its class's first-token target less this part of it: what it finds at a replica, and
/// what joins it there, takes longer than its own prompt.
const MARGIN: f64 = 0.25;

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
    /// Where its session was last, if that may take it.
    pub(super) home: Option<ReplicaId>,
    /// Whether its workload may use only some of the replicas.
    pub(super) is_divided: bool,
    pub(super) admission: Admission,
    pub(super) toll: Toll,
}

/// What a request is expected to cost, and what it holds until it is known.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Toll {
    pub(in super::super) class: ClassId,
    /// Within what its class promises the first token.
    pub(in super::super) first_token: Option<Duration>,
    pub(in super::super) tenant: Tenant,
    pub(super) weight: Weight,
    pub(super) work: Work,
    /// Tokens of prompt and answer.
    pub(super) tokens: u64,
    /// Whether its prompt takes so long to read that it must leave a door open.
    pub(super) is_long: bool,
    /// What was asked of it in time.
    pub(in super::super) due: Due,
    /// When it should be sent to meet its class's target.
    pub(super) target: Option<Moment>,
    /// How long its first token takes on a replica that has nothing else to do.
    pub(super) first_token_ms: f64,
    pub(super) bytes: usize,
    pub(super) held: Option<Reservation>,
}

impl Toll {
    /// Tells whether it holds something of a contract.
    pub(in super::super) const fn is_held(&self) -> bool {
        self.held.is_some()
    }
}

impl Parked {
    pub(super) fn lane(&self) -> LaneKey {
        LaneKey {
            class: self.toll.class.0,
            is_fresh: self.admission == Admission::Wait,
            is_long: self.toll.is_long,
            workload: self.is_divided.then(|| self.key.workload()),
            home: self.home,
        }
    }

    pub(super) fn ask(&self, now: Moment) -> Ask<'_> {
        let first_token = self.toll.first_token;
        Ask { now, key: self.key, outline: &self.outline, first_token }
    }

    pub(super) fn booking(self, replica: ReplicaId) -> Booking {
        Booking::new(self.key, self.outline, self.extent, replica, self.toll)
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
        let toll = &parked.toll;
        let class = toll.class.index().min(self.waits_max.len() - 1);
        let waited_out = now + self.waits_max[class];
        Ticket {
            request,
            class: toll.class,
            tenant: toll.tenant,
            weight: toll.weight,
            lane,
            deadline: toll.due.sent_by,
            target: toll.target,
            expires_at: toll.due.sent_by.map_or(waited_out, |it| it.min(waited_out)),
            work: toll.work,
            bytes: toll.bytes,
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
        self.parked.values().filter(|it| it.toll.is_held()).count()
    }

    /// Tells whether the line and the requests kept for it are the same.
    pub(in super::super) fn is_sound(&self) -> bool {
        self.parked.len() == self.line.len() && self.waiting().all(|it| self.line.get(it).is_some())
    }

    /// Gives back what a request holds of its contract: it was never served.
    pub(super) fn refund(&mut self, toll: &Toll) {
        if let Some(held) = toll.held {
            self.contracts.holder(toll.tenant, &held).cancel(held);
        }
    }

    /// Gives back what all that wait hold of their contracts: none of them will be served.
    pub(in super::super) fn refund_all(&mut self) {
        for parked in std::mem::take(&mut self.parked).values() {
            self.refund(&parked.toll);
        }
    }

    /// Takes back what a request was charged and holds: it was let go and could not be sent.
    pub(super) fn take_back(&mut self, toll: &Toll) {
        self.refund(toll);
        self.line.settle(toll.class, toll.tenant, toll.work, Work::ZERO);
    }

    pub(super) fn on_fleet(&mut self, capacity_per_min: Work, kv_tokens: Option<u64>) {
        if capacity_per_min != self.capacity_per_min {
            self.pace.expect(self.capacity_per_min, capacity_per_min);
            self.capacity_per_min = capacity_per_min;
        }
        self.gate.on_room(kv_tokens);
    }
}

/// Works out when a request should be sent to meet its class's target.
pub(super) fn target(now: Moment, first_token: Duration, first_token_ms: f64) -> Moment {
    before(now + span_of_ms(span_ms(first_token) * (1.0 - MARGIN)), first_token_ms)
}

/// By when what must have happened; whatever was not asked for is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Due {
    /// When it must be sent to be in time at a replica that has nothing else to do.
    pub(super) sent_by: Option<Moment>,
    /// When its first token must be there.
    pub(in super::super) first_token_by: Option<Moment>,
}

impl Due {
    /// Works out what follows from a claim for a request whose first token takes so long on an idle
    /// replica.
    pub(super) fn new(
        claim: &Claim,
        first_token_ms: f64,
        hardware: &Hardware,
        output_tokens: u32,
    ) -> Self {
        // Nobody writes faster than alone.
        let answer_ms = hardware.step.floor_ms * f64::from(output_tokens);
        let done = claim.done_by.map(|it| before(it, answer_ms));
        let first_token_by = [claim.first_token_by, done].into_iter().flatten().min();
        let sent = first_token_by.map(|it| before(it, first_token_ms));
        let sent_by = [claim.sent_by, sent].into_iter().flatten().min();
        Self { sent_by, first_token_by }
    }

    /// Tells whether it can be in time at a replica where the next one waits so long, and its own
    /// first token comes after so long if that is known.
    pub(in super::super) fn can_be_met(
        self,
        now: Moment,
        wait_ms: f64,
        first_token_ms: Option<f64>,
    ) -> bool {
        let is_met = |by: Option<Moment>, ms: f64| by.is_none_or(|it| now <= before(it, ms));
        match first_token_ms {
            Some(ms) => is_met(self.first_token_by, ms),
            None => is_met(self.sent_by.filter(|_| self.first_token_by.is_some()), wait_ms),
        }
    }
}

pub(super) fn before(at: Moment, ms: f64) -> Moment {
    let nanos = micros(ms).saturating_mul(1_000);
    Moment::from_nanos(at.as_nanos().saturating_sub(nanos))
}

/// Rounds milliseconds to whole microseconds; what is below zero or no number is nothing.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates at the ends and NaN is 0, which is what is wanted"
)]
pub(super) fn micros(ms: f64) -> u64 {
    (ms * 1e3) as u64
}
