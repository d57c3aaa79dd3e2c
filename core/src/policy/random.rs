//! Any replica, by weight.

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

use super::{Ask, Candidate, Policy};

#[derive(Debug)]
pub(super) struct Random;

impl Policy for Random {
    fn pick(&mut self, _: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        draw(candidates, None, chance)
    }
}

/// Draws a position other than `skip` with a chance in proportion to its weight.
pub(super) fn draw(from: &[Candidate], skip: Option<usize>, chance: &mut Pcg64Mcg) -> usize {
    let eligible = || from.iter().enumerate().filter(|(position, _)| Some(*position) != skip);
    let total: f64 = eligible().map(|(_, it)| it.weight).sum();
    let mut left = chance.random::<f64>() * total;
    let mut last = 0;
    for (position, it) in eligible() {
        left -= it.weight;
        if left < 0.0 {
            return position;
        }
        last = position;
    }
    // Rounding may leave the draw beyond the last candidate.
    last
}
