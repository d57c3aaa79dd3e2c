//! The replica with the least work booked for its weight: prompt tokens until the first token, the
//! expected answer until the end. No cache is thought of, which is the point: it shows what balance
//! alone is worth.

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::{Moment, Outline, ReplicaId, RequestId, float};

use super::ledger::{Ledger, Load};
use super::{Ask, Candidate, Policy};
use cleave_core::policy::lowest;

/// The assumed length of an answer when none is expected.
const OUTPUT_TOKENS_UNKNOWN: u32 = 256;

#[derive(Debug, Default)]
pub(super) struct LeastWork {
    ledger: Ledger,
}

impl Policy for LeastWork {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], _: &mut Pcg64Mcg) -> usize {
        let own = work(ask.outline);
        lowest(candidates, |it| {
            let load = self.ledger.load(it.id);
            float(load.prefill + load.rest + own.prefill + own.rest) / it.weight
        })
    }

    fn on_sent(&mut self, request: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        self.ledger.on_sent(request, to.id, work(ask.outline));
        0
    }

    fn on_first_token(&mut self, _: Moment, request: RequestId, _: ReplicaId) {
        self.ledger.on_first_token(request);
    }

    fn on_ended(&mut self, _: Moment, request: RequestId, _: ReplicaId) {
        self.ledger.on_ended(request);
    }
}

fn work(outline: &Outline) -> Load {
    let output = outline.output_tokens.unwrap_or(OUTPUT_TOKENS_UNKNOWN);
    Load { prefill: u64::from(outline.prompt_tokens), rest: u64::from(output) }
}

#[cfg(test)]
mod tests {
    use super::super::LEAST_WORK;
    use super::super::bench::{Bench, prompt};

    #[test]
    fn tokens_count_and_not_requests() {
        let mut bench = Bench::new(LEAST_WORK, 2);
        let (long, short) = (prompt(&[(0, 30)]), prompt(&[(50, 1)]));
        let request = bench.send(&long, 0);
        // 3000 + 256 against three times 100 + 256, then against nothing but the answer.
        for _ in 0..3 {
            assert_eq!(bench.pick(&short), 1);
            bench.send(&short, 1);
        }
        assert_eq!(bench.pick(&short), 1);
        bench.answer(request, 0);
        assert_eq!(bench.pick(&short), 0);
    }
}
