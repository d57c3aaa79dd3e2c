//! Why a session leaves the replica that served it last. Every move has one cause, counted for operators and shown in
//! the explanation of a request. Found out only for requests that move.

use crate::domain::{Moment, ReplicaId};
use crate::fleet::{Fleet, Replica};
use crate::policy::Candidate;

use super::super::request::Booking;
use super::{Candidates, Placement, candidate};

/// Why a session moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveCause {
    /// Its replica is gone or takes nothing, or the request failed there.
    Lost,
    /// An operator empties its replica.
    Drained,
    /// Another replica is the better choice: its own has too much to do.
    Overloaded,
    /// It went beyond its subset, whose replicas are busy or out.
    Spilled,
    /// Its replica is not of its workload's subset, or its lot fell elsewhere.
    Rebalanced,
    /// The request names by an id what another replica keeps.
    Kept,
    /// The policy keeps no sessions.
    Rule,
}

impl LeaveCause {
    pub const ALL: [Self; 7] = [
        Self::Lost,
        Self::Drained,
        Self::Overloaded,
        Self::Spilled,
        Self::Rebalanced,
        Self::Kept,
        Self::Rule,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Drained => "drained",
            Self::Overloaded => "overloaded",
            Self::Spilled => "spilled",
            Self::Rebalanced => "rebalanced",
            Self::Kept => "kept",
            Self::Rule => "rule",
        }
    }

    /// Says it in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Lost => "that is gone, takes nothing or failed",
            Self::Drained => "an operator empties that one",
            Self::Overloaded => "that one has too much to do",
            Self::Spilled => "the replicas of its subset are busy or out",
            Self::Rebalanced => "that one is not of its subset, or its lot fell elsewhere",
            Self::Kept => "it names by an id what is kept here",
            Self::Rule => "the policy keeps no sessions",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Lost => 0,
            Self::Drained => 1,
            Self::Overloaded => 2,
            Self::Spilled => 3,
            Self::Rebalanced => 4,
            Self::Kept => 5,
            Self::Rule => 6,
        }
    }
}

/// One move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    pub cause: LeaveCause,
    /// By how much its own replica was the worse choice, where that is the cause: by the policy's price, or by the wait
    /// for what is booked where the policy has none.
    pub over_ms: f64,
}

/// All moves since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MoveTotals {
    counts: [u64; LeaveCause::ALL.len()],
    /// What overloaded replicas were worse by, all together.
    pub over_ms: f64,
}

impl MoveTotals {
    pub const fn of(&self, cause: LeaveCause) -> u64 {
        self.counts[cause.index()]
    }

    pub fn all(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn add(&mut self, it: Move) {
        self.counts[it.cause.index()] += 1;
        self.over_ms += it.over_ms;
    }
}

impl Placement {
    /// Says why a session leaves its replica with the request that is about to be booked; `None` if it does not.
    pub(in crate::brain) fn move_of(
        &mut self,
        now: Moment,
        booking: &Booking,
        candidates: &Candidates,
        fleet: &Fleet,
    ) -> Option<Move> {
        if booking.is_question() {
            return None;
        }
        let home = self.sessions.home(now, booking.key).filter(|it| *it != booking.replica)?;
        let plain = |cause| Some(Move { cause, over_ms: 0.0 });
        if booking.outline.kept_at.is_some() {
            return plain(LeaveCause::Kept);
        }
        let (Some(home), Some(chosen)) = (fleet.get(home), fleet.get(booking.replica)) else {
            return plain(LeaveCause::Lost);
        };
        if let Some(cause) = self.cause(now, booking, candidates, (home, chosen)) {
            return plain(cause);
        }
        let usual = fleet.strangers_usual();
        let mut both = [home, chosen].map(|it| candidate(it, now, usual));
        let prices = self.prices(booking, now, &mut both);
        if prices.is_none() && candidates.ids().any(|it| it == home.id) {
            return plain(LeaveCause::Rebalanced);
        }
        let waits = (home.booked_wait_ms(now), chosen.booked_wait_ms(now));
        let (at_home, here) = prices.unwrap_or(waits);
        Some(Move { cause: LeaveCause::Overloaded, over_ms: (at_home - here).max(0.0) })
    }

    /// Finds the cause, where it is none of load.
    fn cause(
        &self,
        now: Moment,
        booking: &Booking,
        candidates: &Candidates,
        (home, chosen): (&Replica, &Replica),
    ) -> Option<LeaveCause> {
        let selection = &candidates.selection;
        if home.leaving || home.weight <= 0.0 || self.subsets.is_drained(home.place) {
            Some(LeaveCause::Drained)
        } else if booking.past.tried.contains(&home.id) || !home.breaker.admits(now) {
            Some(LeaveCause::Lost)
        } else if !self.policy.keeps_sessions() {
            Some(LeaveCause::Rule)
        } else if selection.is_divided && !selection.is_inside(home.place) {
            Some(LeaveCause::Rebalanced)
        } else {
            self.subsets.beyond(selection, chosen.place).map(|_| LeaveCause::Spilled)
        }
    }

    /// Asks the policy for the prices of a session's own replica and of the one that was chosen, if it has any.
    fn prices(
        &mut self,
        booking: &Booking,
        now: Moment,
        both: &mut [Candidate; 2],
    ) -> Option<(f64, f64)> {
        let [home, chosen] = [both[0].id, both[1].id];
        both.sort_unstable_by_key(|it| it.id);
        let mut terms = std::mem::take(&mut self.spare.terms);
        terms.clear();
        self.policy.terms(&booking.ask(now), &*both, &mut terms);
        let price = |of: ReplicaId| terms.iter().find(|it| it.replica == of).map(|it| it.price_ms);
        let prices = price(home).zip(price(chosen));
        self.spare.terms = terms;
        prices
    }
}
