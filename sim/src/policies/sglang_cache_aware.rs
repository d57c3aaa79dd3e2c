//! SGLang's `cache_aware` with the defaults of its command line: the holder of the longest
//! beginning takes the request if that is more than 0.3 of it, else the least loaded. One hot
//! replica turns this off for the whole fleet: when the most loaded has over 64 more and over 1.5
//! times as many in flight as the least, the least loaded takes everything. A holder that cannot
//! take it is dropped from the index, and the first that can takes the request.
//!
//! The real one keeps a tree of characters of 2^26 per replica; here it is blocks, in the bytes that
//! every policy has. Only replicas that may be sent to are compared; it looks at all.

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::{ReplicaId, RequestId};

use super::{Ask, Candidate, Policy, lowest_by_chance, position};
use cleave_core::policy::Residency;

const CACHE_THRESHOLD: f64 = 0.3;
const BALANCE_ABS: f64 = 64.0;
const BALANCE_REL: f64 = 1.5;

#[derive(Debug)]
pub(super) struct SglangCacheAware {
    residency: Residency,
}

impl Default for SglangCacheAware {
    fn default() -> Self {
        Self { residency: Residency::boundless() }
    }
}

impl Policy for SglangCacheAware {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        if !is_imbalanced(candidates)
            && let Some((holder, blocks)) = self.residency.deepest(ask)
            && is_hit(ask, blocks)
        {
            return position(candidates, holder).unwrap_or_else(|| {
                self.residency.forget(holder);
                0
            });
        }
        lowest_by_chance(candidates.len(), chance, |it| f64::from(candidates[it].in_flight))
    }

    fn on_sent(&mut self, _: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        self.residency.on_sent(ask, to)
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.residency.forget(replica);
    }

    fn bytes(&self) -> usize {
        self.residency.bytes()
    }
}

fn is_hit(ask: &Ask<'_>, blocks: usize) -> bool {
    let matched = f64::from(ask.outline.tokens_in(blocks));
    CACHE_THRESHOLD * f64::from(ask.outline.prompt_tokens) < matched
}

fn is_imbalanced(candidates: &[Candidate]) -> bool {
    let loads = || candidates.iter().map(|it| f64::from(it.in_flight));
    let (most, least) = (loads().fold(0.0, f64::max), loads().fold(f64::INFINITY, f64::min));
    BALANCE_ABS < most - least && BALANCE_REL * least < most
}

#[cfg(test)]
mod tests {
    use super::super::SGLANG_CACHE_AWARE;
    use super::super::bench::{Bench, prompt};

    fn bench() -> Bench {
        Bench::new(SGLANG_CACHE_AWARE, 3)
    }

    #[test]
    fn more_than_three_tenths_of_the_prompt_decide() {
        let mut bench = bench();
        bench.serve(&prompt(&[(0, 10)]), 2);
        bench.in_flight(&[0, 0, 60]);
        assert_eq!(bench.pick(&prompt(&[(0, 4), (50, 6)])), 2);
        // Three of ten blocks are not more than three tenths: the least loaded, by chance.
        let counts = bench.tally(&prompt(&[(0, 3), (60, 7)]), 100);
        assert!(counts[2] == 0 && 20 < counts[0] && 20 < counts[1], "{counts:?}");
    }

    #[test]
    fn one_hot_replica_turns_affinity_off_for_all() {
        let mut bench = bench();
        bench.serve(&prompt(&[(0, 10)]), 1);
        // 70 - 6 is 64 and not more; one further request tips it, though no home is hot.
        bench.in_flight(&[6, 10, 70]);
        assert_eq!(bench.pick(&prompt(&[(0, 10)])), 1);
        bench.in_flight(&[6, 10, 71]);
        assert_eq!(bench.pick(&prompt(&[(0, 10)])), 0);
        // Far apart in number, but not one and a half times.
        bench.in_flight(&[200, 201, 290]);
        assert_eq!(bench.pick(&prompt(&[(0, 10)])), 1);
    }

    #[test]
    fn a_holder_that_cannot_is_dropped_and_the_first_takes_it() {
        let mut bench = bench();
        bench.serve(&prompt(&[(0, 10)]), 2);
        let away = bench.candidates.pop().unwrap();
        bench.in_flight(&[9, 0]);
        assert_eq!(bench.pick(&prompt(&[(0, 10)])), 0);
        bench.candidates.push(away);
        assert_eq!(bench.tally(&prompt(&[(0, 10)]), 50)[0], 0, "it is a miss from now on");
    }
}
