//! The requests that wait: the line, what is kept of each request that stands there, and how fast the line moves.
//! The order is the queue's.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, RequestId, span_of_ms};
use crate::queue::{DrainRate, Line, Ticket, Work};

use super::super::request::CostEstimate;
use super::super::settings::LineSettings;
use super::Parked;
use super::lanes::{LaneKey, Scene};

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Every replica that may take it is past its knee, as far as its class may fill a replica.
    Knee,
    /// Every replica of its workload's subset is, while others of the pool have room.
    Subset,
    /// Its prompt is long, and enough replicas must stay free for classes that matter more.
    Door,
    /// It begins a session, and the KV of all replicas is full.
    Sessions,
    /// There is room, and others go before it.
    Turn,
    /// It is beyond its tenant's contract, which is hard, or no capacity is idle. It is refused rather than held.
    Contract,
}

impl Cause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Knee => "knee",
            Self::Subset => "subset",
            Self::Door => "door",
            Self::Sessions => "sessions",
            Self::Turn => "turn",
            Self::Contract => "contract",
        }
    }

    /// Says it in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Knee => "every replica was as full as its class may fill it",
            Self::Subset => "every replica of its workload's subset was full, others were not",
            Self::Door => {
                "its prompt is long, and replicas are kept free for classes that matter more"
            }
            Self::Sessions => "it begins a session, and the KV of all replicas was full",
            Self::Turn => "others went before it",
            Self::Contract => "it was beyond its tenant's contract",
        }
    }
}

#[derive(Debug)]
pub(in crate::brain) struct Waiting {
    line: Line,
    /// One for each ticket in the line, so bounded as the line is.
    parked: IndexMap<RequestId, Parked, FxBuildHasher>,
    drain_rate: DrainRate,
}

impl Waiting {
    pub(super) fn new(settings: &LineSettings) -> Self {
        Self {
            line: Line::new(settings.limits, &settings.classes),
            parked: IndexMap::default(),
            drain_rate: DrainRate::new(Work::ZERO),
        }
    }

    /// What the line holds: requests, bytes, and by class.
    pub(in crate::brain) const fn line(&self) -> &Line {
        &self.line
    }

    /// The model units that leave the line in a minute.
    pub(in crate::brain) fn mu_per_min(&self) -> f64 {
        self.drain_rate.mu_per_min()
    }

    /// Lists the requests that wait.
    pub(in crate::brain) fn requests(&self) -> impl Iterator<Item = (RequestId, &Parked)> {
        self.parked.iter().map(|(request, it)| (*request, it))
    }

    /// Tells whether the line and the requests kept for it are the same.
    pub(in crate::brain) fn is_sound(&self) -> bool {
        self.parked.len() == self.line.len()
            && self.parked.keys().all(|it| self.line.get(*it).is_some())
    }

    /// Predicts how long a request that joins now waits; nothing where nothing is known.
    pub(super) fn predict(&self, now: Moment, ticket: &Ticket) -> Duration {
        self.drain_rate.wait(self.line.ahead(now, ticket)).unwrap_or(Duration::ZERO)
    }

    /// Says when a request that is turned away should come back: when what waits before it will be gone.
    pub(super) fn retry_after(&self, now: Moment, ticket: &Ticket) -> Duration {
        self.drain_rate.retry_after(self.line.ahead(now, ticket))
    }

    /// Counts a request that does not join the line.
    pub(in crate::brain) fn pass(&mut self, now: Moment, estimate: &CostEstimate) {
        let CostEstimate { class, tenant, weight, work, .. } = *estimate;
        self.line.pass(class, tenant, weight, work);
        self.drain_rate.on_sent(now, work, false);
    }

    /// Has a request join the line. Those that make room for it are listed, each with when it should come back; one
    /// that has no place there is given back.
    pub(super) fn join(
        &mut self,
        now: Moment,
        ticket: Ticket,
        parked: Parked,
        displaced: &mut Vec<(RequestId, Parked, Duration)>,
    ) -> Option<Parked> {
        let mut tickets = Vec::new();
        let joined = self.line.join(ticket, &mut tickets);
        for it in tickets {
            let retry_after = self.retry_after(now, &it);
            let gone = self.take(it.request);
            displaced.extend(gone.map(|parked| (it.request, parked, retry_after)));
        }
        if joined.is_err() {
            return Some(parked);
        }
        self.parked.insert(ticket.request, parked);
        None
    }

    /// Takes out a request whose time is over.
    pub(super) fn expired(&mut self, now: Moment) -> Option<(Ticket, Option<Parked>)> {
        let ticket = self.line.expired(now)?;
        Some((ticket, self.parked.swap_remove(&ticket.request)))
    }

    /// Takes a request out of the line.
    pub(super) fn take(&mut self, request: RequestId) -> Option<Parked> {
        self.line.remove(request);
        self.parked.swap_remove(&request)
    }

    /// Takes out the request that goes next, if any may go: first among those that can go where their cache is or
    /// have none, then among all, so that no capacity is idle while a request waits. One that would be late even
    /// where the next one waits the least is taken for lost.
    pub(super) fn next(&mut self, now: Moment, scene: Scene<'_>) -> Option<(RequestId, Parked)> {
        while scene.has_room() {
            let waits_ms = scene.fills.iter().map(|it| it.wait_ms);
            let now = now + span_of_ms(waits_ms.fold(f64::INFINITY, f64::min));
            let has_home = |it: &Ticket| LaneKey::from(it.lane).home.is_some();
            let ticket = self.line.next(now, |it| scene.is_open(it.into()), has_home)?;
            if let Some(it) = self.parked.swap_remove(&ticket.request) {
                return Some((ticket.request, it));
            }
        }
        None
    }

    /// Counts a request that was taken out of the line and sent.
    pub(in crate::brain) fn on_moved(&mut self, now: Moment, work: Work) {
        self.drain_rate.on_sent(now, work, !self.line.is_empty());
    }

    /// Corrects what a request was charged with by what it came to.
    pub(super) fn settle(&mut self, estimate: &CostEstimate, real: Work) {
        let CostEstimate { class, tenant, work, .. } = *estimate;
        self.line.settle(class, tenant, work, real);
    }

    /// Expects another pace of the line, because the fleet changed.
    pub(super) fn expect(&mut self, before_per_min: Work, now_per_min: Work) {
        self.drain_rate.expect(before_per_min, now_per_min);
    }
}
