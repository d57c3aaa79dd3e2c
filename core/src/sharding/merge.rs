//! Merges neighbours when there are more slices than the settings want: first pairs with the same
//! holders, which moves nothing, then the coldest others, whose lighter half moves and is paid for.
//! After balancing only the first kind is merged, or it would undo what was achieved.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::assignment::SliceReason;
use super::draft::{Draft, NONE};
use super::numbers::at;
use super::slice::Slice;
use super::split::LIFT_PER_BAND;

/// What a merge costs, the load of both, and the two.
type Offer = Reverse<(u64, u64, u32, u32)>;

/// Merges until there are no more holders than wanted, or nothing may be merged.
pub(super) fn merge(draft: &mut Draft<'_>) {
    run(draft, false);
}

/// Merges only what moves nothing.
pub(super) fn merge_alike(draft: &mut Draft<'_>) {
    run(draft, true);
}

fn run(draft: &mut Draft<'_>, alike: bool) {
    if draft.holders_total <= draft.holders_max() {
        return;
    }
    // Cheapest first; floats compare as bits because none is below zero.
    let pieces: Vec<u32> = draft.in_order().collect();
    let offer = |draft: &Draft<'_>, it: u32| offer(draft, it, alike);
    let mut heap: BinaryHeap<Offer> =
        pieces.into_iter().filter_map(|it| offer(draft, it)).collect();
    while draft.holders_max() < draft.holders_total {
        let Some(Reverse((cost, load, one, other))) = heap.pop() else { break };
        // A pair that changed since it was offered is offered anew, or not at all.
        let stale = !draft.pieces[at(one)].alive
            || draft.pieces[at(one)].after != other
            || offer(draft, one).is_none_or(|it| it.0.0 != cost || it.0.1 != load);
        if stale {
            continue;
        }
        let cost = f64::from_bits(cost);
        if draft.budget < cost {
            continue;
        }
        draft.budget -= cost;
        join(draft, one, other);
        draft.deeds.merged += 1;
        heap.extend(offer(draft, one));
        let before = draft.pieces[at(one)].before;
        if before != NONE {
            heap.extend(offer(draft, before));
        }
    }
}

/// Says what it costs to merge a piece with the next one, if that makes sense.
fn offer(draft: &Draft<'_>, piece: u32, alike: bool) -> Option<Offer> {
    let one = &draft.pieces[at(piece)];
    let next = one.after;
    if next == NONE {
        return None;
    }
    let other = &draft.pieces[at(next)];
    let load = one.load + other.load;
    let group = draft.group_of(piece);
    let lift = one.lift() + other.lift();
    // What would be split again at once stays apart.
    if one.rule != other.rule || draft.band(group) * LIFT_PER_BAND * 2.0 < lift {
        return None;
    }
    let same = one.holders.len() == other.holders.len()
        && one.holders.iter().all(|it| other.holders.contains(it));
    let cost = if same { 0.0 } else { one.state.min(other.state) };
    let fixed = !same && (alike || draft.is_cooling(piece) || draft.is_cooling(next));
    (!fixed).then(|| Reverse((cost.max(0.0).to_bits(), load.max(0.0).to_bits(), piece, next)))
}

/// Joins a piece with the next one; the holders of the heavier one hold both.
pub(super) fn join(draft: &mut Draft<'_>, one: u32, next: u32) {
    let keeps_first = draft.pieces[at(next)].state <= draft.pieces[at(one)].state;
    if !keeps_first {
        let (old, new) = (draft.pieces[at(one)].holders.clone(), &draft.pieces[at(next)]);
        let (wanted, note) = (new.holders.clone(), new.note);
        let missing: Vec<u32> = wanted.iter().copied().filter(|it| !old.contains(it)).collect();
        old.into_iter().filter(|it| !wanted.contains(it)).for_each(|it| draft.drop_holder(one, it));
        draft.add_holders(one, &missing);
        draft.pieces[at(one)].note = note;
    }
    for seat in draft.pieces[at(next)].holders.clone() {
        draft.drop_holder(next, seat);
    }
    let other = &mut draft.pieces[at(next)];
    other.alive = false;
    let (high, load, state, after) = (other.slice.high, other.load, other.state, other.after);
    let seats = draft.pieces[at(one)].holders.clone();
    for seat in &seats {
        draft.drop_holder(one, *seat);
    }
    let it = &mut draft.pieces[at(one)];
    it.slice = Slice { low: it.slice.low, high };
    it.load += load;
    it.state += state;
    it.after = after;
    it.why = Some(SliceReason::Merged);
    draft.add_holders(one, &seats);
    if after != NONE {
        draft.pieces[at(after)].before = one;
    }
}
