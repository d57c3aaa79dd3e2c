//! llm-d's built-in scorers: 2 · queue + 2 · free KV + 3 · share of the prompt's blocks held, the
//! highest wins, chance between equals. Queue and KV come from scraped metrics. With `no-hit-lru` a
//! prompt without any holder also scores by how long ago a replica was last given such a one; the
//! guides weigh that with 2.
//!
//! Its index counts as many entries as the engine has blocks, while an entry covers 64 tokens and an
//! engine's block 16, so it believes in four times what fits; that is kept. Blocks are the outline's.

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::{ReplicaId, RequestId};

use super::{Ask, Candidate, Policy, lowest_by_chance};
use cleave_core::policy::Residency;

const QUEUE_WEIGHT: f64 = 2.0;
const KV_WEIGHT: f64 = 2.0;
const PREFIX_WEIGHT: f64 = 3.0;
/// How many times the engine's KV memory the index remembers.
pub(super) const KV_TIMES: u64 = 4;
/// How many replicas are remembered for their last cold prompt.
const COLD_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Llmd {
    residency: Residency,
    cold_weight: f64,
    /// The replicas that were given a cold prompt, the longest ago first.
    cold: Vec<ReplicaId>,
}

impl Llmd {
    /// Makes the rule with `no-hit-lru` in that weight; 0 leaves it out.
    pub(super) fn new(cold_weight: f64) -> Self {
        Self { residency: Residency::of_kv(KV_TIMES), cold_weight, cold: Vec::new() }
    }
}

impl Policy for Llmd {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        let is_cold = 0.0 < self.cold_weight && self.residency.deepest(ask).is_none();
        self.residency.look_up(ask, candidates);
        let waiting = |it: &Candidate| it.report.map_or(0, |it| it.waiting);
        let longest = candidates.iter().map(waiting).max().unwrap_or(0);
        let shortest = candidates.iter().map(waiting).min().unwrap_or(0);
        let cold = Ranks::new(&self.cold, candidates);
        let mut fresh = 0;
        lowest_by_chance(candidates.len(), chance, |it| {
            let candidate = &candidates[it];
            let queue = match longest - shortest {
                0 => 1.0,
                range => f64::from(longest - waiting(candidate)) / f64::from(range),
            };
            let kv = 1.0 - candidate.report.map_or(0.0, |it| it.kv_used_share.clamp(0.0, 1.0));
            let prefix = held_share(&self.residency, ask, it);
            let cold = if is_cold { cold.score(candidate.id, &mut fresh) } else { 0.5 };
            -(QUEUE_WEIGHT * queue
                + KV_WEIGHT * kv
                + PREFIX_WEIGHT * prefix
                + self.cold_weight * cold)
        })
    }

    fn on_sent(&mut self, _: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        if 0.0 < self.cold_weight && self.residency.deepest(ask).is_none() {
            self.cold.retain(|it| *it != to.id);
            self.cold.push(to.id);
            if COLD_MAX < self.cold.len() {
                self.cold.remove(0);
            }
        }
        self.residency.on_sent(ask, to)
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.residency.forget(replica);
        self.cold.retain(|it| *it != replica);
    }

    fn bytes(&self) -> usize {
        self.residency.bytes() + self.cold.capacity() * size_of::<ReplicaId>()
    }
}

/// Measures the share of the prompt's blocks that a candidate holds.
pub(super) fn held_share(residency: &Residency, ask: &Ask<'_>, position: usize) -> f64 {
    let blocks = |it: usize| u32::try_from(it).map_or(f64::INFINITY, f64::from);
    match ask.outline.blocks.len() {
        0 => 0.0,
        all => blocks(residency.blocks(position)) / blocks(all),
    }
}

/// The order in which candidates were last given a cold prompt: never first, then the longest ago.
struct Ranks<'a> {
    cold: &'a [ReplicaId],
    fresh: u32,
    last: u32,
}

impl<'a> Ranks<'a> {
    fn new(cold: &'a [ReplicaId], candidates: &[Candidate]) -> Self {
        let fresh = candidates.iter().filter(|it| !cold.contains(&it.id)).count();
        let count = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        Self { cold, fresh: count(fresh), last: count(candidates.len() - 1) }
    }

    /// Scores one replica; asked in order of id, so that the fresh ones rank in that order.
    fn score(&self, replica: ReplicaId, fresh_before: &mut u32) -> f64 {
        let rank = if let Some(age) = self.cold.iter().position(|it| *it == replica) {
            self.fresh.saturating_add(u32::try_from(age).unwrap_or(u32::MAX))
        } else {
            *fresh_before += 1;
            *fresh_before - 1
        };
        if self.last == 0 { 1.0 } else { (1.0 - f64::from(rank) / f64::from(self.last)).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, prompt};
    use super::super::{LLMD, LLMD_NO_HIT_LRU};

    #[test]
    fn queue_and_kv_weigh_two_and_the_prefix_three() {
        let mut bench = Bench::new(LLMD, 3);
        bench.serve(&prompt(&[(0, 10)]), 0);
        bench.report(0, 10, 0.5);
        bench.report(1, 0, 0.9);
        bench.report(2, 5, 0.0);
        // Replica 0: 2·0 + 2·0.5 + 3·1 = 4; replica 1: 2·1 + 2·0.1 = 2.2; replica 2: 1 + 2 = 3.
        assert_eq!(bench.pick(&prompt(&[(0, 10)])), 0);
        // With half the prompt held replica 0 scores 2.5 and replica 2 is best.
        assert_eq!(bench.pick(&prompt(&[(0, 5), (50, 5)])), 2);
        bench.report(2, 10, 0.0);
        // No replica in between any more: 2.5, 2.2 and 2.
        assert_eq!(bench.pick(&prompt(&[(0, 5), (50, 5)])), 0);
    }

    #[test]
    fn equals_are_drawn_by_chance() {
        let counts = Bench::new(LLMD, 3).tally(&prompt(&[(0, 10)]), 300);
        assert!(counts.iter().all(|it| 60 < *it), "{counts:?}");
    }

    #[test]
    fn cold_prompts_go_round_when_their_last_places_are_remembered() {
        let mut bench = Bench::new(LLMD_NO_HIT_LRU, 3);
        for (number, wanted) in (0..).zip([0, 1, 2, 0, 1, 2]) {
            let cold = prompt(&[(100 * number, 5)]);
            assert_eq!(bench.pick(&cold), wanted);
            bench.serve(&cold, wanted);
        }
        // A warm one does not change the order, wherever it goes.
        bench.serve(&prompt(&[(0, 5)]), 0);
        assert_eq!(bench.pick(&prompt(&[(9000, 5)])), 0);
        // 2·1 for the longest ago is outweighed by a full queue: 2 + 2 + 0 against 0 + 2 + 2·1.
        bench.report(0, 3, 0.1);
        assert_eq!(bench.pick(&prompt(&[(9000, 5)])), 1);
    }
}
