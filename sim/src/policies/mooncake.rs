//! Mooncake's Conductor, as far as it routes: the shortest time to the first token, which is the sum
//! of the prefills in line and this request's own, given what is held of it. Times come from a
//! regression. Moving KV between replicas and refusing what would miss its target are not a choice
//! of replica and are left out.

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::Outline;

use super::booked::{BookedRule, Books};
use super::span::{ms_of, prefill_ms, whole_us};
use super::{Ask, Candidate, lowest_by_chance};

#[derive(Debug)]
pub(super) struct Mooncake;

impl BookedRule for Mooncake {
    /// In microseconds.
    fn charge(outline: &Outline, held: usize) -> u64 {
        whole_us(own_ms(outline, held))
    }

    fn pick(books: &Books, ask: &Ask<'_>, among: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        lowest_by_chance(among.len(), chance, |it| {
            let line = ms_of(books.waiting(among[it].id));
            line + own_ms(ask.outline, books.residency.blocks(it))
        })
    }
}

/// Predicts how long the prompt takes where its leading `held` blocks are.
pub(super) fn own_ms(outline: &Outline, held: usize) -> f64 {
    prefill_ms(outline.tokens_beyond(held), outline.tokens_in(held))
}

#[cfg(test)]
mod tests {
    use super::super::MOONCAKE;
    use super::super::bench::{Bench, prompt};

    #[test]
    fn a_line_is_worth_joining_for_what_it_saves() {
        let mut bench = Bench::new(MOONCAKE, 2);
        bench.serve(&prompt(&[(0, 100)]), 0);
        let known = prompt(&[(0, 100), (500, 10)]);
        // Of 11,000 tokens 10,000 are held on replica 0: 41 ms there against 361 ms. In line there
        // 5,000 tokens take 141 ms and 9,000 take 282 ms: each alone is worth it, both are not.
        let first = bench.send(&prompt(&[(1000, 50)]), 0);
        assert_eq!(bench.pick(&known), 0);
        bench.send(&prompt(&[(2000, 90)]), 0);
        assert_eq!(bench.pick(&known), 1);
        bench.answer(first, 0);
        assert_eq!(bench.pick(&known), 0);
    }
}
