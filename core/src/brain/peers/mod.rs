//! Peers: what other routers have in flight, and what this one has to tell them. This machine owns the bookings that
//! were heard of, each under its router and number, and the news that wait to be told. It sees no other machine: the
//! ledgers of the replicas are handed in. Where there is no other router it keeps nothing and costs nothing.

mod bookings;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::cluster::{FoundOut, News};
use crate::domain::{Moment, Place, PromptTail, ReplicaId, RequestId, RouterId};
use crate::fleet::Fleet;
use crate::sharding::Generation;

pub(super) use bookings::HeardBooking;
use bookings::RouterBooks;

/// How many other routers are listened to.
const ROUTERS_MAX: usize = 64;
/// News that wait for the driver, which takes them after every event. What does not fit is lost, and found when
/// samples are compared.
const OUTBOX_MAX: usize = 1 << 16;
/// Chains that wait for their beginning.
const AWAITED_MAX: usize = 64;
/// How often a replica's cache is asked for at most.
const ASK_PAUSE: Duration = Duration::from_secs(10);

/// Within this time two routers mean the same restart of a replica.
const RESTART_PAUSE: Duration = Duration::from_secs(10);
/// How often it is told what was learned of costs.
const LEARNED_PAUSE: Duration = Duration::from_secs(10);

/// Something to tell one router, or all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Telling {
    pub to: Option<RouterId>,
    pub news: News,
}

/// A chain whose beginning is not known here and was asked for.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) replica: ReplicaId,
    pub(super) block_tokens: u32,
    pub(super) chain: PromptTail,
}

#[derive(Debug, Default)]
pub(super) struct Peers {
    own: Option<RouterId>,
    outbox: Vec<Telling>,
    routers: BTreeMap<RouterId, RouterBooks>,
    awaited: VecDeque<Awaited>,
    /// How many tokens a block has, as was told last.
    block_tokens: u32,
    /// The replica whose cache was sampled last.
    sampled: Option<ReplicaId>,
    /// When the cache of each replica was asked for last.
    asked: BTreeMap<Place, Moment>,
    /// When each replica was last found to be another process, by any router.
    restarted: BTreeMap<Place, Moment>,
    /// When it was last told what was learned.
    learned_at: Moment,
    /// The last generation that this router planned and told.
    planned: Generation,
}

impl Peers {
    pub(super) fn new(own: Option<RouterId>) -> Self {
        Self { own, ..Self::default() }
    }

    /// This router, if there may be others.
    pub(super) const fn own(&self) -> Option<RouterId> {
        self.own
    }

    /// Notes something to tell all others.
    pub(super) fn tell(&mut self, news: News) {
        self.push(None, news);
    }

    /// Notes something that was found out, for all others.
    pub(super) fn tell_found(&mut self, found: FoundOut) {
        self.tell(News::Found(found));
    }

    /// Notes something to tell one router.
    pub(super) fn tell_one(&mut self, to: RouterId, news: News) {
        self.push(Some(to), news);
    }

    fn push(&mut self, to: Option<RouterId>, news: News) {
        if self.own.is_some() && self.outbox.len() < OUTBOX_MAX {
            self.outbox.push(Telling { to, news });
        }
    }

    /// Takes what is to be told; allocates nothing where there is nothing.
    pub(super) fn take(&mut self) -> Vec<Telling> {
        std::mem::take(&mut self.outbox)
    }

    /// Notes that a router is there. Returns its books, unless there are too many routers or it is this one. A router
    /// that is alone hears of its predecessor only.
    pub(super) fn meet(&mut self, router: RouterId) -> Option<&mut RouterBooks> {
        if self.own == Some(router) {
            return None;
        }
        let has_room = self.routers.len() < ROUTERS_MAX || self.routers.contains_key(&router);
        let books = has_room.then(|| self.routers.entry(router).or_default())?;
        books.lost_at = None;
        Some(books)
    }

    pub(super) fn books(&mut self, router: RouterId) -> Option<&mut RouterBooks> {
        self.routers.get_mut(&router)
    }

    /// Closes all books of a router that has gone on purpose.
    pub(super) fn on_left(&mut self, now: Moment, router: RouterId, fleet: &mut Fleet) {
        if let Some(mut books) = self.routers.remove(&router) {
            books.clear(now, fleet);
        }
    }

    /// Notes that a router was lost, or lost its memory: what it had in flight ends unseen.
    pub(super) fn on_lost(&mut self, now: Moment, router: RouterId) {
        if let Some(books) = self.routers.get_mut(&router) {
            books.lost_at = Some(now);
        }
    }

    /// Drops what a lost router should have done by now.
    pub(super) fn on_time(&mut self, now: Moment, fleet: &mut Fleet) {
        self.routers.retain(|_, books| !books.expire(now, fleet));
    }

    /// Lists what other routers have in flight.
    pub(super) fn bookings(&self) -> impl Iterator<Item = &HeardBooking> {
        self.routers.values().flat_map(RouterBooks::iter)
    }

    /// Lists the same, each with its router.
    pub(super) fn bookings_by_router(
        &self,
    ) -> impl Iterator<Item = (RouterId, &HeardBooking)> + '_ {
        let routers = self.routers.iter();
        routers.flat_map(|(router, books)| books.iter().map(move |it| (*router, it)))
    }

    /// Lists what one other router has in flight.
    pub(super) fn bookings_of(
        &self,
        router: RouterId,
    ) -> impl Iterator<Item = (RequestId, &HeardBooking)> + '_ {
        self.routers.get(&router).into_iter().flat_map(RouterBooks::numbered)
    }

    /// Tells whether something is still booked that a lost router should have done for this long.
    pub(super) fn is_overdue(&self, now: Moment, slack: Duration) -> bool {
        self.routers.values().any(|it| it.is_overdue(now, slack))
    }

    /// Counts what each other router has in flight.
    pub(super) fn counts(&self) -> impl Iterator<Item = (RouterId, usize)> + '_ {
        self.routers.iter().map(|(router, books)| (*router, books.len()))
    }

    pub(super) const fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    pub(super) const fn note_block_tokens(&mut self, tokens: u32) {
        if tokens != 0 {
            self.block_tokens = tokens;
        }
    }

    /// Tells whether a generation that this router planned was not told yet, and notes that it is.
    pub(super) fn is_plan_new(&mut self, generation: Generation) -> bool {
        std::mem::replace(&mut self.planned, generation) != generation
    }

    /// Tells whether it is new that another process answers at a replica's address, and notes it. Each router finds that
    /// out by itself too, a moment sooner or later.
    pub(super) fn note_restart(&mut self, now: Moment, replica: Place) -> bool {
        if self.own.is_none() {
            return true;
        }
        self.restarted.retain(|_, at| now.since(*at) < RESTART_PAUSE);
        self.restarted.insert(replica, now).is_none()
    }

    /// Tells whether it is time to tell what was learned, and notes that it is told.
    pub(super) fn is_learned_due(&mut self, now: Moment) -> bool {
        let is_due = self.own.is_some() && LEARNED_PAUSE <= now.since(self.learned_at);
        if is_due {
            self.learned_at = now;
        }
        is_due
    }

    /// Keeps a chain until its beginning is there.
    pub(super) fn wait_for(&mut self, awaited: Awaited) {
        if self.awaited.len() == AWAITED_MAX {
            self.awaited.pop_front();
        }
        self.awaited.push_back(awaited);
    }

    /// Takes the chains that waited for this beginning.
    pub(super) fn take_awaited(&mut self, tip: u64) -> Vec<Awaited> {
        let (found, rest): (Vec<_>, Vec<_>) =
            self.awaited.drain(..).partition(|it| it.chain.parent == tip);
        self.awaited = rest.into();
        found
    }

    /// Names the replica whose cache is sampled next.
    pub(super) fn next_sampled(&mut self, fleet: &Fleet) -> Option<(ReplicaId, Place)> {
        self.own?;
        let after = |it: ReplicaId| self.sampled.is_none_or(|last| last < it);
        let next = fleet.iter().find(|it| after(it.id)).or_else(|| fleet.iter().next())?;
        self.sampled = Some(next.id);
        Some((next.id, next.place))
    }

    /// Tells whether the cache of a replica may be asked for now, and notes that it is.
    pub(super) fn may_ask(&mut self, now: Moment, replica: Place) -> bool {
        let may = self.asked.get(&replica).is_none_or(|it| ASK_PAUSE <= now.since(*it));
        if may {
            self.asked.retain(|_, at| now.since(*at) < ASK_PAUSE);
            self.asked.insert(replica, now);
        }
        may
    }
}
