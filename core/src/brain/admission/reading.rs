//! How much of its time may a replica give to prompts? Every prompt that is read holds up the answers that
//! are written there. While prompts can be read as fast as they come, that is the policy's to weigh. When
//! they cannot, some requests are late whatever the router does, and a line that fills every gap with the next
//! prompt makes all answers slow as well: they hold their KV memory for longer, and in the end
//! few requests keep both promises. So the longer the line, the more it leaves to the answers: a prompt
//! goes only where the time between tokens stays within what is promised. A short line limits nothing, and
//! no line limits prompts that are read in less than the promised time between two tokens.

use crate::cost::StepWork;
use crate::domain::{Moment, float};
use crate::fleet::Replica;

/// The part of the promised time between tokens that answers should take on average: single answers differ, and
/// most of them have to keep the promise.
const GAP_PART: f64 = 0.5;
/// A replica may always read for this share of its time, also where its answers are too slow without any
/// prompt. With less, a burst under short promises would keep the line long that it made.
const SHARE_MIN: f64 = 0.4;
/// A line with less work than the fleet does in this time is a burst that will pass. With short promises the
/// wait that is promised is not long enough to tell.
const BURST_MS: f64 = 5_000.0;

/// Says how much of its time a replica reads, as a multiple of what its answers allow. From 1 on they are
/// slower than they should be.
pub(super) fn level(now: Moment, replica: &Replica, token_gap_ms: f64) -> f64 {
    let ((_, answering), pace) = (replica.ledger.counts(), replica.pace.factor());
    if answering == 0 {
        return 0.0;
    }
    let context = float(replica.ledger.load().kv_tokens);
    let step = StepWork::answers(f64::from(answering), context);
    let step_ms = pace * replica.hardware.step.step_ms(&step);
    let allowed = (1.0 - step_ms / (GAP_PART * token_gap_ms)).max(SHARE_MIN);
    replica.ledger.reading_share(now, pace) / allowed
}

/// Says up to which level a replica may be filled when the fleet needs `line_ms` for what waits.
pub(super) fn limit(line_ms: f64, first_token_ms: f64) -> f64 {
    if line_ms <= 0.0 {
        return f64::INFINITY;
    }
    (first_token_ms.max(BURST_MS) / line_ms).max(1.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::domain::ReplicaId;
    use crate::fleet::{BreakerSettings, Load};

    const GAP_MS: f64 = 80.0;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    /// A replica that writes `answers` with 1,000 tokens each and reads for `busy_ms` of every second.
    fn replica(answers: u32, busy_ms: u64) -> Replica {
        let (name, settings) = ("http://gpu-0:8000".to_owned(), BreakerSettings::default());
        let mut it = Replica::new(ReplicaId(0), name, 1.0, Arc::default(), settings);
        let begin = |it: &mut Replica, now, prefill_us, kv_tokens| {
            let mut load = Load { prefill_us, kv_tokens, ..Load::default() };
            it.on_sent(now, load);
            it.ledger.begin(now, &mut load);
            load
        };
        for second in 0..60 {
            let load = begin(&mut it, at(second * 1_000), busy_ms * 1_000, 0);
            it.on_ended(at(second * 1_000), load, true);
        }
        for _ in 0..answers {
            begin(&mut it, at(60_000), 0, 1_000);
        }
        it
    }

    #[test]
    fn prompts_fill_a_replica_by_what_its_answers_allow() {
        let now = at(60_000);
        let level = |answers, busy_ms| level(now, &replica(answers, busy_ms), GAP_MS);
        assert!(level(0, 900) < 1e-9, "no answer is held up");
        let (light, heavy) = (level(8, 300), level(8, 1_000));
        assert!(light < 0.5 && 1.0 < heavy, "{light} {heavy}");
        assert!(heavy < level(200, 1_000), "many answers take longer for each step");
    }

    #[test]
    fn slow_answers_stop_no_prompt_that_a_replica_has_time_for() {
        // A step takes longer than is promised between two tokens.
        let slow = |busy_ms| level(at(60_000), &replica(8, busy_ms), 1.0);
        assert!(slow(350) < 1.0 && 1.0 < slow(500), "{} {}", slow(350), slow(500));
    }

    #[test]
    fn only_a_long_line_limits_what_is_read() {
        assert!(limit(0.0, 5_000.0).is_infinite());
        assert!((limit(500.0, 5_000.0) - 10.0).abs() < 1e-9);
        assert!((limit(60_000.0, 5_000.0) - 1.0).abs() < 1e-9);
        assert!((limit(2_500.0, 500.0) - 2.0).abs() < 1e-9, "a short promise makes no line long");
        assert!((limit(5_000.0, 20_000.0) - 4.0).abs() < 1e-9);
    }
}
