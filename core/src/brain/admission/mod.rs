//! Admission: may a request go now, must it wait, or is it refused? This machine owns the line with the requests
//! that wait in it, contracts, the gate for sessions, the knees of the replicas, and the pace at which the line
//! moves. The order is the queue's. It sees no other machine: the brain hands in what the fleet and the
//! candidates look like, and carries the answer to placement.

mod assess;
mod capacity;
mod elsewhere;
pub(super) mod groups;
mod headroom;
mod knee;
mod lanes;
mod reach;
mod reading;
mod retry_budget;
mod settle;
mod turns;
mod waiting;

use std::time::Duration;

use crate::domain::{Moment, Promise, RequestId, span_of_ms};
use crate::fleet::Replica;
use crate::queue::{Claim, ClassId, Contracts, Gate, OverContract, Ticket, Use, Work};
use crate::scaling::Offered;

use super::event::Refusal;
use super::request::CostEstimate;
use super::settings::{LineSettings, RetrySettings};

pub(super) use assess::{Arrival, Parked};
use capacity::FleetCapacity;
use elsewhere::LinesElsewhere;
use headroom::Headroom;
use knee::Knees;
use lanes::{Fill, LaneKey, Limit, Scene};
pub(super) use lanes::{Fills, RoomLimits};
pub(super) use reach::Reach;
use reach::Reaches;
pub(super) use retry_budget::RetryBudget;
pub(super) use settle::Bill;
pub use waiting::Cause;
use waiting::Waiting;

/// Capacity is idle below this part of a class's limits: requests beyond their contract may use it.
const IDLE_PART: f64 = 0.5;
/// How far past its limits a session's own replica may be and still get it when others have room: its
/// cache is there.
const HOME_PART: f64 = 1.5;

#[derive(Debug)]
pub(super) struct Admission {
    settings: LineSettings,
    pub(super) waiting: Waiting,
    contracts: Contracts,
    gate: Gate,
    knees: Knees,
    headroom: Headroom,
    reaches: Reaches,
    /// The buffer of an earlier look, to be used again.
    spare: Vec<Fill>,
    /// What waits at other routers, and whose turn it is where several have a line.
    elsewhere: LinesElsewhere,
    pub(super) capacity: FleetCapacity,
    /// The work that is asked for, which the pool is sized by.
    pub(super) offered: Offered,
    /// What retries may add to the load.
    pub(super) retries: RetryBudget,
}

impl Admission {
    pub(super) fn new(settings: &LineSettings, retries: RetrySettings, seed: u64) -> Self {
        let headroom = Headroom::new(&settings.classes);
        Self {
            waiting: Waiting::new(settings),
            contracts: Contracts::default(),
            gate: Gate::new(settings.gate),
            knees: Knees::new(headroom.replica_wait_min()),
            headroom,
            reaches: Reaches::default(),
            spare: Vec::new(),
            elsewhere: LinesElsewhere::new(seed),
            capacity: FleetCapacity::default(),
            offered: Offered::default(),
            retries: RetryBudget::new(retries),
            settings: settings.clone(),
        }
    }

    /// What the class of a claim promises.
    pub(super) fn promise(&self, claim: &Claim) -> Promise {
        let classes = &self.settings.classes;
        classes.promise(claim.class.unwrap_or(classes.default_id()))
    }

    /// Reserves what a request will use of its contract, and counts it. It may go to `replicas`: a request beyond its
    /// contract may use idle capacity there.
    pub(super) fn reserve<'a>(
        &mut self,
        now: Moment,
        parked: &mut Parked,
        replicas: impl Iterator<Item = (&'a Replica, f64)>,
    ) -> Result<(), OverContract> {
        let CostEstimate { class, tenant, work, tokens, .. } = parked.estimate;
        self.headroom.on_arrival(now, class.index(), work);
        let held = self.contracts.account(tenant).reserve(now, work, tokens);
        if held.usage == Use::BestEffort {
            let is_hard = self.contracts.account(tenant).is_hard();
            let is_idle = !is_hard && self.has_idle(now, class, replicas);
            if !is_idle {
                let account = self.contracts.holder(tenant, &held);
                account.cancel(held);
                return Err(account.over(work, tokens));
            }
        }
        parked.estimate.held = Some(held);
        if held.usage == Use::BestEffort {
            self.offered.on_beyond(work.as_mu());
        } else {
            self.offered.on_arrival(now, parked.fingerprint.0, work.as_mu());
        }
        Ok(())
    }

    /// Tells whether one of these is idle enough for a request of a class that is beyond its contract.
    fn has_idle<'a>(
        &self,
        now: Moment,
        class: ClassId,
        mut replicas: impl Iterator<Item = (&'a Replica, f64)>,
    ) -> bool {
        let limit = self.headroom.limit(class.index()).times(IDLE_PART);
        let level = |it: &Replica| self.knees.fill(now, it);
        let fill = |it: &Replica, wait_ms| Fill { level: level(it), wait_ms, ..Fill::empty(it.id) };
        self.waiting.line().is_empty()
            && replicas.any(|(it, wait_ms)| limit.admits(&fill(it, wait_ms)))
    }

    /// Works out what each class may take now, and how full these replicas are, in order of id: each with how long
    /// the next prompt would wait there.
    pub(super) fn look<'a>(
        &mut self,
        now: Moment,
        replicas: impl Iterator<Item = (&'a Replica, f64)>,
    ) -> Fills {
        let (line, elsewhere) = (self.waiting.line(), &self.elsewhere);
        self.headroom.look(now, line, |it| elsewhere.work(it), self.capacity.per_min());
        let mut fills = std::mem::take(&mut self.spare);
        self.fill_all(now, replicas, &mut fills);
        if self.takes_turns() {
            let share = self.share(now);
            self.elsewhere.turns.take(now, self.headroom.widest(), share, &mut fills);
        }
        Fills(fills)
    }

    /// Takes a look back that is done with, for its buffer.
    pub(super) fn recycle(&mut self, fills: Fills) {
        self.spare = fills.0;
    }

    fn fill_all<'a>(
        &self,
        now: Moment,
        replicas: impl Iterator<Item = (&'a Replica, f64)>,
        into: &mut Vec<Fill>,
    ) {
        // Where requests are not held, every replica has room. Held for itself only, a class is held by evidence:
        // hardware that was never calibrated may well run more answers at once than was predicted of it.
        let (holds, is_alone) = (self.settings.holds, self.headroom.is_alone());
        let knee = if is_alone { Knees::fill_shown } else { Knees::fill };
        let (gap_ms, is_long) =
            (self.settings.classes.token_gap_ms(), self.headroom.limits_reading());
        let reading = |it| if is_long { reading::level(now, it, gap_ms) } else { 0.0 };
        let level = |it| knee(&self.knees, now, it);
        into.clear();
        into.extend(replicas.map(|(it, wait_ms)| {
            let empty = Fill::empty(it.id);
            if holds {
                Fill { level: level(it), wait_ms, reading: reading(it), ..empty }
            } else {
                empty
            }
        }));
    }

    /// Tells whether a request may go to one of these without joining the line.
    pub(super) fn admits(&self, parked: &Parked, fills: &Fills) -> bool {
        let nobody_waits = self.waiting.line().is_empty();
        let is_first = nobody_waits && !self.elsewhere.has_equal(parked.estimate.class);
        is_first && self.scene(&fills.0).admits(parked.lane(), fills.0.iter())
    }

    /// Makes the ticket of a request that is to join the line.
    pub(super) fn ticket(&self, now: Moment, request: RequestId, parked: &Parked) -> Ticket {
        let estimate = &parked.estimate;
        let waited_out = now + self.settings.classes.get(estimate.class).wait_max;
        Ticket {
            request,
            class: estimate.class,
            tenant: estimate.tenant,
            weight: estimate.weight,
            lane: parked.lane().into(),
            deadline: estimate.due.sent_by,
            target: estimate.target,
            expires_at: estimate.due.sent_by.map_or(waited_out, |it| it.min(waited_out)),
            work: estimate.work,
            bytes: estimate.bytes,
        }
    }

    /// Has a request join the line. Those that make room for it are returned; it is refused if it has no
    /// place there, or would leave too late.
    pub(super) fn join(
        &mut self,
        now: Moment,
        ticket: Ticket,
        parked: Parked,
        displaced: &mut Vec<(RequestId, Refusal)>,
    ) -> Result<(), Refusal> {
        let wait = self.waiting.predict(now, &ticket);
        if parked.estimate.due.sent_by.is_some_and(|it| it < now + wait) {
            self.refund(&parked.estimate);
            return Err(Refusal::DeadlineUnmeetable {
                retry_after: self.waiting.retry_after(now, &ticket),
            });
        }
        let (mark, mu) = (parked.fingerprint.0, parked.estimate.work.as_mu());
        let mut gone = Vec::new();
        let rejected = self.waiting.join(now, ticket, parked, &mut gone);
        for (request, parked, retry_after) in gone {
            self.refund(&parked.estimate);
            displaced.push((request, Refusal::LineFull { retry_after }));
        }
        if let Some(parked) = rejected {
            self.refund(&parked.estimate);
            return Err(Refusal::LineFull { retry_after: self.waiting.retry_after(now, &ticket) });
        }
        self.offered.on_waiting(ticket.request, mark, mu);
        Ok(())
    }

    /// Says what a request that joins the line waits for, how much goes before it and how long that takes, where it may
    /// go to one of these, and all that are open are those.
    pub(super) fn prospect<'a>(
        &self,
        now: Moment,
        ticket: &Ticket,
        fills: &Fills,
        open: impl Iterator<Item = (&'a Replica, f64)>,
    ) -> (Cause, Work, Duration) {
        let (fills, mut all) = (fills.0.iter(), Vec::new());
        self.fill_all(now, open, &mut all);
        let cause = self.scene(&all).cause(LaneKey::from(ticket.lane), fills.clone());
        // First some replica must have room, then those before it go.
        let limit = self.headroom.limit(ticket.class.index());
        let opens_ms = fills.map(|it| (it.wait_ms - limit.wait_ms).max(0.0));
        let opens_ms = opens_ms.fold(f64::INFINITY, f64::min);
        let opens = if opens_ms.is_finite() { opens_ms } else { 0.0 };
        let wait = self.waiting.predict(now, ticket) + span_of_ms(opens);
        (cause, self.waiting.line().ahead(now, ticket), wait)
    }

    /// Takes out a request whose time is over, and says why it is refused.
    pub(super) fn expired(&mut self, now: Moment) -> Option<(RequestId, Refusal)> {
        let (ticket, parked) = self.waiting.expired(now)?;
        let retry_after = self.waiting.retry_after(now, &ticket);
        let refusal = if ticket.deadline.is_some_and(|it| it <= ticket.expires_at) {
            Refusal::DeadlinePassed { retry_after }
        } else if LaneKey::from(ticket.lane).is_fresh && !self.gate.is_open() {
            Refusal::SessionsFull { retry_after }
        } else {
            Refusal::WaitedOut { retry_after }
        };
        if let Some(parked) = parked {
            self.refund(&parked.estimate);
        }
        Some((ticket.request, refusal))
    }

    /// Says when a request is to be looked at again: it leaves unserved, or its turn comes.
    pub(super) fn next_wakeup(&self) -> Option<Moment> {
        let turn = if self.takes_turns() { self.elsewhere.turns.next() } else { None };
        [self.waiting.line().next_expiry(), turn].into_iter().flatten().min()
    }

    /// Takes out the request that goes next, if any may go to one of these.
    pub(super) fn next(&mut self, now: Moment, open: &Fills) -> Option<(RequestId, Parked)> {
        if self.takes_turns() {
            self.elsewhere.turns.keep(open);
        }
        let Self { waiting, gate, headroom, reaches, .. } = self;
        let (request, parked) =
            waiting.next(now, Scene { gate, headroom, reaches, fills: &open.0 })?;
        self.offered.on_left(request);
        Some((request, parked))
    }

    /// Takes a request out of the line whose client left, and gives back what it holds; tells whether it was there.
    pub(super) fn leave(&mut self, request: RequestId) -> bool {
        self.offered.on_left(request);
        let parked = self.waiting.take(request);
        if let Some(parked) = &parked {
            self.refund(&parked.estimate);
        }
        parked.is_some()
    }

    /// Counts a request that is refused before it could wait. Returns what marks it if that is for lack of replicas
    /// that take it.
    pub(super) fn count_refused(
        &mut self,
        now: Moment,
        mark: u64,
        mu: f64,
        refusal: Refusal,
    ) -> Option<u64> {
        match refusal {
            Refusal::OverContract { .. } => self.offered.on_beyond(mu),
            Refusal::NoReplica { .. }
            | Refusal::Unauthorized
            | Refusal::LineFull { .. }
            | Refusal::DeadlineUnmeetable { .. }
            | Refusal::DeadlinePassed { .. }
            | Refusal::WaitedOut { .. }
            | Refusal::SessionsFull { .. } => {
                self.offered.on_refused(now, mark, mu);
                return Some(mark);
            }
            Refusal::TriesSpent
            | Refusal::BudgetSpent
            | Refusal::Quarantined { .. }
            | Refusal::Suspected { .. }
            | Refusal::Restarted { .. }
            | Refusal::NotKept => {}
        }
        None
    }

    /// Says how far a request may fill a replica, and its own replica.
    pub(super) fn limits(&self, parked: &Parked) -> RoomLimits {
        let mut limits = self.headroom.limits_in(parked.lane());
        if parked.estimate.held.is_some_and(|it| it.usage == Use::BestEffort) {
            limits = limits.times(IDLE_PART);
        } else if self.headroom.is_alone()
            && self.waiting.line().is_empty()
            && self.elsewhere.is_empty()
        {
            // There is no other class to leave room for, and the policy knows what a full replica costs.
            limits = RoomLimits { anywhere: Limit::NONE, at_home: Limit::NONE, ..limits };
        }
        RoomLimits { at_home: limits.at_home.times(HOME_PART), ..limits }
    }

    /// The same for a replica that costs clearly less than all with room.
    pub(super) fn limits_if_cheaper(&self, parked: &Parked) -> RoomLimits {
        let limits = self.limits(parked);
        if parked.estimate.held.is_some_and(|it| it.usage == Use::BestEffort) {
            return limits;
        }
        self.headroom.limits_if_cheaper(parked.lane(), limits)
    }

    fn scene<'a>(&'a self, fills: &'a [Fill]) -> Scene<'a> {
        let Self { gate, headroom, reaches, .. } = self;
        Scene { gate, headroom, reaches, fills }
    }
}
