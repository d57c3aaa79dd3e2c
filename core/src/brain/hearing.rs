//! What this brain hears of other routers, and what it makes of it. Their bookings count in the ledgers like its own, and
//! what they sent lies in caches like what it sent itself. Nothing that was heard is told on: every router tells of what
//! it did. Bad news of a replica is a reason to ask that replica, not to believe it; good news is none.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{Came, News, Opened};
use crate::domain::{Moment, Place, PromptTail, ReplicaId, RequestId, RouterId};
use crate::fleet::{State, ms};
use crate::prefix::{PrefixIndex, likeness};
use crate::queue::{Tenant, Work};
use crate::scaling::OfferedWork;

use super::Brain;
use super::event::Action;
use super::health::ask_after_loss;
use super::peers::{Awaited, HeardBooking};
use super::placement::candidate;

/// Two routers whose samples have less in common than this compare all.
const LIKENESS_MIN: f64 = 0.7;
/// The longest that a request of another router is taken to need.
const EXPECTED_MAX: Duration = Duration::from_secs(600);

impl Brain {
    /// Takes in what another router told.
    pub(super) fn on_heard(
        &mut self,
        now: Moment,
        router: RouterId,
        (news, is_whole): (Vec<News>, bool),
        actions: &mut Vec<Action>,
    ) {
        let Some(books) = self.peers.meet(router) else { return };
        if is_whole {
            books.clear(now, &mut self.fleet);
        }
        if self.peers.own().is_none() {
            self.placement.index().into_iter().for_each(PrefixIndex::keep_anchors);
        }
        for it in news {
            self.on_news(now, router, it, actions);
        }
    }

    /// Notes that another router is gone.
    pub(super) fn on_parted(&mut self, now: Moment, router: RouterId, is_lost: bool) {
        self.admission.on_waiting_elsewhere(now, router, &[]);
        if is_lost {
            self.peers.on_lost(now, router);
        } else {
            self.peers.on_left(now, router, &mut self.fleet);
        }
        if self.peers.own().is_none() {
            self.placement.index().into_iter().for_each(PrefixIndex::drop_anchors);
        }
    }

    fn on_news(&mut self, now: Moment, router: RouterId, news: News, actions: &mut Vec<Action>) {
        let Some(books) = self.peers.books(router) else { return };
        match news {
            News::Opened(opened) => self.on_opened(now, router, *opened),
            News::Begun { request } => books.begin(now, &mut self.fleet, request),
            News::Progressed { request, left } => books.progress(&mut self.fleet, request, left),
            News::Ended { request, came } => self.on_ended_elsewhere(now, router, request, came),
            News::Home { key, replica } => {
                if let Some(replica) = self.at(replica)
                    && self.placement.home(now, key).is_none()
                {
                    self.placement.remember(now, key, replica);
                }
            }
            News::Stood { replica, state } => self.on_stood(now, replica, state, actions),
            News::Ordered { order, stamp } => {
                self.placement.obey_shared(&order, stamp);
                self.measure();
            }
            News::Cached { replica, block_tokens, chain } => {
                self.on_cached(now, router, replica, block_tokens, chain);
            }
            News::Sampled { replica, held, sample } => {
                self.on_sampled(now, router, replica, (held, &sample));
            }
            News::AskedChain { replica, parent, depth } => {
                self.answer_chain(router, replica, parent, depth);
            }
            News::AskedReplica { replica } => {
                if let Some(replica) = self.at(replica) {
                    self.tell_cached(router, replica);
                }
            }
            News::Assigned(assignment) => self.placement.adopt(now, &assignment),
            News::Planned { generation } => {
                if self.placement.assignment().generation() < generation {
                    self.peers.tell_one(router, News::AskedPlan);
                }
            }
            News::AskedPlan => {
                let assignment = Arc::clone(self.placement.assignment());
                self.peers.tell_one(router, News::Assigned(assignment));
            }
            News::Waiting { classes } => {
                self.admission.on_waiting_elsewhere(now, router, &classes);
            }
            News::Found(found) => self.on_found(now, router, found),
            News::Forgot => {
                self.admission.on_waiting_elsewhere(now, router, &[]);
                self.peers.on_lost(now, router);
                for it in self.whole(now) {
                    self.peers.tell_one(router, it);
                }
            }
        }
    }

    fn on_opened(&mut self, now: Moment, router: RouterId, opened: Opened) {
        let Some(replica) = self.at(opened.replica) else { return };
        let usual = self.fleet.strangers_usual();
        let Some(it) = self.fleet.get(replica) else { return };
        let (to, charge) = (candidate(it, now, usual), opened.charge.bounded());
        let work_mu = it.hardware.mu(charge.work_ms());
        let spent = (Work::from_parts(opened.work), opened.tokens);
        let tenant = Tenant(opened.tenant);
        let expected = Duration::from_millis(opened.expected_ms.into()).min(EXPECTED_MAX);
        let (is_read, heard_at) = (false, now);
        let booking = HeardBooking { replica, charge, is_read, heard_at, expected, tenant, spent };
        let mut tells_demand = false;
        if let Some(books) = self.peers.books(router) {
            books.open(now, &mut self.fleet, opened.request, booking);
            tells_demand = books.tells_demand;
        }
        self.placement.remember(now, opened.key, replica);
        if opened.is_first_try {
            let tokens = charge.kv_tokens.saturating_add(charge.growth_tokens);
            let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
            self.placement.on_demand(now, opened.key, work_mu, tokens);
            self.admission.spend_elsewhere(now, tenant, spent);
            if !tells_demand {
                let offered_mu = spent.0.as_mu();
                self.admission
                    .offered
                    .on_elsewhere(OfferedWork { offered_mu, ..OfferedWork::default() });
            }
        }
        let prompt = (&opened.chain, opened.block_tokens, opened.adapter);
        self.peers.note_block_tokens(opened.block_tokens);
        if !self.placement.on_heard(now, &to, prompt, ms(charge.prefill_us)) {
            self.ask_beginning(router, opened.replica, opened.block_tokens, opened.chain);
        }
    }

    fn on_ended_elsewhere(
        &mut self,
        now: Moment,
        router: RouterId,
        request: RequestId,
        came: Option<Came>,
    ) {
        let Some(books) = self.peers.books(router) else { return };
        let Some(booking) = books.close(now, &mut self.fleet, request) else { return };
        if let Some(came) = came {
            let spent = (Work::from_parts(came.work), came.tokens);
            self.admission.correct_elsewhere(booking.tenant, booking.spent, spent);
            self.admission.learn_elsewhere(came.prompt_tokens, came.output_tokens);
        }
    }

    /// Asks a replica for a token that another router finds out or suspects, if it is up here.
    fn on_stood(&mut self, now: Moment, replica: Place, state: State, actions: &mut Vec<Action>) {
        let Some(replica) = self.at(replica) else { return };
        if matches!(state.name, "out" | "suspect") {
            self.check(now, actions, |_, fleet, found| ask_after_loss(now, fleet, replica, found));
        }
    }

    fn on_cached(
        &mut self,
        now: Moment,
        router: RouterId,
        replica: Place,
        block_tokens: u32,
        chain: PromptTail,
    ) {
        let Some(id) = self.at(replica) else { return };
        self.peers.note_block_tokens(block_tokens);
        if !self.remember_chain(now, id, block_tokens, &chain) {
            self.ask_beginning(router, replica, block_tokens, chain);
        } else if let Some(tip) = chain.more.last() {
            for it in self.peers.take_awaited(*tip) {
                self.remember_chain(now, it.replica, it.block_tokens, &it.chain);
            }
        }
    }

    fn remember_chain(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        block_tokens: u32,
        chain: &PromptTail,
    ) -> bool {
        let usual = self.fleet.strangers_usual();
        let Some(it) = self.fleet.get(replica) else { return true };
        self.placement.on_cached(&candidate(it, now, usual), chain, block_tokens)
    }

    /// Asks a router for the beginning of a chain that it told of.
    fn ask_beginning(
        &mut self,
        router: RouterId,
        place: Place,
        block_tokens: u32,
        chain: PromptTail,
    ) {
        let Some(replica) = self.at(place) else { return };
        let (parent, depth) = (chain.parent, chain.depth);
        self.peers.wait_for(Awaited { replica, block_tokens, chain });
        self.peers.tell_one(router, News::AskedChain { replica: place, parent, depth });
    }

    fn answer_chain(&mut self, router: RouterId, replica: Place, parent: u64, depth: u32) {
        let block_tokens = self.peers.block_tokens();
        let found = self.placement.index().and_then(|it| it.beginning(parent, depth));
        if let Some(more) = found {
            let chain = PromptTail { parent: 0, depth: 0, more };
            self.peers.tell_one(router, News::Cached { replica, block_tokens, chain });
        }
    }

    /// Compares what two routers believe of a cache. Where they differ, the one that knows of less asks.
    fn on_sampled(
        &mut self,
        now: Moment,
        router: RouterId,
        replica: Place,
        (held, sample): (u64, &[u64]),
    ) {
        let Some(id) = self.at(replica) else { return };
        let Some(index) = self.placement.index() else { return };
        let own_held = u64::try_from(index.held(id)).unwrap_or(u64::MAX);
        let is_asking = match own_held.cmp(&held) {
            Ordering::Less => true,
            Ordering::Equal => self.peers.own().is_some_and(|own| router < own),
            Ordering::Greater => false,
        };
        if likeness(&index.sample(id), sample) < LIKENESS_MIN
            && is_asking
            && self.peers.may_ask(now, replica)
        {
            self.peers.tell_one(router, News::AskedReplica { replica });
        }
    }

    /// Finds a replica by its place.
    pub(super) fn at(&self, place: Place) -> Option<ReplicaId> {
        self.fleet.iter().find(|it| it.place == place).map(|it| it.id)
    }
}
