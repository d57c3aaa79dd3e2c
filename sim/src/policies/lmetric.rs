//! `LMetric`: the product of the prompt tokens to be computed, those in line and this request's, and
//! of the requests there; the lowest wins. Nothing to tune. The paper reads both from the engines;
//! here they are what this router sent and has not seen the first token or the end of, as the local
//! variant in `AIBrix` counts them.

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::{Outline, float};

use super::booked::{BookedRule, Books};
use super::{Ask, Candidate, lowest_by_chance};

#[derive(Debug)]
pub(super) struct Lmetric;

impl BookedRule for Lmetric {
    fn charge(outline: &Outline, held: usize) -> u64 {
        u64::from(outline.tokens_beyond(held))
    }

    fn pick(books: &Books, ask: &Ask<'_>, among: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        lowest_by_chance(among.len(), chance, |it| {
            let own = f64::from(ask.outline.tokens_beyond(books.residency.blocks(it)));
            let tokens = float(books.waiting(among[it].id)) + own;
            tokens * (f64::from(among[it].in_flight) + 1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::LMETRIC;
    use super::super::bench::{Bench, prompt};

    #[test]
    fn tokens_to_compute_times_requests_decide() {
        let mut bench = Bench::new(LMETRIC, 2);
        bench.serve(&prompt(&[(0, 8)]), 0);
        let known = prompt(&[(0, 8), (50, 2)]);
        // 200 · 4 is less than 1000 · 1; 200 · 6 is not.
        bench.in_flight(&[3, 0]);
        assert_eq!(bench.pick(&known), 0);
        bench.in_flight(&[5, 0]);
        assert_eq!(bench.pick(&known), 1);
        // (900 + 200) · 2 against 1000 · 2, until the 900 are computed.
        bench.in_flight(&[0, 1]);
        let cold = bench.send(&prompt(&[(90, 9)]), 0);
        assert_eq!(bench.pick(&known), 1);
        bench.answer(cold, 0);
        assert_eq!(bench.pick(&known), 0);
    }
}
