//! Placement: where should a request go? This machine owns the policy and its chance, the memory of sessions and
//! the subsets of workloads. It finds which replicas may take a request, inside its subset as far as that will
//! do, and asks the policy. It sees no other machine: the fleet and the limits are handed in, and what it found
//! is a value that the brain carries on.

mod candidates;
mod choose;
mod inside;
mod moves;
mod sessions;
mod shared;
mod subsets;

use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use crate::domain::{Moment, Outline, Place, ReplicaId, RequestId, SliceKey};
use crate::policy::{Ask, Candidate, Policy, PolicyKind, Terms};
use crate::prefix::PrefixIndex;

use super::settings::SessionSettings;

pub(super) use candidates::{Candidates, candidate};
pub(super) use choose::{Unpicked, keeper};
pub use moves::{LeaveCause, Move, MoveTotals};
use sessions::Sessions;
pub(super) use subsets::Orders;
use subsets::Subsets;
pub use subsets::{
    AssignmentView, Beyond, Order, SliceView, SubsetSettings, SubsetTotals, WorkloadSettings,
    WorkloadView,
};

#[derive(Debug)]
pub(super) struct Placement {
    policy: Box<dyn Policy>,
    chance: Pcg64Mcg,
    sessions: Sessions,
    subsets: Subsets,
    moves: MoveTotals,
    /// Whether replicas are started when work waits: one that has not shown itself yet is starting, and is sent nothing.
    starts_replicas: bool,
    /// Buffers of candidates that are done with.
    spare: Candidates,
}

impl Placement {
    pub(super) fn new(
        policy: PolicyKind,
        seed: u64,
        sessions: SessionSettings,
        subsets: SubsetSettings,
    ) -> Self {
        Self {
            policy: policy.make(),
            chance: Pcg64Mcg::seed_from_u64(seed),
            sessions: Sessions::new(sessions),
            subsets: Subsets::new(subsets),
            moves: MoveTotals::default(),
            starts_replicas: false,
            spare: Candidates::default(),
        }
    }

    pub(super) const fn set_starts_replicas(&mut self, starts_replicas: bool) {
        self.starts_replicas = starts_replicas;
    }

    /// Takes candidates back that are done with, for their buffers.
    pub(super) fn recycle(&mut self, candidates: Candidates) {
        self.spare = candidates;
    }

    /// Finds the replica that served a session last, unless that is too long ago.
    pub(super) fn home(&self, now: Moment, key: SliceKey) -> Option<ReplicaId> {
        self.sessions.home(now, key)
    }

    /// Says when a session was last served, unless that is too long ago.
    pub(super) fn last_served(&self, now: Moment, key: SliceKey) -> Option<Moment> {
        self.sessions.last_served(now, key)
    }

    /// Tells whether the policy means to keep sessions where they are.
    pub(super) fn keeps_sessions(&self) -> bool {
        self.policy.keeps_sessions()
    }

    /// Tells whether the candidates are less than all because of their workload's subset.
    pub(super) fn is_divided(&self, candidates: &Candidates) -> bool {
        let Candidates { list, selection, .. } = candidates;
        list.iter().any(|it| self.subsets.allows(selection, it.place))
    }

    /// Shows how the policy weighs candidates.
    pub(super) fn terms(&mut self, ask: &Ask<'_>, candidates: &[Candidate]) -> Vec<Terms> {
        let mut terms = Vec::new();
        self.policy.terms(ask, candidates, &mut terms);
        terms
    }

    /// What the policy believes to lie in caches, where it keeps track.
    pub(super) fn index(&mut self) -> Option<&mut PrefixIndex> {
        Some(self.policy.residency()?.index())
    }

    /// Counts the tokens of a prompt that lie in a replica's cache, as far as the policy keeps track: where it
    /// does not, all may lie there.
    pub(super) fn held_tokens(&mut self, prompt: &Outline, at: ReplicaId) -> u32 {
        let held = self.index().map(|it| it.depth(&prompt.blocks, at));
        held.map_or(prompt.prompt_tokens, |blocks| prompt.tokens_in(blocks))
    }

    /// Tells the policy where a request goes; returns how many leading blocks of its prompt are there already.
    pub(super) fn on_sent(&mut self, request: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        self.policy.on_sent(request, ask, to)
    }

    /// Notes which replica serves a session from now on; returns which did before.
    pub(super) fn remember(
        &mut self,
        now: Moment,
        key: SliceKey,
        replica: ReplicaId,
    ) -> Option<ReplicaId> {
        self.sessions.remember(now, key, replica)
    }

    /// Counts a session that changed its replica, and the tokens that are computed again for that.
    pub(super) fn on_moved(&mut self, moved: Move, computed_tokens: u32) {
        self.moves.add(moved);
        self.subsets.on_moved(computed_tokens);
    }

    pub(super) fn on_first_token(&mut self, now: Moment, request: RequestId, replica: ReplicaId) {
        self.policy.on_first_token(now, request, replica);
    }

    pub(super) fn on_ended(&mut self, now: Moment, request: RequestId, replica: ReplicaId) {
        self.policy.on_ended(now, request, replica);
    }

    pub(super) fn on_joined(&mut self, replica: ReplicaId, place: Place) {
        self.policy.on_joined(replica, place);
        self.subsets.touch();
    }

    /// Notes that a replica's share of sessions changed, or whether it stays.
    pub(super) const fn on_weighed(&mut self) {
        self.subsets.touch();
    }

    pub(super) fn on_left(&mut self, replica: ReplicaId) {
        self.subsets.touch();
        self.policy.on_left(replica);
    }

    /// Notes that another process answers at a replica's address, with a cold cache.
    pub(super) fn on_restarted(&mut self, replica: ReplicaId) {
        self.policy.on_restarted(replica);
        self.subsets.on_gone(replica);
    }

    /// Notes that a replica under which requests were lost is gone, or hangs.
    pub(super) fn on_gone(&mut self, replica: ReplicaId) {
        self.subsets.on_gone(replica);
    }

    /// Notes that a replica lives: connections to it broke for another reason.
    pub(super) fn on_alive(&mut self, replica: ReplicaId) {
        self.subsets.on_alive(replica);
    }

    /// Tells whether a workload is to send nothing now.
    pub(super) fn pauses(&self, now: Moment, key: SliceKey) -> bool {
        self.subsets.pauses(now, key)
    }

    /// Notes that a request has come to its end, and its answer began in time.
    pub(super) fn on_done(&mut self, key: SliceKey) {
        self.subsets.on_done(key);
    }

    /// Tells whether a replica is to take nothing new.
    pub(super) fn is_drained(&self, place: Place) -> bool {
        self.subsets.is_drained(place)
    }

    /// Says why a replica may take a request, if it is beyond the subset.
    pub(super) fn beyond(&self, candidates: &Candidates, place: Place) -> Option<Beyond> {
        self.subsets.beyond(&candidates.selection, place)
    }

    pub(super) fn sweep(&mut self, now: Moment) {
        self.sessions.sweep(now);
    }

    pub(super) fn sessions_at(&self, replica: ReplicaId) -> u32 {
        self.sessions.count(replica)
    }

    pub(super) const fn moves(&self) -> MoveTotals {
        self.moves
    }

    pub(super) fn view(&self, now: Moment) -> AssignmentView {
        self.subsets.view(now)
    }

    pub(super) const fn rounds_planned(&self) -> u64 {
        self.subsets.rounds_planned()
    }

    /// Takes on all orders of an earlier brain.
    pub(super) fn take_on(&mut self, orders: Orders) {
        self.subsets.take_on(orders);
    }

    /// Goes on from what an earlier brain knew of sessions and had planned.
    pub(super) fn inherit(&mut self, now: Moment, old: &mut Self) {
        std::mem::swap(&mut self.sessions, &mut old.sessions);
        self.subsets.inherit(now, &mut old.subsets);
    }

    #[cfg(test)]
    pub(super) fn set_policy(&mut self, policy: Box<dyn Policy>) {
        self.policy = policy;
    }
}
