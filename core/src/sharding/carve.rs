//! Second phase: borders where rules begin and end, so that every piece obeys one rule. Nothing
//! moves by it. A rule that is no longer given leaves its borders behind; merging removes them when
//! there are too many, except borders inside a grain, which are removed at once.

use super::draft::{Draft, NONE, Ruled};
use super::numbers::{at, short};
use super::rule::{Bounds, Rule};
use super::slice::Slice;

/// Draws the borders; of rules that overlap, the one that begins first wins.
pub(super) fn carve(draft: &mut Draft<'_>, rules: &[Rule]) {
    let mut rules = rules.to_vec();
    rules.sort_by_key(|it| (it.slice.low, it.slice.high));
    let mut free_from = Some(0);
    let mut piece = 0;
    for rule in &rules {
        if free_from.is_none_or(|it| rule.slice.low < it) || rule.slice.high < rule.slice.low {
            continue;
        }
        free_from = rule.slice.high.checked_add(1);
        let number = short(draft.rules.len());
        let seats = draft.seats.len();
        let bounds = Bounds { cap: rule.bounds.cap.max(rule.bounds.floor).max(1), ..rule.bounds };
        // Keys that may be anywhere need no list of where they are.
        let bounded = at(bounds.cap) < seats;
        draft.rules.push(Ruled {
            bounds,
            whole: rule.whole,
            exclusive: rule.exclusive,
            group: 0,
            members: bounded.then(std::collections::BTreeMap::new),
        });
        let (first, last) = cut_out(draft, piece, &rule.slice, number);
        piece = if rule.whole { join_inside(draft, first, &rule.slice) } else { last };
    }
    if 0 < draft.settings.grain_bits {
        join_grains(draft);
    }
}

/// Joins what an earlier rule, or an assignment made with other settings, parted inside a grain.
fn join_grains(draft: &mut Draft<'_>) {
    let mut piece = 0;
    loop {
        let it = &draft.pieces[at(piece)];
        let (next, rule, high) = (it.after, it.rule, it.slice.high);
        if next == NONE {
            return;
        }
        let parted = draft.grain_of(high, rule) == draft.grain_of(high + 1, rule);
        if parted && rule == draft.pieces[at(next)].rule {
            super::merge::join(draft, piece, next);
        } else {
            piece = next;
        }
    }
}

/// Gives the pieces of a slice their rule, cutting at its ends; returns the first and the last.
fn cut_out(draft: &mut Draft<'_>, from: u32, slice: &Slice, rule: u32) -> (u32, u32) {
    let mut piece = from;
    while draft.pieces[at(piece)].slice.high < slice.low {
        piece = draft.pieces[at(piece)].after;
    }
    if draft.pieces[at(piece)].slice.low < slice.low {
        piece = draft.split(piece, slice.low);
    }
    let first = piece;
    loop {
        let it = draft.pieces[at(piece)].slice;
        if slice.high < it.high {
            draft.split(piece, slice.high + 1);
        }
        draft.pieces[at(piece)].rule = rule;
        for seat in draft.pieces[at(piece)].holders.clone() {
            draft.enrol(rule, seat);
        }
        if slice.high <= it.high {
            return (first, piece);
        }
        piece = draft.pieces[at(piece)].after;
    }
}

/// Makes one piece of all that a rule keeps whole; the heaviest part keeps its holders.
fn join_inside(draft: &mut Draft<'_>, first: u32, slice: &Slice) -> u32 {
    while draft.pieces[at(first)].slice.high < slice.high {
        let next = draft.pieces[at(first)].after;
        super::merge::join(draft, first, next);
    }
    first
}
