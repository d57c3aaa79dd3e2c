//! Splits what is too hot to be moved as one, at the key that halves its load, so that a hot
//! workload comes apart by session; and splits the hottest until there are enough slices for fine
//! balance. Both halves keep the holders: a split costs nothing but a row.

use std::collections::BinaryHeap;

use super::draft::Draft;
use super::numbers::{at, count, short};

/// A piece is split when its lift is above this part of the band: smaller than what must be moved
/// to bring a replica back inside, so that a move need not overshoot. When there are as many slices
/// as there should be, only what is above twice this is split, and merging makes room.
pub(super) const LIFT_PER_BAND: f64 = 0.5;

pub(super) fn split(draft: &mut Draft<'_>) {
    let groups = 0..short(draft.groups.len());
    let limits: Vec<f64> = groups.map(|it| draft.band(it) * LIFT_PER_BAND).collect();
    let mut heap = heap(draft);
    let wanted = at(draft.settings.slices_min).saturating_mul(draft.seats.len());
    let most = draft.holders_max().max(wanted);
    // Counted with the holders that pieces are still to get.
    let mut total: usize = draft.in_order().map(|it| holders_to_be(draft, it)).sum();
    while let Some((bits, piece)) = heap.pop() {
        let more = holders_to_be(draft, piece);
        let crowded = most < total + more;
        let limit = limits[at(draft.group_of(piece))] * if crowded { 2.0 } else { 1.0 };
        let hot = limit < f64::from_bits(bits);
        if !hot && wanted < total + more || most + most / 2 < total + more {
            break;
        }
        let Some(key) = draft.cut(piece, 0.5) else { continue };
        let upper = draft.split(piece, key);
        total += more;
        heap.extend([piece, upper].into_iter().filter_map(|it| entry(draft, it)));
    }
}

/// Collects what may be split, hottest first.
fn heap(draft: &Draft<'_>) -> BinaryHeap<(u64, u32)> {
    draft.in_order().filter_map(|it| entry(draft, it)).collect()
}

fn entry(draft: &Draft<'_>, piece: u32) -> Option<(u64, u32)> {
    let it = &draft.pieces[at(piece)];
    let lift = if it.holders.is_empty() {
        it.load / (draft.capacity_mean * count(draft.bounds_of(piece).0))
    } else {
        it.lift()
    };
    // What carries nothing is not made better by being two.
    (0.0 < lift && draft.is_splittable(piece)).then_some((lift.to_bits(), piece))
}

fn holders_to_be(draft: &Draft<'_>, piece: u32) -> usize {
    draft.pieces[at(piece)].holders.len().max(draft.bounds_of(piece).0)
}
