//! `LMetric`: the product of the prompt tokens to be computed, those in line and this request's, and
//! of the requests there; the lowest wins. Nothing to tune. The paper reads both from the engines;
//! here they are what this router sent and has not seen the first token or the end of, as the local
//! variant in `AIBrix` counts them.

use rand_pcg::Pcg64Mcg;

use crate::domain::{Moment, ReplicaId, RequestId};

use super::ledger::{Ledger, Load};
use super::residency::Residency;
use super::span::float;
use super::{Ask, Candidate, Policy, lowest_by_chance};

#[derive(Debug)]
pub(super) struct Lmetric {
    residency: Residency,
    ledger: Ledger,
}

impl Default for Lmetric {
    fn default() -> Self {
        Self { residency: Residency::of_kv(1), ledger: Ledger::default() }
    }
}

impl Policy for Lmetric {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        self.residency.look_up(ask, candidates);
        lowest_by_chance(candidates.len(), chance, |it| {
            let candidate = &candidates[it];
            let own = f64::from(ask.outline.tokens_beyond(self.residency.blocks(it)));
            let tokens = float(self.ledger.load(candidate.id).prefill) + own;
            tokens * (f64::from(candidate.in_flight) + 1.0)
        })
    }

    fn on_sent(&mut self, request: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        let held = self.residency.on_sent(ask, to);
        let prefill = u64::from(ask.outline.tokens_beyond(held));
        self.ledger.on_sent(request, to.id, Load { prefill, rest: 0 });
        held
    }

    fn on_first_token(&mut self, _: Moment, request: RequestId, _: ReplicaId) {
        self.ledger.on_first_token(request);
    }

    fn on_ended(&mut self, _: Moment, request: RequestId, _: ReplicaId) {
        self.ledger.on_ended(request);
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.residency.forget(replica);
    }

    fn bytes(&self) -> usize {
        self.residency.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::PolicyName;
    use super::super::bench::{Bench, prompt};

    #[test]
    fn tokens_to_compute_times_requests_decide() {
        let mut bench = Bench::new(PolicyName::Lmetric, 2);
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
