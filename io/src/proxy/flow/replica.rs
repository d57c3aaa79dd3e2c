//! How one replica does now beside its hour: first tokens of the last minute against those of the last sixty,
//! and the share of prompts that it found in its cache. A page can so tell a replica that is slow today from
//! one that always was.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::telemetry::ServedRequest;

use super::histogram::{BUCKETS, BucketCounts, TimeHistogram};

/// Parts of an hour that are kept, and how many samples make one.
const PARTS_MAX: usize = 12;
const SAMPLES_PER_PART: u32 = 60;
/// Samples that are "now": a minute of them.
const NOW_SAMPLES: usize = 12;

/// What requests at one replica touch.
#[derive(Debug, Default)]
pub struct ReplicaFlow {
    first_tokens: TimeHistogram,
    /// Tokens of prompts, and those of them that were cached.
    tokens: [AtomicU64; 2],
    kept: Mutex<KeptFlow>,
}

#[derive(Debug, Default)]
struct KeptFlow {
    /// The samples of the last minute, the newest last; few times in each.
    now: VecDeque<FlowMoment>,
    /// Five minutes each, the newest last and still growing.
    parts: VecDeque<BucketCounts>,
    /// All parts together.
    hour: BucketCounts,
    samples: u32,
}

#[derive(Debug)]
struct FlowMoment {
    /// Buckets that are not empty.
    first_tokens: Vec<(u8, u32)>,
    tokens: [u64; 2],
}

/// A replica now, and over its hour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lately {
    /// The median of first tokens in the last minute, and in the last hour, in milliseconds.
    pub first_token_ms: Option<f64>,
    pub first_token_hour_ms: Option<f64>,
    /// The share of prompt tokens that were cached, in the last minute.
    pub cached_share: Option<f64>,
}

impl ReplicaFlow {
    pub(in crate::proxy) fn note(&self, it: &ServedRequest) {
        if let Some(first_token) = it.first_token {
            self.first_tokens.note(first_token);
        }
        for (counter, tokens) in self.tokens.iter().zip([it.usage.input, it.usage.cached]) {
            counter.fetch_add(tokens.unwrap_or(0).into(), Relaxed);
        }
    }

    /// Writes down what was counted since the last sample.
    pub(in crate::proxy) fn sample(&self) {
        let counted = self.first_tokens.take();
        let tokens = self.tokens.each_ref().map(|it| it.swap(0, Relaxed));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.samples.is_multiple_of(SAMPLES_PER_PART) {
            if kept.parts.len() == PARTS_MAX
                && let Some(oldest) = kept.parts.pop_front()
            {
                kept.hour.remove(&oldest);
            }
            kept.parts.push_back(BucketCounts::default());
        }
        kept.samples = kept.samples.wrapping_add(1);
        kept.hour.add(&counted);
        if let Some(part) = kept.parts.back_mut() {
            part.add(&counted);
        }
        if kept.now.len() == NOW_SAMPLES {
            kept.now.pop_front();
        }
        let buckets = counted.0.into_iter().enumerate().filter(|it| 0 < it.1);
        let first_tokens =
            buckets.filter_map(|(at, count)| Some((u8::try_from(at).ok()?, count))).collect();
        kept.now.push_back(FlowMoment { first_tokens, tokens });
    }

    /// Reads off how the replica does.
    pub fn lately(&self) -> Lately {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut now, mut tokens) = (BucketCounts([0; BUCKETS]), [0_u64; 2]);
        for sample in &kept.now {
            sample.first_tokens.iter().for_each(|(at, count)| now.0[usize::from(*at)] += count);
            tokens.iter_mut().zip(sample.tokens).for_each(|(all, more)| *all += more);
        }
        let median = |it: &BucketCounts| it.quantiles_ms([0.5]).map(|[it]| it);
        Lately {
            first_token_ms: median(&now),
            first_token_hour_ms: median(&kept.hour),
            cached_share: share(tokens),
        }
    }
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "tokens of one minute")]
fn share([input, cached]: [u64; 2]) -> Option<f64> {
    (0 < input).then(|| (cached as f64 / input as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cleave_core::domain::Usage;

    use super::*;

    fn served(ms: u64) -> ServedRequest {
        ServedRequest {
            status: 200,
            stream: true,
            first_token: Some(Duration::from_millis(ms)),
            gap: None,
            total: Duration::from_secs(1),
            usage: Usage { input: Some(100), cached: Some(75), output: Some(1) },
            refused: None,
        }
    }

    #[test]
    fn now_is_told_from_the_hour() {
        let flow = ReplicaFlow::default();
        assert_eq!(flow.lately(), Lately::default());
        for _ in 0..100 {
            flow.note(&served(20));
            flow.sample();
        }
        for _ in 0..NOW_SAMPLES {
            flow.note(&served(2_000));
            flow.sample();
        }
        let it = flow.lately();
        assert!(it.first_token_ms.is_some_and(|it| 1_800.0 < it), "{it:?}");
        assert!(it.first_token_hour_ms.is_some_and(|it| it < 25.0), "{it:?}");
        assert_eq!(it.cached_share, Some(0.75));
    }

    #[test]
    fn what_is_over_an_hour_old_is_forgotten_and_nothing_grows() {
        let flow = ReplicaFlow::default();
        flow.note(&served(20));
        for _ in 0..10_000 {
            flow.sample();
        }
        assert_eq!(flow.lately(), Lately::default());
        let kept = flow.kept.lock().unwrap();
        assert_eq!((kept.now.len(), kept.parts.len()), (NOW_SAMPLES, PARTS_MAX));
    }
}
