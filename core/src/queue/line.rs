//! The line itself. Order: class by weight, then tenant by the work received, then earliest
//! deadline; each step is a logarithm of the number of waiting requests. Bounded in number and
//! bytes, and every request carries the moment at which it leaves unserved. When the line is full,
//! room is made where the most waits for its weight: a tenant that floods the line displaces its
//! own requests, and no other tenant is turned away for it.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::domain::{Moment, RequestId};

use super::class::{ClassId, Classes, Weight};
use super::fair::{Fair, virtual_of};
use super::tenant_queue::TenantQueue;
use super::work::{Work, WorkSum};

/// How far ahead of the least served a tenant may get because its cache is where there is room, as
/// work at weight 1. The order within a tenant never bends.
const DEFICIT: Work = Work::from_parts(1_000_000);
/// How many tenants are looked at for it.
const LOOKS_MAX: usize = 8;
/// How many of a tenant's own are added up exactly to predict a wait.
const COUNTED_MAX: usize = 256;

/// The tenant of a request; 0 for all requests that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u64);

/// Requests of one lane can be sent to the same places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u64);

/// One request in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub request: RequestId,
    pub class: ClassId,
    pub tenant: Tenant,
    /// The tenant's share among those of its class.
    pub weight: Weight,
    pub lane: Lane,
    /// When it must have begun, where that was said.
    pub deadline: Option<Moment>,
    /// When it should have begun for its class's target, where there is one.
    pub target: Option<Moment>,
    /// When it leaves the line unserved.
    pub expires_at: Moment,
    /// What it is expected to cost.
    pub work: Work,
    /// What it holds in memory while it waits.
    pub bytes: usize,
}

impl Ticket {
    /// Orders tickets of one tenant and class.
    pub fn due(&self) -> Moment {
        self.deadline.or(self.target).unwrap_or(Moment::from_nanos(u64::MAX))
    }
}

/// How long the line may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    pub count_max: usize,
    pub bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { count_max: 10_000, bytes_max: 256 << 20 }
    }
}

/// The line has no room for this request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What waits of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSnapshot {
    pub count: usize,
    pub work: Work,
}

#[derive(Debug)]
pub struct Line {
    settings: QueueLimits,
    weights: Vec<Weight>,
    classes: Fair<ClassId>,
    /// By class.
    rooms: Vec<Room>,
    tickets: IndexMap<RequestId, (u64, Ticket), FxBuildHasher>,
    expiry: BTreeSet<(Moment, RequestId)>,
    /// How much each tenant has waiting, for its weight.
    fattest: BTreeSet<(u128, ClassId, Tenant)>,
    lanes: BTreeMap<Lane, u32>,
    bytes: usize,
    seq: u64,
}

/// What waits of one class, by tenant.
#[derive(Debug, Default)]
struct Room {
    tenants: Fair<Tenant>,
    queues: FxHashMap<Tenant, TenantQueue>,
    /// When each is due.
    dues: BTreeSet<(Moment, RequestId)>,
    count: usize,
    work: WorkSum,
}

impl Line {
    pub fn new(settings: QueueLimits, classes: &Classes) -> Self {
        let weights: Vec<Weight> = classes.iter().map(|it| it.1.weight).collect();
        Self {
            settings,
            classes: Fair::default(),
            rooms: weights.iter().map(|_| Room::default()).collect(),
            weights,
            tickets: IndexMap::default(),
            expiry: BTreeSet::new(),
            fattest: BTreeSet::new(),
            lanes: BTreeMap::new(),
            bytes: 0,
            seq: 0,
        }
    }

    /// Takes a request in. Requests that must make room for it are appended to `displaced`.
    pub fn join(&mut self, ticket: Ticket, displaced: &mut Vec<Ticket>) -> Result<(), Full> {
        let ticket = Ticket { class: self.known(ticket.class), ..ticket };
        if self.tickets.contains_key(&ticket.request) || self.settings.bytes_max < ticket.bytes {
            return Err(Full);
        }
        while !self.has_room(ticket.bytes) {
            let victim = self.fatter_than(&ticket).ok_or(Full)?;
            displaced.extend(self.remove(victim));
        }
        self.seq += 1;
        self.expiry.insert((ticket.expires_at, ticket.request));
        *self.lanes.entry(ticket.lane).or_default() += 1;
        self.bytes += ticket.bytes;
        self.classes.enter(ticket.class, self.weight_of(ticket.class));
        self.unnote(ticket.class, ticket.tenant);
        let room = &mut self.rooms[ticket.class.index()];
        room.tenants.enter(ticket.tenant, ticket.weight);
        room.queues.entry(ticket.tenant).or_default().put(&ticket, self.seq);
        room.dues.insert((ticket.due(), ticket.request));
        room.count += 1;
        room.work.add(ticket.work);
        self.tickets.insert(ticket.request, (self.seq, ticket));
        self.note(&ticket);
        Ok(())
    }

    /// Charges a request that did not have to wait, as if it had.
    pub fn pass(&mut self, class: ClassId, tenant: Tenant, weight: Weight, work: Work) {
        let class = self.known(class);
        self.classes.pass(class, self.weight_of(class), work);
        self.rooms[class.index()].tenants.pass(tenant, weight, work);
    }

    /// Takes out the next request among those whose lane is open. Between tenants that are about
    /// equally served, one whose request is `near` goes first.
    pub fn next(
        &mut self,
        now: Moment,
        mut open: impl FnMut(Lane) -> bool,
        mut near: impl FnMut(&Ticket) -> bool,
    ) -> Option<Ticket> {
        if !self.lanes.keys().any(|it| open(*it)) {
            return None;
        }
        let chosen = self.classes.order().find_map(|(_, class)| {
            self.rooms[class.index()].choose(now, &mut open, |it| near(&self.tickets[&it].1))
        })?;
        let ticket = self.remove(chosen)?;
        self.charge(ticket.class, ticket.tenant, ticket.work);
        Some(ticket)
    }

    /// Takes a request out, wherever it stands; its client left, or it must make room.
    pub fn remove(&mut self, request: RequestId) -> Option<Ticket> {
        let (seq, ticket) = self.tickets.swap_remove(&request)?;
        self.expiry.remove(&(ticket.expires_at, request));
        self.bytes -= ticket.bytes;
        if let Some(count) = self.lanes.get_mut(&ticket.lane) {
            *count -= 1;
            if *count == 0 {
                self.lanes.remove(&ticket.lane);
            }
        }
        self.unnote(ticket.class, ticket.tenant);
        let room = &mut self.rooms[ticket.class.index()];
        room.dues.remove(&(ticket.due(), request));
        room.count -= 1;
        room.work.take(ticket.work);
        if let Some(tenant_queue) = room.queues.get_mut(&ticket.tenant) {
            tenant_queue.take(&ticket, seq);
            if tenant_queue.count() == 0 {
                room.queues.remove(&ticket.tenant);
                room.tenants.leave(ticket.tenant);
            }
        }
        if room.count == 0 {
            self.classes.leave(ticket.class);
        }
        self.note(&ticket);
        Some(ticket)
    }

    /// Takes out one whose time has passed; called until there is none.
    pub fn expired(&mut self, now: Moment) -> Option<Ticket> {
        let (_, request) = self.expiry.first().copied().filter(|it| it.0 <= now)?;
        self.remove(request)
    }

    pub fn next_expiry(&self) -> Option<Moment> {
        self.expiry.first().map(|it| it.0)
    }

    /// Corrects what was charged for a request, once it is known what it came to.
    pub fn settle(&mut self, class: ClassId, tenant: Tenant, charged: Work, real: Work) {
        let class = self.known(class);
        self.classes.correct(class, charged, real);
        self.rooms[class.index()].tenants.correct(tenant, charged, real);
    }

    /// Predicts the work that is done before a request that joins now goes: what its tenant has
    /// waiting that is due earlier, and what others get meanwhile. An upper bound that is seldom
    /// far off.
    pub fn ahead(&self, now: Moment, ticket: &Ticket) -> Work {
        let (tenant, weight) = (ticket.tenant, ticket.weight);
        let class = self.known(ticket.class);
        let room = &self.rooms[class.index()];
        let due = ticket.due();
        let own = room.queues.get(&tenant).map_or(Work::ZERO, |it| self.due_by(it, now, due));
        let own_all = room.queues.get(&tenant).map_or(Work::ZERO, TenantQueue::work);
        let others = room.tenants.weight_waiting().saturating_sub(u64::from(weight.thousandths()));
        let in_class =
            own + share(own, others, weight).min(room.work.total().saturating_sub(own_all));
        let elsewhere = self.classes.order().filter(|it| it.1 != class).map(|(_, other)| {
            let weight_other = u64::from(self.weight_of(other).thousandths());
            share(in_class, weight_other, self.weight_of(class))
                .min(self.rooms[other.index()].work.total())
        });
        in_class + elsewhere.sum()
    }

    pub fn get(&self, request: RequestId) -> Option<&Ticket> {
        self.tickets.get(&request).map(|it| &it.1)
    }

    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn work(&self) -> Work {
        self.rooms.iter().map(|it| it.work.total()).sum()
    }

    pub fn class(&self, class: ClassId) -> ClassSnapshot {
        let room = &self.rooms[self.known(class).index()];
        ClassSnapshot { count: room.count, work: room.work.total() }
    }

    /// Says when the last request of a class is lost, of those that wait.
    pub fn last_due(&self, class: ClassId) -> Option<Moment> {
        self.rooms[self.known(class).index()].dues.last().map(|it| it.0)
    }

    /// Lists the lanes in which a request waits.
    pub fn lanes(&self) -> impl Iterator<Item = Lane> + '_ {
        self.lanes.keys().copied()
    }

    pub fn waiting_of(&self, tenant: Tenant) -> usize {
        let queues = self.rooms.iter().filter_map(|it| it.queues.get(&tenant));
        queues.map(TenantQueue::count).sum()
    }

    /// Takes an id from before a reload for the least class there is now.
    fn known(&self, class: ClassId) -> ClassId {
        let last = u8::try_from(self.weights.len() - 1).unwrap_or(u8::MAX);
        ClassId(class.0.min(last))
    }

    fn weight_of(&self, class: ClassId) -> Weight {
        self.weights[class.index()]
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.tickets.len() < self.settings.count_max
            && bytes <= self.settings.bytes_max.saturating_sub(self.bytes)
    }

    fn charge(&mut self, class: ClassId, tenant: Tenant, work: Work) {
        self.classes.serve(class, work);
        self.rooms[class.index()].tenants.serve(tenant, work);
    }

    /// Finds the request to displace for `ticket`: the last of a tenant that has more waiting for
    /// its weight than the ticket's tenant would have with it.
    fn fatter_than(&self, ticket: &Ticket) -> Option<RequestId> {
        let &(most, class, tenant) = self.fattest.last()?;
        let theirs = self.rooms[ticket.class.index()].queues.get(&ticket.tenant);
        let count = theirs.map_or(0, TenantQueue::count) + 1;
        let own = pressure(count, self.weight_of(ticket.class), ticket.weight);
        (own < most).then(|| self.rooms[class.index()].queues[&tenant].last())?
    }

    /// Forgets how much a tenant has waiting for its weight, before that changes.
    fn unnote(&mut self, class: ClassId, tenant: Tenant) {
        let theirs = self.rooms[class.index()].queues.get_mut(&tenant);
        if let Some(before) = theirs.and_then(|it| it.pressure.take()) {
            self.fattest.remove(&(before, class, tenant));
        }
    }

    /// Notes how much a tenant has waiting for its weight.
    fn note(&mut self, ticket: &Ticket) {
        let (class, tenant) = (ticket.class, ticket.tenant);
        let weight = self.weight_of(class);
        if let Some(tenant_queue) = self.rooms[class.index()].queues.get_mut(&tenant) {
            let waiting = pressure(tenant_queue.count(), weight, ticket.weight);
            tenant_queue.pressure = Some(waiting);
            self.fattest.insert((waiting, class, tenant));
        }
    }

    fn due_by(&self, theirs: &TenantQueue, now: Moment, due: Moment) -> Work {
        if COUNTED_MAX < theirs.count() && due == Moment::from_nanos(u64::MAX) {
            return theirs.work();
        }
        let earlier = theirs.due_by(now, due).take(COUNTED_MAX);
        let (count, work) = earlier.fold((0, Work::ZERO), |(count, work), it| {
            (count + 1, work + self.tickets[&it].1.work)
        });
        if count < COUNTED_MAX { work } else { theirs.work() }
    }
}

impl Room {
    fn choose(
        &self,
        now: Moment,
        open: &mut impl FnMut(Lane) -> bool,
        mut near: impl FnMut(RequestId) -> bool,
    ) -> Option<RequestId> {
        let order = self.tenants.order();
        let mut heads = order.filter_map(|(tag, tenant)| {
            let head = self.queues.get(&tenant)?.first(now, &mut *open)?;
            Some((tag, head))
        });
        let (least, first) = heads.next()?;
        if near(first) {
            return Some(first);
        }
        let limit = least.saturating_add(virtual_of(DEFICIT, Weight::ONE));
        let close = heads.take(LOOKS_MAX).take_while(|it| it.0 <= limit).find(|it| near(it.1));
        Some(close.map_or(first, |it| it.1))
    }
}

/// Measures how much waits for a weight.
fn pressure(count: usize, class: Weight, tenant: Weight) -> u128 {
    const STEPS: u128 = 1_000_000_000_000;
    let weight = u128::from(class.thousandths()) * u128::from(tenant.thousandths());
    u128::try_from(count).unwrap_or(0) * STEPS / weight
}

/// Says what weight `others` get while `own` is done for `weight`.
fn share(own: Work, others: u64, weight: Weight) -> Work {
    let parts = u128::from(own.parts()) * u128::from(others) / u128::from(weight.thousandths());
    Work::from_parts(u64::try_from(parts).unwrap_or(u64::MAX))
}
