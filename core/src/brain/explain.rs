//! Why did it go there? For a request that is marked, the choice is written down with its candidates,
//! what each would have cost, and what other rules would have done with the same view. Nothing is
//! computed for requests that are not marked, and nothing here changes a decision.
//!
//! The other policies are asked one request at a time: they see the fleet as the choices of this router
//! made it, not as theirs would have. Over many requests that flatters them.

mod course;
mod elsewhere;
mod expected;

use indexmap::IndexMap;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxBuildHasher;

use crate::cost::learned::Learned;
use crate::domain::{Moment, ReplicaId, RequestId, SliceKey};
use crate::fleet::Standing;
use crate::policy::{Ask, Candidate, Policy, PolicyKind, Terms};

use super::placement::Candidates;
use super::request::Booking;
use super::{Beyond, Brain, Move};

pub use course::{Course, End, Remark, TimedPart};
pub use elsewhere::BookedElsewhere;
pub use expected::{Expected, Waited};

/// Requests that can be marked at once; beyond it a mark is without effect.
const MARKED_MAX: usize = 1024;
/// Of these, how many may be requests that wait in the line and were not marked.
const HELD_MAX: usize = MARKED_MAX / 2;
/// Candidates that are written down, the cheapest first.
const CONSIDERED_MAX: usize = 16;
/// Policies that are asked as well, for comparison.
const OTHERS: [PolicyKind; 4] = [
    PolicyKind::ROUND_ROBIN,
    PolicyKind::POWER_OF_TWO,
    PolicyKind::LEAST_REQUESTS,
    PolicyKind::SESSION,
];

/// Why one request was sent where it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub at: Moment,
    pub policy: PolicyKind,
    pub key: SliceKey,
    pub prompt_tokens: u32,
    /// How long the answer is expected to be.
    pub output_tokens: Option<u32>,
    pub replica: ReplicaId,
    pub name: String,
    /// Where the session was before.
    pub home: Option<String>,
    /// Why it left that, where it did.
    pub moved: Option<Move>,
    pub why: Why,
    /// The time to the first token, as predicted when it was booked.
    pub ttft_ms: f64,
    /// What was learned of the costs that predict it; nothing where learning is off.
    pub costs: Option<Learned>,
    /// How the chosen one was weighed, where the policy weighs in time.
    pub terms: Option<Terms>,
    /// How many could have been chosen.
    pub candidates: usize,
    /// The cheapest of them, and the chosen one.
    pub considered: Vec<Considered>,
    pub others: Vec<Other>,
}

/// One replica that could have been chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Considered {
    pub replica: ReplicaId,
    pub name: String,
    pub weight: f64,
    pub in_flight: u32,
    pub terms: Option<Terms>,
    /// Why it is among them although it is not of the workload's subset.
    pub beyond: Option<Beyond>,
    /// The work that was booked there, by all routers, and which part of it each other one had booked.
    pub booked_ms: f64,
    pub elsewhere: Vec<BookedElsewhere>,
}

/// What another policy would have done.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    pub policy: PolicyKind,
    pub name: String,
    pub terms: Option<Terms>,
}

/// The reason in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No other replica could take it.
    Only,
    /// It failed at another replica before.
    Retry,
    /// The request is the trial that shows whether the replica is back.
    Trial,
    /// The replica takes no new sessions and keeps this one.
    Home,
    /// The request names by an id what the replica keeps.
    Kept,
    /// No replica has more of the prompt in its cache.
    Cache,
    /// Waiting for a replica with more of the prompt would cost more than computing it here.
    Wait,
    /// No replica has any of the prompt, and here it is cheapest.
    Cheapest,
    /// The policy chose it, and does not weigh in time.
    Rule,
}

impl Why {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::Retry => "retry",
            Self::Trial => "trial",
            Self::Home => "home",
            Self::Kept => "kept",
            Self::Cache => "cache",
            Self::Wait => "wait",
            Self::Cheapest => "cheapest",
            Self::Rule => "rule",
        }
    }

    /// Says it in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Only => "no other replica could take it",
            Self::Retry => "it has been elsewhere in vain",
            Self::Trial => "a request must try whether the replica is back",
            Self::Kept => "the replica keeps what the request names by an id",
            Self::Home => "the replica takes no new sessions and keeps this one",
            Self::Cache => "no replica has more of the prompt in its cache",
            Self::Wait => "waiting for a replica with more of the prompt would cost more",
            Self::Cheapest => "no replica has any of the prompt, and here it is cheapest",
            Self::Rule => "the policy says so and prices nothing",
        }
    }
}

/// What was predicted for requests that were explained: for where they went, and for where others
/// would have sent them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shadows {
    pub decisions_total: u64,
    pub chosen_ttft_ms: f64,
    pub others_ttft_ms: [(PolicyKind, f64); OTHERS.len()],
}

/// The requests that are marked for an explanation, and what was found out about each.
#[derive(Debug)]
pub(super) struct Explaining {
    marked: IndexMap<RequestId, Marked, FxBuildHasher>,
    others: [Box<dyn Policy>; OTHERS.len()],
    /// Chance of its own, so that explaining changes no decision.
    chance: Pcg64Mcg,
    shadows: Shadows,
}

/// What is written down of a request that is marked.
#[derive(Debug, Default)]
struct Marked {
    waited: Option<Waited>,
    choice: Option<Explanation>,
    /// Only its wait is written down, not why it goes where it goes.
    is_held: bool,
}

impl Default for Explaining {
    fn default() -> Self {
        Self {
            marked: IndexMap::default(),
            others: OTHERS.map(PolicyKind::make),
            chance: Pcg64Mcg::seed_from_u64(0),
            shadows: Shadows {
                decisions_total: 0,
                chosen_ttft_ms: 0.0,
                others_ttft_ms: OTHERS.map(|it| (it, 0.0)),
            },
        }
    }
}

impl Brain {
    /// Has the next choice for a request written down; asked before the brain is told of the request,
    /// or of its failure.
    pub fn explain(&mut self, request: RequestId) {
        let marked = &mut self.explaining.marked;
        if marked.len() < MARKED_MAX || marked.contains_key(&request) {
            marked.insert(request, Marked::default());
        }
    }

    /// Takes what was written down, and the mark off.
    pub fn take_explanation(&mut self, request: RequestId) -> Option<Explanation> {
        self.explaining.marked.swap_remove(&request)?.choice
    }

    /// Adds up what was predicted for all that was explained.
    pub const fn shadows(&self) -> Shadows {
        self.explaining.shadows
    }

    /// Writes down the choice that is about to be booked, if the request is marked.
    pub(super) fn explain_choice(
        &mut self,
        now: Moment,
        request: RequestId,
        booking: &Booking,
        candidates: &Candidates,
        moved: Option<Move>,
    ) {
        if !self.explaining.is_explained(request) {
            return;
        }
        let explanation = Explanation { moved, ..self.explanation(now, booking, candidates) };
        self.explaining.note(&explanation);
        if let Some(marked) = self.explaining.marked.get_mut(&request) {
            marked.choice = Some(explanation);
        }
    }

    fn explanation(
        &mut self,
        now: Moment,
        booking: &Booking,
        candidates: &Candidates,
    ) -> Explanation {
        let (ask, compared) = (booking.ask(now), candidates.compared());
        let weighed = self.placement.terms(&ask, compared);
        let considered = compared.iter().map(|it| self.considered(it, candidates, &weighed));
        let mut considered: Vec<Considered> = considered.collect();
        let others = self.explaining.ask_others(&ask, compared, &considered);
        let chosen = considered.iter().find(|it| it.replica == booking.replica);
        let terms = chosen.and_then(|it| it.terms);
        let why = self.why(booking, &considered, terms);
        considered.sort_by(|a, b| price(a).total_cmp(&price(b)));
        let mut place = 0;
        considered.retain(|it| {
            place += 1;
            place <= CONSIDERED_MAX || it.replica == booking.replica
        });
        self.note_elsewhere(&mut considered);
        Explanation {
            at: now,
            policy: self.settings.policy,
            key: booking.key,
            prompt_tokens: booking.outline.prompt_tokens,
            output_tokens: booking.outline.output_tokens,
            replica: booking.replica,
            name: self.name_of(booking.replica),
            home: self.placement.home(now, booking.key).map(|it| self.name_of(it)),
            moved: None,
            why,
            ttft_ms: 0.0,
            costs: self.learning.learned_of(booking.replica),
            terms,
            candidates: compared.len(),
            considered,
            others,
        }
    }

    fn considered(
        &self,
        candidate: &Candidate,
        candidates: &Candidates,
        weighed: &[Terms],
    ) -> Considered {
        Considered {
            replica: candidate.id,
            name: self.name_of(candidate.id),
            weight: candidate.weight,
            in_flight: candidate.in_flight,
            terms: weighed.iter().find(|it| it.replica == candidate.id).copied(),
            beyond: self.placement.beyond(candidates, candidate.place),
            booked_ms: 0.0,
            elsewhere: Vec::new(),
        }
    }

    fn why(&self, booking: &Booking, considered: &[Considered], terms: Option<Terms>) -> Why {
        let standing = self.fleet.get(booking.replica).map(|it| it.breaker.standing());
        let most = considered.iter().filter_map(|it| Some(it.terms?.cached_tokens)).max();
        match (standing, terms) {
            (Some(Standing::Out { .. } | Standing::Trial { .. }), _) => Why::Trial,
            _ if !booking.past.tried.is_empty() => Why::Retry,
            _ if booking.outline.kept_at.is_some() => Why::Kept,
            _ if considered.is_empty() => Why::Home,
            _ if considered.len() == 1 => Why::Only,
            (_, None) => Why::Rule,
            _ if most == Some(0) => Why::Cheapest,
            (_, Some(terms)) if Some(terms.cached_tokens) < most => Why::Wait,
            _ => Why::Cache,
        }
    }

    /// Adds what the books predict, once the choice is booked.
    pub(super) fn explain_booking(&mut self, request: RequestId, ttft_ms: f64) {
        let marked = self.explaining.marked.get_mut(&request);
        if let Some(it) = marked.and_then(|it| it.choice.as_mut()) {
            it.ttft_ms = ttft_ms;
        }
    }

    fn name_of(&self, replica: ReplicaId) -> String {
        self.fleet.get(replica).map(|it| it.name.clone()).unwrap_or_default()
    }
}

impl Explaining {
    pub(super) fn is_marked(&self, request: RequestId) -> bool {
        self.marked.contains_key(&request)
    }

    /// Tells whether the reasons of its next choice are written down.
    fn is_explained(&self, request: RequestId) -> bool {
        self.marked.get(&request).is_some_and(|it| !it.is_held)
    }

    /// Removes the mark of a request that ended before its explanation was taken.
    pub(super) fn forget(&mut self, request: RequestId) {
        self.marked.swap_remove(&request);
    }

    fn ask_others(
        &mut self,
        ask: &Ask<'_>,
        compared: &[Candidate],
        considered: &[Considered],
    ) -> Vec<Other> {
        if considered.is_empty() {
            return Vec::new();
        }
        let Self { others, chance, .. } = self;
        let asked = OTHERS.into_iter().zip(others).map(|(policy, it)| {
            let Considered { name, terms, .. } = &considered[it.pick(ask, compared, chance)];
            Other { policy, name: name.clone(), terms: *terms }
        });
        asked.collect()
    }

    fn note(&mut self, explanation: &Explanation) {
        let Some(chosen) = explanation.terms else { return };
        let shadows = &mut self.shadows;
        shadows.decisions_total += 1;
        shadows.chosen_ttft_ms += chosen.ttft_ms;
        for ((_, sum), other) in shadows.others_ttft_ms.iter_mut().zip(&explanation.others) {
            *sum += other.terms.map_or(0.0, |it| it.ttft_ms);
        }
    }
}

fn price(considered: &Considered) -> f64 {
    considered.terms.map_or(f64::INFINITY, |it| it.price_ms)
}

#[cfg(test)]
mod tests;
