//! SMG's `cache_aware`: the holder of the longest beginning takes the request if that is more than
//! 0.3 of it. A holder is passed over only if it is itself too far above the mean in flight, by a
//! half and by min(64, max(4, ⌈2·√mean⌉)): its spill gate. The one the request spills to is
//! remembered too, so a hot beginning comes to lie in more places. Misses, spills and ties go by
//! `least_load`, with its overload veto.
//!
//! Its tree of characters, 2^26 for the fleet, is blocks here, in the bytes that every policy has;
//! sampling of the loads above 32 replicas and the share of misses for new ones are left out.

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::{ReplicaId, RequestId};

use super::smg_least_load::Waits;
use super::{Ask, Candidate, Policy, lowest_by_chance};
use cleave_core::policy::Residency;
use cleave_core::policy::in_flight_total;

const CACHE_THRESHOLD: f64 = 0.3;
const BALANCE_ABS: f64 = 64.0;
const BALANCE_REL: f64 = 1.5;
const MARGIN_MIN: f64 = 4.0;

#[derive(Debug)]
pub(super) struct SmgCacheAware {
    residency: Residency,
    waits: Waits,
}

impl Default for SmgCacheAware {
    fn default() -> Self {
        Self { residency: Residency::boundless(), waits: Waits::default() }
    }
}

impl Policy for SmgCacheAware {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        self.waits.measure(candidates);
        self.residency.look_up(ask, candidates);
        let gate = gate(candidates);
        let usable = |it: usize| self.waits.of(it).is_finite();
        let held = |it: &usize| self.residency.blocks(*it);
        let most = (0..candidates.len()).filter(|it| usable(*it)).map(|it| held(&it)).max();
        let most = most.unwrap_or(0);
        let matched = f64::from(ask.outline.tokens_in(most));
        let is_hit = CACHE_THRESHOLD * f64::from(ask.outline.prompt_tokens) < matched;
        let takes = |it: usize| {
            usable(it) && held(&it) == most && f64::from(candidates[it].in_flight) <= gate
        };
        let affine = is_hit && (0..candidates.len()).any(takes);
        lowest_by_chance(candidates.len(), chance, |it| {
            if affine && !takes(it) { f64::INFINITY } else { self.waits.of(it) }
        })
    }

    fn on_sent(&mut self, _: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        self.residency.on_sent(ask, to);
        self.waits.on_sent(ask, to);
        0
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.residency.forget(replica);
        self.waits.forget(replica);
    }

    fn bytes(&self) -> usize {
        self.residency.bytes()
    }
}

/// Measures how many requests a holder may have in flight and still be sent more.
fn gate(candidates: &[Candidate]) -> f64 {
    let mean = in_flight_total(candidates) / candidates.iter().map(|_| 1.0).sum::<f64>();
    let margin = (2.0 * mean.sqrt()).ceil().clamp(MARGIN_MIN, BALANCE_ABS);
    (BALANCE_REL * mean).max(mean + margin)
}

#[cfg(test)]
mod tests {
    use super::super::SMG_CACHE_AWARE;
    use super::super::bench::{Bench, prompt};

    fn bench() -> Bench {
        Bench::new(SMG_CACHE_AWARE, 4)
    }

    #[test]
    fn only_the_hot_holder_itself_is_passed_over() {
        let mut bench = bench();
        bench.serve(&prompt(&[(0, 10)]), 1);
        bench.serve(&prompt(&[(50, 10)]), 2);
        // The mean is 16; half above is 24, and the margin of ⌈2·√16⌉ = 8 says 24 as well.
        bench.in_flight(&[8, 24, 16, 16]);
        assert_eq!(bench.pick(&prompt(&[(0, 10)])), 1);
        bench.in_flight(&[7, 25, 16, 16]);
        assert_eq!(bench.pick(&prompt(&[(0, 10)])), 0);
        assert_eq!(bench.pick(&prompt(&[(50, 10)])), 2, "others keep their affinity");
    }

    #[test]
    fn where_it_spilled_to_is_a_holder_from_then_on() {
        let mut bench = bench();
        bench.serve(&prompt(&[(0, 10)]), 1);
        bench.in_flight(&[0, 20, 0, 0]);
        bench.serve(&prompt(&[(0, 10)]), 3);
        bench.in_flight(&[0, 4, 0, 2]);
        assert_eq!(bench.pick(&prompt(&[(0, 10)])), 3, "the shorter wait of two holders");
    }

    #[test]
    fn a_match_of_three_tenths_is_a_miss() {
        let mut bench = bench();
        bench.serve(&prompt(&[(0, 10)]), 1);
        bench.in_flight(&[1, 1, 0, 1]);
        assert_eq!(bench.pick(&prompt(&[(0, 3), (70, 7)])), 2);
        assert_eq!(bench.pick(&prompt(&[(0, 4), (80, 6)])), 1);
    }
}
