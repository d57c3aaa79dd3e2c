//! llm-d's "sticky until saturated", the default of its guides for prefill-bound loads: only those
//! that hold 0.8 of the prompt's blocks are considered, unless the least burdened of them would
//! start over 18 s later than the least burdened of the others. Of those considered the one with the
//! fewest uncached tokens in flight, this request's included, takes it; above 4,194,304 all are equal.
//!
//! A start is uncached tokens in flight over 15,928 tokens a second; a prompt is in flight until its
//! first token. Residency is believed as in `llmd`.

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::{Outline, float};

use super::booked::{BookedRule, Books};
use super::llmd::{self, held_share};
use super::{Ask, Candidate, lowest_by_chance};

const STICKY_SHARE: f64 = 0.8;
const SATURATED_S: f64 = 18.0;
const TOKENS_PER_SECOND: f64 = 15_928.0;
const TOKENS_MAX: f64 = 4_194_304.0;

#[derive(Debug)]
pub(super) struct LlmdSticky;

impl BookedRule for LlmdSticky {
    const KV_TIMES: u64 = llmd::KV_TIMES;

    fn charge(outline: &Outline, held: usize) -> u64 {
        u64::from(outline.tokens_beyond(held))
    }

    fn pick(books: &Books, ask: &Ask<'_>, among: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        let tokens = |it: usize| float(books.waiting(among[it].id));
        let is_sticky = |it: usize| STICKY_SHARE <= held_share(&books.residency, ask, it);
        let (mut sticky, mut others) = (f64::INFINITY, f64::INFINITY);
        for it in 0..among.len() {
            let best = if is_sticky(it) { &mut sticky } else { &mut others };
            *best = best.min(tokens(it));
        }
        // With no holder the first is infinite; with no other replica the second, and nothing is
        // later.
        let is_open = SATURATED_S < (sticky - others) / TOKENS_PER_SECOND;
        lowest_by_chance(among.len(), chance, |it| {
            if !is_open && !is_sticky(it) {
                return f64::INFINITY;
            }
            let own = f64::from(ask.outline.tokens_beyond(books.residency.blocks(it)));
            ((tokens(it) + own) / TOKENS_MAX).min(1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::LLMD_STICKY;
    use super::super::bench::{Bench, prompt};

    #[test]
    fn holders_of_four_fifths_keep_it_until_eighteen_seconds_are_waiting_there() {
        let mut bench = Bench::new(LLMD_STICKY, 3);
        bench.serve(&prompt(&[(0, 10)]), 2);
        let known = prompt(&[(0, 8), (50, 2)]);
        // 18 s · 15,928 tokens a second are 286,704 tokens, or 2,867 blocks and a bit.
        let long = bench.send(&prompt(&[(1000, 2867)]), 2);
        assert_eq!(bench.pick(&known), 2);
        bench.send(&prompt(&[(9000, 1)]), 2);
        assert_ne!(bench.pick(&known), 2);
        bench.answer(long, 2);
        assert_eq!(bench.pick(&known), 2);
    }

    #[test]
    fn less_than_four_fifths_held_is_nobodys_and_goes_where_the_fewest_tokens_are_left() {
        let mut bench = Bench::new(LLMD_STICKY, 3);
        bench.serve(&prompt(&[(0, 10)]), 2);
        for replica in 0..3 {
            bench.send(&prompt(&[(1000 * u64::from(replica + 1), 4)]), replica);
        }
        // 400 tokens everywhere, and 1000 - 700 of its own on replica 2, 1000 elsewhere.
        assert_eq!(bench.pick(&prompt(&[(0, 7), (50, 3)])), 2);
        bench.send(&prompt(&[(8000, 8)]), 2);
        assert_ne!(bench.pick(&prompt(&[(0, 7), (50, 3)])), 2);
    }
}
