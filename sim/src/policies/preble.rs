//! Preble's E2. Exploit: if more of the prompt is held somewhere than would have to be computed, the
//! least loaded of those that hold most of it takes it. Explore: else the replica where load, the
//! computing again of what it would evict, and the prefill itself come to the least, all in GPU time.
//! Load is what was sent there in the last three minutes: prefill not held, and the answer.
//!
//! An evicted token counts for one token computed again; the paper discounts it by how often it was
//! hit. Moving load off hot replicas and copying prefixes whose first token slows down are left out.

use std::collections::VecDeque;
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use rustc_hash::FxHashMap;

use cleave_core::domain::{Moment, Outline, ReplicaId, RequestId};

use super::mooncake::own_ms;
use super::span::{decode_ms, ms_of, prefill_ms, whole_us};
use super::{Ask, Candidate, Policy, lowest_by_chance};
use cleave_core::policy::Residency;

const WINDOW: Duration = Duration::from_secs(180);
/// How many requests the window holds at most; beyond that the oldest leave early.
const WINDOW_MAX: usize = 1 << 17;
/// The assumed length of an answer when none is expected.
const OUTPUT_TOKENS_UNKNOWN: u32 = 45;

#[derive(Debug)]
pub(super) struct Preble {
    residency: Residency,
    /// When what was sent where, in microseconds of GPU time, and the sums for each replica.
    window: VecDeque<(Moment, ReplicaId, u64)>,
    loads_us: FxHashMap<ReplicaId, u64>,
}

impl Default for Preble {
    fn default() -> Self {
        let (window, loads_us) = (VecDeque::new(), FxHashMap::default());
        Self { residency: Residency::of_kv(1), window, loads_us }
    }
}

impl Policy for Preble {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        self.forget_before(ask.now);
        self.residency.look_up(ask, candidates);
        let load_ms = |it: usize| ms_of(self.load_us(candidates[it].id));
        let most = self.residency.blocks_max();
        if ask.outline.tokens_beyond(most) < ask.outline.tokens_in(most) {
            return lowest_by_chance(candidates.len(), chance, |it| {
                if self.residency.blocks(it) == most { load_ms(it) } else { f64::INFINITY }
            });
        }
        lowest_by_chance(candidates.len(), chance, |it| {
            let own = own_ms(ask.outline, self.residency.blocks(it));
            load_ms(it) + self.eviction_ms(ask.outline, &candidates[it], it) + own
        })
    }

    fn on_sent(&mut self, _: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        let held = self.residency.on_sent(ask, to);
        let output = ask.outline.output_tokens.unwrap_or(OUTPUT_TOKENS_UNKNOWN);
        let decode = f64::from(output) * decode_ms(ask.outline.prompt_tokens);
        let span_us = whole_us(own_ms(ask.outline, held) + decode);
        self.window.push_back((ask.now, to.id, span_us));
        *self.loads_us.entry(to.id).or_default() += span_us;
        if WINDOW_MAX < self.window.len() {
            self.forget_oldest();
        }
        held
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.residency.forget(replica);
        self.loads_us.remove(&replica);
    }

    fn bytes(&self) -> usize {
        self.residency.bytes() + self.window.capacity() * size_of::<(Moment, ReplicaId, u64)>()
    }
}

impl Preble {
    fn load_us(&self, replica: ReplicaId) -> u64 {
        self.loads_us.get(&replica).copied().unwrap_or(0)
    }

    /// Predicts how long it takes to compute again what the request would push out of the cache.
    fn eviction_ms(&self, outline: &Outline, candidate: &Candidate, position: usize) -> f64 {
        let Some(room) = candidate.report.and_then(|it| it.kv_tokens_max) else { return 0.0 };
        let new = u64::from(outline.tokens_beyond(self.residency.blocks(position)));
        let held = self.residency.held_tokens(outline, candidate.id);
        let evicted = (held + new).saturating_sub(room).min(held);
        prefill_ms(u32::try_from(evicted).unwrap_or(u32::MAX), 0)
    }

    fn forget_before(&mut self, now: Moment) {
        while self.window.front().is_some_and(|it| WINDOW < now.since(it.0)) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, replica, span_us)) = self.window.pop_front() else { return };
        // One that left took its sum along.
        if let Some(load_us) = self.loads_us.get_mut(&replica) {
            *load_us = load_us.saturating_sub(span_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PREBLE;
    use super::super::bench::{Bench, prompt};

    fn bench() -> Bench {
        Bench::new(PREBLE, 2)
    }

    #[test]
    fn more_than_half_held_is_exploited_whatever_the_load() {
        let mut bench = bench();
        bench.serve(&prompt(&[(0, 10)]), 0);
        (0..20).for_each(|it| bench.serve(&prompt(&[(1000 * it + 1000, 50)]), 0));
        assert_eq!(bench.pick(&prompt(&[(0, 6), (50, 5)])), 0);
        assert_eq!(bench.pick(&prompt(&[(0, 5), (50, 5)])), 1, "half is not more than half");
        bench.serve(&prompt(&[(0, 10)]), 1);
        assert_eq!(bench.pick(&prompt(&[(0, 6), (50, 5)])), 1, "the less loaded of two holders");
    }

    #[test]
    fn load_is_that_of_the_last_three_minutes() {
        let mut bench = bench();
        bench.serve(&prompt(&[(1000, 50)]), 0);
        bench.wait(100);
        bench.serve(&prompt(&[(2000, 20)]), 1);
        assert_eq!(bench.pick(&prompt(&[(50, 5)])), 1);
        bench.wait(81);
        assert_eq!(bench.pick(&prompt(&[(50, 5)])), 0);
    }

    #[test]
    fn what_would_be_evicted_is_counted() {
        let mut bench = bench();
        // Room for 100,000 tokens each. Replica 0 is full with a load that has passed, replica 1
        // had a prompt of 10,000 tokens lately: about 0.56 s with its answer.
        bench.report(0, 0, 0.0);
        bench.report(1, 0, 0.0);
        bench.serve(&prompt(&[(0, 1000)]), 0);
        bench.wait(200);
        bench.serve(&prompt(&[(5000, 100)]), 1);
        // 50,000 tokens evicted there would take more than a second again; 500 hardly anything.
        assert_eq!(bench.pick(&prompt(&[(8000, 500)])), 1);
        assert_eq!(bench.pick(&prompt(&[(8000, 5)])), 0);
    }
}
