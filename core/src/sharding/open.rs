//! First phase: the last assignment becomes a draft, without the replicas that are gone. A replica
//! that is not in the fleet, or is leaving it, holds nothing any more; that is not a choice and
//! costs no budget.

use crate::domain::{Moment, Place};

use super::assignment::{Assignment, SliceReason};
use super::draft::{Draft, Group, NONE, Piece, PlanActions, Ruled, Seat};
use super::load::LoadMap;
use super::numbers::{at, count, short};
use super::rule::{Bounds, FleetMember};
use super::settings::PlannerSettings;

/// Makes the draft; there is at least one member that is not draining.
pub(super) fn open<'a>(
    settings: &'a PlannerSettings,
    now: Moment,
    base: &Assignment,
    fleet: &[FleetMember],
    map: &'a LoadMap,
) -> Draft<'a> {
    let seats = seats(fleet);
    let common = Bounds { cap: settings.bounds.cap.max(settings.bounds.floor), ..settings.bounds };
    let all = Ruled { bounds: common, whole: false, exclusive: false, group: 0, members: None };
    let capacity: f64 = seats.iter().map(|it| it.capacity).sum();
    let mut draft = Draft {
        capacity_mean: capacity / count(seats.len().max(1)),
        map,
        settings,
        now,
        seats,
        pieces: Vec::with_capacity(base.len() + base.len() / 4),
        rules: vec![all],
        groups: vec![Group::default()],
        order: std::collections::BTreeSet::new(),
        holders_total: 0,
        budget: 0.0,
        deeds: PlanActions::default(),
    };
    draft.budget = draft.state_total() * settings.churn_max;
    for position in 0..base.len() {
        push(&mut draft, base, position, fleet);
    }
    if base.is_empty() {
        draft.seats.iter_mut().for_each(|it| it.fresh = false);
    }
    draft
}

fn seats(fleet: &[FleetMember]) -> Vec<Seat> {
    let mut seats: Vec<Seat> = fleet
        .iter()
        .filter(|it| !it.draining)
        .map(|it| Seat {
            place: it.place,
            capacity: if it.capacity.is_finite() { it.capacity.max(1e-9) } else { 1e-9 },
            zone: it.zone,
            fresh: true,
            group: 0,
            used: 0.0,
            pieces: Vec::new(),
        })
        .collect();
    seats.sort_unstable_by_key(|it| it.place);
    seats.dedup_by_key(|it| it.place);
    seats
}

fn push(draft: &mut Draft<'_>, base: &Assignment, position: usize, fleet: &[FleetMember]) {
    let held = base.get(position);
    let number = short(position);
    let mut piece = Piece {
        slice: held.slice,
        load: draft.load_of(&held.slice),
        state: draft.state_of(&held.slice),
        holders: Vec::with_capacity(held.holders.len()),
        capacity: 0.0,
        rule: 0,
        before: number.checked_sub(1).unwrap_or(NONE),
        after: if position + 1 < base.len() { number + 1 } else { NONE },
        alive: true,
        note: base.notes[position],
        why: None,
    };
    let mut gone = None;
    for place in held.holders {
        match draft.seats.binary_search_by_key(place, |it| it.place) {
            Ok(seat) => {
                piece.holders.push(short(seat));
                piece.capacity += draft.seats[seat].capacity;
            }
            Err(_) => gone = Some(*place),
        }
    }
    if let Some(gone) = gone {
        note_gone(draft, &mut piece, gone, fleet);
    }
    let lift = piece.lift();
    for seat in &piece.holders {
        let seat = &mut draft.seats[at(*seat)];
        seat.used += lift;
        seat.fresh = false;
        seat.pieces.push(number);
    }
    draft.holders_total += piece.holders.len();
    draft.pieces.push(piece);
}

/// Notes why a holder is missing, and which replica may still have the state.
fn note_gone(draft: &Draft<'_>, piece: &mut Piece, gone: Place, fleet: &[FleetMember]) {
    let draining = fleet.iter().any(|it| it.place == gone);
    let left = piece.holders.first().map(|it| draft.seats[at(*it)].place);
    // A replica that drains can still be asked; one that is gone cannot.
    piece.note.previous = if draining { Some(gone) } else { left };
    piece.why = Some(if draining { SliceReason::Drained } else { SliceReason::Rehomed });
}
