//! Load and fleet in, next assignment out. A round is a list of named phases over one draft, always
//! in this order, always with the same result for the same input. A round that finds nothing to do
//! returns the assignment it was given, generation and all.

use std::sync::Arc;

use crate::domain::Moment;

use super::assignment::{Assignment, Note};
use super::balance::balance;
use super::bound::{self, Balance};
use super::carve::carve;
use super::churn::Churn;
use super::constrain::constrain;
use super::draft::{Draft, PlanActions};
use super::load::LoadMap;
use super::merge::{merge, merge_alike};
use super::numbers::at;
use super::open::open;
use super::replicate::replicate;
use super::reserve::reserve;
use super::rule::{FleetMember, Rule};
use super::settings::PlannerSettings;
use super::split::split;

/// Plans rounds; it remembers nothing between them.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    settings: PlannerSettings,
}

/// What a round came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The next assignment; the very one that was given when nothing changed.
    pub assignment: Arc<Assignment>,
    pub churn: Churn,
    pub balance: Balance,
    pub deeds: PlanActions,
}

impl Planner {
    pub const fn new(settings: PlannerSettings) -> Self {
        Self { settings }
    }

    pub const fn settings(&self) -> &PlannerSettings {
        &self.settings
    }

    /// Plans the next assignment. `now` is for cool-downs only.
    pub fn plan(
        &self,
        now: Moment,
        base: &Arc<Assignment>,
        fleet: &[FleetMember],
        rules: &[Rule],
        load: &LoadMap,
    ) -> Plan {
        let capacity: f64 =
            fleet.iter().filter(|it| !it.draining).map(|it| it.capacity.max(0.0)).sum();
        if fleet.iter().all(|it| it.draining) {
            // Without replicas to give anything to, the last assignment is the best guess of which
            // replicas come back.
            let (churn, balance, deeds) = Default::default();
            return Plan { assignment: Arc::clone(base), churn, balance, deeds };
        }
        let load = load.clone().with_uniform(capacity * self.settings.reservation);
        let mut draft = open(&self.settings, now, base, fleet, &load);
        carve(&mut draft, rules);
        reserve(&mut draft);
        if base.is_empty() {
            // Split before there are holders: then placing is spreading.
            split(&mut draft);
        }
        draft.index();
        constrain(&mut draft);
        split(&mut draft);
        merge(&mut draft);
        replicate(&mut draft);
        balance(&mut draft);
        merge_alike(&mut draft);
        let balance = bound::measure(&draft);
        let deeds = draft.deeds;
        let assignment = close(&draft, base);
        let churn = if Arc::ptr_eq(&assignment, base) {
            Churn { total: load.total(), ..Churn::default() }
        } else {
            Churn::between(base, &assignment, fleet, &load)
        };
        Plan { assignment, churn, balance, deeds }
    }
}

/// Turns the draft into an assignment, or returns the old one if that says the same.
fn close(draft: &Draft<'_>, base: &Arc<Assignment>) -> Arc<Assignment> {
    let generation = base.generation().next();
    let mut next = Assignment::builder(generation, draft.pieces.len());
    let mut holders = Vec::new();
    for piece in draft.in_order() {
        let it = &draft.pieces[at(piece)];
        let mut seats = it.holders.clone();
        seats.sort_unstable();
        holders.clear();
        holders.extend(seats.iter().map(|it| draft.seats[at(*it)].place));
        let low = it.slice.low;
        let old = base.position(crate::domain::SliceKey(low));
        let same_holders = base.holders_at(old) == holders;
        let same = same_holders && base.get(old).slice == it.slice;
        let note = if same {
            base.notes[old]
        } else {
            Note {
                why: it.why.unwrap_or(it.note.why),
                since: generation.number,
                settled_at: if same_holders { it.note.settled_at } else { draft.now },
                previous: it.note.previous,
            }
        };
        next.push(low, holders.iter().copied(), note);
    }
    let unchanged =
        next.lows == base.lows && next.firsts == base.firsts && next.holders == base.holders;
    if unchanged { Arc::clone(base) } else { Arc::new(next) }
}
