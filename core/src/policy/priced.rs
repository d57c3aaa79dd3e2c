//! Prices every replica in milliseconds and takes the cheapest: what the request would wait there,
//! what its prompt would take, what it would push out of the cache that must then be computed again,
//! and what it would hold up the others. A session stays where its cache is because it is cheap
//! there, and leaves when waiting costs more than computing its prompt elsewhere. Nothing is pinned
//! and nothing is compared with a threshold, so there is nothing to tune per workload.
//!
//! Times are those of each replica's own hardware at its own pace, so mixed fleets need no weights.

use rand_pcg::Pcg64Mcg;

use crate::domain::{Outline, ReplicaId, RequestId};

use super::residency::Residency;
use super::span::float;
use super::{Ask, Candidate, Policy, Terms, rendezvous};

/// What it counts that a token is evicted, beside computing it once more. Above 1, because who was
/// evicted comes back, evicts in turn, and waits meanwhile. The simulator is flat from 2 to 4.
const EVICT: f64 = 3.0;
/// What it counts that somebody else is held up for a millisecond. Far below 1, because one who
/// waits for the first token minds more than one who waits for the next.
const HOLD_UP: f64 = 0.1;
/// What an answer is taken for when nobody expects anything.
const OUTPUT_TOKENS_UNKNOWN: u32 = 256;
/// Evicted context is taken to be as deep as this request's, but at least this.
const DEPTH_TOKENS_MIN: u32 = 1_000;

#[derive(Debug)]
pub(super) struct Priced {
    residency: Residency,
}

/// The terms of one replica's price, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Price {
    wait: f64,
    own: f64,
    evict: f64,
    hold_up: f64,
}

impl Price {
    fn total_ms(&self) -> f64 {
        self.wait + self.own + EVICT * self.evict + HOLD_UP * self.hold_up
    }
}

impl Default for Priced {
    fn default() -> Self {
        Self { residency: Residency::of_kv(1) }
    }
}

impl Policy for Priced {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], _: &mut Pcg64Mcg) -> usize {
        self.residency.look_up(ask, candidates);
        let mut best = (0, f64::INFINITY, f64::INFINITY);
        for (position, candidate) in candidates.iter().enumerate() {
            // A replica with less of a share is priced as if all its times were longer.
            let price = self.price(ask.outline, candidate, position).total_ms() / candidate.weight;
            // Equal prices go by the session's lots, so that all routers break ties alike.
            let lot = rendezvous::lot(candidate, ask.key);
            if price < best.1 || (price <= best.1 && lot < best.2) {
                best = (position, price, lot);
            }
        }
        best.0
    }

    fn keeps_sessions(&self) -> bool {
        true
    }

    fn on_sent(&mut self, _: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        self.residency.on_sent(ask, to)
    }

    fn terms(&mut self, ask: &Ask<'_>, candidates: &[Candidate], into: &mut Vec<Terms>) {
        self.residency.look_up(ask, candidates);
        into.extend(candidates.iter().enumerate().map(|(position, candidate)| {
            let price = self.price(ask.outline, candidate, position);
            let cached_tokens = ask.outline.tokens_in(self.residency.blocks(position));
            let new = ask.outline.prompt_tokens - cached_tokens;
            Terms {
                replica: candidate.id,
                cached_tokens,
                wait_ms: price.wait,
                prefill_ms: price.own,
                evict_ms: price.evict,
                slow_ms: price.hold_up,
                ttft_ms: candidate.books.ttft_ms(new, cached_tokens),
                price_ms: price.total_ms() / candidate.weight,
            }
        }));
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.residency.forget(replica);
    }

    fn bytes(&self) -> usize {
        self.residency.bytes()
    }
}

impl Priced {
    fn price(&self, outline: &Outline, candidate: &Candidate, position: usize) -> Price {
        let (books, held) = (&candidate.books, self.residency.blocks(position));
        let own = books.prefill_ms(outline.tokens_beyond(held), outline.tokens_in(held));
        let output = outline.output_tokens.unwrap_or(OUTPUT_TOKENS_UNKNOWN);
        // Whoever runs there stands still for our prefill, and goes a little slower for each token.
        let decode_ms = f64::from(output) * books.sequence_ms(outline.prompt_tokens);
        Price {
            wait: books.wait_ms,
            own,
            evict: self.evict_ms(outline, candidate, position, output),
            hold_up: f64::from(candidate.in_flight) * (own + decode_ms),
        }
    }

    /// Predicts how long it takes to compute again what this placement pushes out of the cache.
    fn evict_ms(&self, outline: &Outline, to: &Candidate, position: usize, output: u32) -> f64 {
        let Some(room) = to.report.and_then(|it| it.kv_tokens_max) else { return 0.0 };
        let new = outline.tokens_beyond(self.residency.blocks(position)).saturating_add(output);
        let held = self.residency.held_tokens(outline, to.id);
        let evicted = (held + u64::from(new)).saturating_sub(room).min(held);
        // A token deep in a long context costs more than one at its start: attention grows.
        let depth = outline.prompt_tokens.max(DEPTH_TOKENS_MIN);
        float(evicted) * to.books.prefill_ms(depth, 0) / f64::from(depth)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PolicyName;
    use super::super::bench::{Bench, prompt};

    #[test]
    fn a_session_stays_with_its_cache_until_waiting_costs_more_than_computing_again() {
        let mut bench = Bench::new(PolicyName::Priced, 2);
        bench.serve(&prompt(&[(0, 40)]), 0);
        let next = prompt(&[(0, 40), (50, 2)]);
        assert_eq!(bench.pick(&next), 0);
        // Work in line at home that takes longer than the whole prompt elsewhere.
        let long = bench.send(&prompt(&[(100, 90)]), 0);
        assert_eq!(bench.pick(&next), 1);
        bench.answer(long, 0);
        assert_eq!(bench.pick(&next), 0, "the line is gone, the cache is still there");
    }

    #[test]
    fn equal_prices_go_by_the_lots_of_the_session() {
        let mut bench = Bench::new(PolicyName::Priced, 4);
        let tally = bench.tally(&prompt(&[(0, 4)]), 100);
        assert_eq!(tally.iter().filter(|it| 0 < **it).count(), 1, "{tally:?}");
    }

    #[test]
    fn of_two_cold_replicas_the_less_busy_one_takes_it() {
        let mut bench = Bench::new(PolicyName::Priced, 2);
        bench.in_flight(&[3, 1]);
        assert_eq!(bench.pick(&prompt(&[(0, 4)])), 1);
        bench.in_flight(&[1, 3]);
        assert_eq!(bench.pick(&prompt(&[(0, 4)])), 0);
    }
}
