//! What is the best possible balance? No assignment puts less on the most loaded replica than the
//! mean of its group, nor less than the hottest thing that cannot be split, spread over as many of
//! the largest replicas as it may have. A result that meets the bound needs no better planner.

use super::draft::Draft;
use super::numbers::{at, short};

/// How the load lies on replicas, each relative to its capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Balance {
    pub mean: f64,
    pub max: f64,
    pub min: f64,
    /// The most by which any replica is above the mean of those it shares with.
    pub imbalance: f64,
    /// No assignment has less.
    pub imbalance_bound: f64,
    /// What the most loaded would carry if the key space were cut in fixed parts.
    pub static_max: f64,
}

pub(super) fn measure(draft: &Draft<'_>) -> Balance {
    let capacity: f64 = draft.seats.iter().map(|it| it.capacity).sum();
    let used = draft.seats.iter().map(|it| it.used);
    let means = draft.seats.iter().map(|it| draft.groups[at(it.group)].mean);
    let above = used.clone().zip(means).map(|(used, mean)| used - mean);
    let shares: Vec<f64> = draft.seats.iter().map(|it| it.capacity).collect();
    Balance {
        mean: draft.map.total() / capacity.max(f64::MIN_POSITIVE),
        max: used.clone().fold(0.0, f64::max),
        min: used.fold(f64::INFINITY, f64::min),
        imbalance: above.fold(0.0, f64::max),
        imbalance_bound: bound(draft),
        static_max: draft.map.static_peak(&shares),
    }
}

fn bound(draft: &Draft<'_>) -> f64 {
    let mut bound = 0.0_f64;
    for (number, group) in draft.groups.iter().enumerate() {
        let mut sizes: Vec<f64> =
            group.seats.iter().map(|it| draft.seats[at(*it)].capacity).collect();
        sizes.sort_by(|a, b| b.total_cmp(a));
        let up_to: Vec<f64> = sizes
            .iter()
            .scan(0.0, |sum, it| {
                *sum += it;
                Some(*sum)
            })
            .collect();
        for piece in 0..short(draft.pieces.len()) {
            let it = &draft.pieces[at(piece)];
            if !it.alive || draft.is_splittable(piece) || at(draft.group_of(piece)) != number {
                continue;
            }
            let cap = draft.bounds_of(piece).1;
            if let Some(most) = cap.checked_sub(1).and_then(|it| up_to.get(it)) {
                bound = bound.max(it.load / most - group.mean);
            }
        }
    }
    bound
}
