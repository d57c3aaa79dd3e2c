//! More holders for what is too hot and cannot be split, one session or a rule kept whole, and
//! fewer again when it has cooled well below. This is the fast path for a hot key, so it is counted
//! as churn but waits for no budget.

use super::assignment::SliceReason;
use super::constrain::{choose, drop_hottest};
use super::draft::Draft;
use super::numbers::{at, count, short};

/// How much of the mean one unsplittable piece may take: with half, two of them fit a replica.
const LIFT_PER_MEAN: f64 = 0.5;
/// Below this part of that, holders are taken away again; in between nothing happens, and balancing
/// may add a few.
const COOLED: f64 = 0.2;

pub(super) fn replicate(draft: &mut Draft<'_>) {
    for piece in 0..short(draft.pieces.len()) {
        if !draft.pieces[at(piece)].alive {
            continue;
        }
        let limit = limit(draft, draft.group_of(piece));
        if draft.is_splittable(piece) {
            thin_out(draft, piece);
        } else if limit < draft.pieces[at(piece)].lift() {
            widen(draft, piece, limit);
        } else {
            thin_out(draft, piece);
        }
    }
}

/// The most lift that a piece should have when it cannot be split.
pub(super) fn limit(draft: &Draft<'_>, group: u32) -> f64 {
    (draft.groups[at(group)].mean * LIFT_PER_MEAN).max(draft.band(group))
}

/// The lift below which a piece has more holders than it needs.
pub(super) fn cooled(draft: &Draft<'_>, group: u32) -> f64 {
    limit(draft, group) * COOLED
}

fn widen(draft: &mut Draft<'_>, piece: u32, limit: f64) {
    let cap = draft.bounds_of(piece).1;
    while limit < draft.pieces[at(piece)].lift() {
        let it = &draft.pieces[at(piece)];
        let holders = it.holders.len();
        let lift = it.lift() * count(holders) / count(holders + 1);
        if cap <= holders {
            return;
        }
        let Some(seat) = choose(draft, piece, lift, &[]) else { return };
        draft.add_holders(piece, &[seat]);
        draft.pieces[at(piece)].why = Some(SliceReason::Replicated);
        draft.deeds.replicated += 1;
    }
}

fn thin_out(draft: &mut Draft<'_>, piece: u32) {
    let cooled = cooled(draft, draft.group_of(piece));
    let floor = draft.bounds_of(piece).0;
    loop {
        let it = &draft.pieces[at(piece)];
        let holders = it.holders.len();
        let lift = it.lift() * count(holders) / count(holders.max(2) - 1);
        if holders <= floor || cooled < lift || draft.is_cooling(piece) {
            return;
        }
        drop_hottest(draft, piece, SliceReason::Dereplicated);
        draft.deeds.dereplicated += 1;
    }
}
