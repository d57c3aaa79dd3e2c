//! What placement tells other routers and hears of theirs: what lies in caches, where sessions are, what orders hold.

use std::sync::Arc;

use crate::cluster::{SharedOrder, Stamp};
use crate::domain::{Moment, PromptTail, ReplicaId, RouterId, SliceKey};
use crate::fleet::Fleet;
use crate::policy::{Candidate, lot_of};
use crate::sharding::Assignment;

use super::{Order, Placement};

/// How many sessions are looked at when all is told, and how many are told of.
const HOMES_SEEN_MAX: usize = 50_000;

impl Placement {
    /// Notes a request that another router sent; returns whether the beginning of its prompt is known here.
    pub(in crate::brain) fn on_heard(
        &mut self,
        now: Moment,
        to: &Candidate,
        (chain, block_tokens, adapter): (&PromptTail, u32, u64),
        work_ms: f64,
    ) -> bool {
        self.policy.on_heard(now, to, work_ms, adapter);
        self.on_cached(to, chain, block_tokens)
    }

    /// Notes what lies in a cache; returns whether the beginning of it is known here.
    pub(in crate::brain) fn on_cached(
        &mut self,
        to: &Candidate,
        chain: &PromptTail,
        block_tokens: u32,
    ) -> bool {
        self.policy.residency().is_none_or(|it| it.on_heard(chain, block_tokens, to))
    }

    /// Notes work that another router sent, for the sizes of subsets.
    pub(in crate::brain) fn on_demand(
        &mut self,
        now: Moment,
        key: SliceKey,
        work_mu: f64,
        tokens: u32,
    ) {
        self.subsets.on_sent(now, key, work_mu, tokens);
    }

    /// Lists sessions that are not where rendezvous hashing puts them.
    pub(in crate::brain) fn homes_apart(
        &self,
        now: Moment,
        fleet: &Fleet,
    ) -> Vec<(SliceKey, ReplicaId)> {
        let first = |key: SliceKey| {
            let lots = fleet.iter().filter(|it| 0.0 < it.weight);
            let lots = lots.map(|it| (it.id, lot_of(it.place, it.weight, key)));
            lots.min_by(|a, b| a.1.total_cmp(&b.1)).map(|it| it.0)
        };
        let sessions = self.sessions.iter(now).take(HOMES_SEEN_MAX);
        sessions.filter(|(key, home)| first(*key) != Some(*home)).collect()
    }

    /// Says what an order is to other routers; `None` for one that concerns this router alone.
    pub(in crate::brain) fn share(
        &mut self,
        order: &Order,
        own: RouterId,
        fleet: &Fleet,
    ) -> Option<(SharedOrder, Stamp)> {
        self.subsets.share(order, own, |it| fleet.get(it).map(|it| it.place))
    }

    pub(in crate::brain) fn obey_shared(&mut self, order: &SharedOrder, stamp: Stamp) {
        self.subsets.obey_shared(order, stamp);
    }

    /// Goes by an assignment that another router told, if it is newer.
    pub(in crate::brain) fn adopt(&mut self, now: Moment, assignment: &Arc<Assignment>) {
        self.subsets.adopt(now, assignment);
    }

    pub(in crate::brain) const fn join_others(&mut self, own: RouterId) {
        self.subsets.join_others(own);
    }

    pub(in crate::brain) const fn lead(&mut self, leads: bool) {
        self.subsets.lead(leads);
    }

    /// Tells whether this router plans, also for others.
    pub(in crate::brain) const fn leads(&self) -> bool {
        self.subsets.leads()
    }

    /// The assignment that it goes by.
    pub(in crate::brain) const fn assignment(&self) -> &Arc<Assignment> {
        self.subsets.assignment()
    }

    /// Lists all orders that routers share.
    pub(in crate::brain) fn shared(&self) -> Vec<(SharedOrder, Stamp)> {
        self.subsets.orders().shared().collect()
    }
}
