//! What this brain tells other routers: each booking when it is made, as it goes on and when it ends; changes of
//! replicas' states; orders; the plan, where it leads; now and then a sample of what it believes to be cached. Nothing is told, and nothing is
//! prepared, where the router is alone.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::cluster::{Came, FoundOut, News, Opened};
use crate::domain::{
    Moment, Outline, Place, PromptTail, ReplicaId, RequestId, RouterId, Usage, whole_u32,
};
use crate::fleet::{Load, State};
use crate::policy::Candidate;
use crate::queue::Use;
use crate::sharding::{Assignment, Generation};
use crate::tokens::Lesson;

use super::admission::Bill;
use super::peers::Telling;
use super::request::{Booking, CostEstimate};
use super::{Brain, Order};

/// Progress of a stream is told each time it passes a multiple of this.
const PROGRESS_TOKENS: u32 = 64;
/// How many blocks are told of all caches together, when everything is told.
const BLOCKS_MAX: usize = 400_000;
/// How many are told of one cache that was asked for.
const BLOCKS_OF_ONE_MAX: usize = 100_000;

impl Brain {
    /// Takes what other routers are to be told.
    pub fn take_news(&mut self) -> Vec<Telling> {
        self.peers.take()
    }

    /// Counts the requests that each other router has in flight, as far as this one heard.
    pub fn heard_in_flight(&self) -> Vec<(RouterId, usize)> {
        self.peers.counts().collect()
    }

    /// Lists what this brain has in flight at replicas that there are.
    pub fn booked(&self) -> Vec<(RequestId, Place)> {
        let booked = self.books.iter().filter_map(|(request, booking)| {
            Some((*request, self.fleet.get(booking.replica)?.place))
        });
        booked.collect()
    }

    /// Lists what another router has in flight, as far as this one heard, at replicas that there are.
    pub fn booked_by(&self, router: RouterId) -> Vec<(RequestId, Place)> {
        let booked = self.peers.bookings_of(router).filter_map(|(request, booking)| {
            Some((request, self.fleet.get(booking.replica)?.place))
        });
        booked.collect()
    }

    /// Tells whether something is still booked that a lost router should have done for this long.
    pub fn holds_of_lost(&self, now: Moment, slack: Duration) -> bool {
        self.peers.is_overdue(now, slack)
    }

    /// Tells whether this brain plans, also for others.
    pub const fn leads(&self) -> bool {
        self.placement.leads()
    }

    /// The generation of the assignment that this brain goes by.
    pub fn generation(&self) -> Generation {
        self.placement.assignment().generation()
    }

    /// What should outlive all routers: the orders that they share, with their stamps, and the plan.
    pub fn lasting(&self) -> (Vec<News>, Arc<Assignment>) {
        let orders = self.placement.shared().into_iter();
        let orders = orders.map(|(order, stamp)| News::Ordered { order, stamp }).collect();
        (orders, Arc::clone(self.placement.assignment()))
    }

    /// Lists everything that a router must be told that knows nothing: orders, what is in flight, states, homes of
    /// sessions, and what lies in caches, the newest of it.
    pub fn whole(&mut self, now: Moment) -> Vec<News> {
        let orders = self.placement.shared().into_iter();
        let mut all: Vec<News> =
            orders.map(|(order, stamp)| News::Ordered { order, stamp }).collect();
        let assignment = self.placement.assignment();
        all.extend((!assignment.is_empty()).then(|| News::Assigned(Arc::clone(assignment))));
        for (request, booking) in self.books.iter() {
            let Some(it) = self.fleet.get(booking.replica) else { continue };
            // It is charged to its tenant already, by what is told of contracts.
            let (tenant, (work, tokens)) = spent(booking);
            let opened = Opened {
                request: *request,
                replica: it.place,
                key: booking.key,
                charge: booking.account.charge,
                expected_ms: booking.account.expected_ms,
                tenant,
                work,
                tokens,
                ..Opened::default()
            };
            all.push(News::Opened(Box::new(opened)));
            all.extend(booking.account.is_read.then_some(News::Begun { request: *request }));
        }
        all.push(self.own_waiting(now));
        self.list_found(now, &mut all);
        for it in self.fleet.iter().filter(|it| it.state().reason.is_some()) {
            all.push(News::Stood { replica: it.place, state: it.state() });
        }
        for (key, home) in self.placement.homes_apart(now, &self.fleet) {
            let home = self.fleet.get(home);
            all.extend(home.map(|it| News::Home { key, replica: it.place }));
        }
        let ids: Vec<ReplicaId> = self.fleet.iter().map(|it| it.id).collect();
        let mut sent = FxHashSet::default();
        let each = BLOCKS_MAX / ids.len().max(1);
        for it in ids {
            self.list_cached(it, each, &mut sent, &mut all);
        }
        all
    }

    /// Lists what lies in the cache of a replica.
    pub(super) fn list_cached(
        &mut self,
        replica: ReplicaId,
        blocks_max: usize,
        sent: &mut FxHashSet<u64>,
        into: &mut Vec<News>,
    ) {
        let Some(place) = self.fleet.get(replica).map(|it| it.place) else { return };
        let block_tokens = self.peers.block_tokens();
        let Some(index) = self.placement.index() else { return };
        let chains = index.held_chains(replica, blocks_max, sent).into_iter();
        into.extend(chains.map(|chain| News::Cached { replica: place, block_tokens, chain }));
    }

    /// Tells one router all that lies in the cache of a replica.
    pub(super) fn tell_cached(&mut self, to: RouterId, replica: ReplicaId) {
        let mut all = Vec::new();
        self.list_cached(replica, BLOCKS_OF_ONE_MAX, &mut FxHashSet::default(), &mut all);
        for it in all {
            self.peers.tell_one(to, it);
        }
    }

    /// Says what a prompt adds to caches, before it is noted where it goes; `None` where nothing is told.
    pub(super) fn chain_of(&mut self, outline: &Outline) -> Option<PromptTail> {
        self.peers.note_block_tokens(outline.block_tokens);
        self.peers.own()?;
        Some(self.placement.index().map(|it| it.added(&outline.blocks)).unwrap_or_default())
    }

    pub(super) fn tell_opened(
        &mut self,
        request: RequestId,
        booking: &mut Booking,
        to: &Candidate,
        chain: Option<PromptTail>,
    ) {
        let output = f64::from(booking.outline.output_tokens.unwrap_or(0));
        let expected_ms = whole_u32(booking.account.ttft_ms + output * to.load.gap_ms());
        booking.account.expected_ms = expected_ms;
        let Some(chain) = chain else { return };
        let (tenant, (work, tokens)) = spent(booking);
        self.peers.tell(News::Opened(Box::new(Opened {
            request,
            replica: to.place,
            key: booking.key,
            charge: booking.account.charge,
            expected_ms,
            tenant,
            work,
            tokens,
            is_first_try: booking.past.tried.is_empty(),
            adapter: booking.outline.adapter,
            block_tokens: booking.outline.block_tokens,
            chain,
        })));
    }

    /// Tells what waits here, where that has changed much.
    pub(super) fn tell_waiting(&mut self, now: Moment) {
        if self.peers.own().is_some() && self.admission.is_waiting_news(now) {
            self.peers.tell(self.own_waiting(now));
        }
    }

    fn own_waiting(&self, now: Moment) -> News {
        News::Waiting { classes: self.admission.waiting_told(now).collect() }
    }

    pub(super) fn tell_begun(&mut self, request: RequestId) {
        self.peers.tell(News::Begun { request });
    }

    /// Tells how far a stream has come that had `before` tokens.
    pub(super) fn tell_progress(&mut self, request: RequestId, before: u32) {
        if self.peers.own().is_none() {
            return;
        }
        let Some(account) = self.books.get(request).map(|it| &it.account) else { return };
        if before / PROGRESS_TOKENS != account.streamed_tokens / PROGRESS_TOKENS {
            let left = Load { prefill_us: 0, ..account.charge };
            self.peers.tell(News::Progressed { request, left });
        }
    }

    /// Tells that a try is over that came to nothing.
    pub(super) fn tell_failed(&mut self, request: RequestId) {
        self.peers.tell(News::Ended { request, came: None });
    }

    /// Tells what a request came to.
    pub(super) fn tell_ended(&mut self, request: RequestId, booking: &Booking, bill: &Bill) {
        if self.peers.own().is_none() {
            return;
        }
        let Some(it) = self.fleet.get(booking.replica) else { return };
        let is_held = booking.estimate.held.is_some_and(|it| it.usage != Use::BestEffort);
        let work = crate::queue::Work::from_mu(it.hardware.mu(bill.cost_ms));
        let (work, tokens) = if is_held { (work.parts(), bill.tokens) } else { (0, 0) };
        let came = Came {
            prompt_tokens: bill.prompt_tokens,
            output_tokens: bill.output_tokens.unwrap_or(0),
            work,
            tokens,
        };
        self.peers.tell(News::Ended { request, came: Some(came) });
    }

    /// Tells what an answer teaches of lengths.
    pub(super) fn tell_lesson(&mut self, booking: &Booking, usage: Usage, is_whole: bool) {
        if self.peers.own().is_none() {
            return;
        }
        let Booking { key, extent, outline, .. } = booking;
        let lesson = Lesson::of(*key, extent, outline, usage, is_whole);
        let is_empty = |it: &Lesson| it.text.is_none() && it.output_tokens.is_none();
        if let Some(lesson) = lesson.filter(|it| !is_empty(it)) {
            self.peers.tell_found(FoundOut::Taught(Box::new(lesson)));
        }
    }

    /// Tells of a request that was refused for lack of room.
    pub(super) fn tell_turned_away(&mut self, mark: Option<u64>) {
        if let Some(mark) = mark.filter(|it| *it != 0) {
            self.peers.tell_found(FoundOut::TurnedAway { mark });
        }
    }

    pub(super) fn tell_state(&mut self, replica: ReplicaId, state: State) {
        if let Some(it) = self.fleet.get(replica) {
            self.peers.tell(News::Stood { replica: it.place, state });
        }
    }

    /// Tells of an order, where it concerns other routers too.
    pub(super) fn tell_order(&mut self, order: &Order) {
        let Some(own) = self.peers.own() else { return };
        if let Some((order, stamp)) = self.placement.share(order, own, &self.fleet) {
            self.peers.tell(News::Ordered { order, stamp });
        }
    }

    /// Tells that this brain was built anew.
    pub(super) fn tell_forgot(&mut self) {
        self.peers.tell(News::Forgot);
    }

    /// Tells which generation this router goes by, and of a new one that it planned itself, all of it.
    pub(super) fn tell_plan(&mut self) {
        let assignment = self.placement.assignment();
        if self.peers.own().is_none() || assignment.is_empty() {
            return;
        }
        let (assignment, generation) = (Arc::clone(assignment), assignment.generation());
        if self.placement.leads() && self.peers.is_plan_new(generation) {
            self.peers.tell(News::Assigned(assignment));
        }
        self.peers.tell(News::Planned { generation });
    }

    /// Tells a sample of what one replica is believed to hold, each time of the next one.
    pub(super) fn tell_sample(&mut self) {
        let Some((replica, place)) = self.peers.next_sampled(&self.fleet) else { return };
        if let Some(index) = self.placement.index() {
            let held = u64::try_from(index.held(replica)).unwrap_or(u64::MAX);
            let sample = index.sample(replica);
            self.peers.tell(News::Sampled { replica: place, held, sample });
        }
    }
}

/// Says what a request was reserved for its tenant: work and tokens.
fn spent(booking: &Booking) -> (u64, (u64, u64)) {
    let CostEstimate { tenant, work, tokens, held, .. } = booking.estimate;
    let is_held = held.is_some_and(|it| it.usage != Use::BestEffort);
    (tenant.0, if is_held { (work.parts(), tokens) } else { (0, 0) })
}
