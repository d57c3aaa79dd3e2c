//! How fast is a replica beside the others, each measured against what its own class promises? The gaps between the
//! tokens of its streams are held against what they should take, with two memories. The long one prices: a hot
//! GPU, a noisy neighbour or coefficients that are wrong for one class show there, and its times are stretched by as
//! much. The short one takes out a replica that lags several times behind. Only the comparison counts: a model that is
//! wrong about all replicas alike corrects none of them, and a busy replica is predicted to be slower; a limit in
//! milliseconds would put out whole pools at their busiest hour. What is not confirmed fades, so that a replica that
//! was shunned for its slowness is tried again.

use std::time::Duration;

use crate::domain::{Moment, span_ms};

/// How much the newest gap counts in the long memory.
const SHARE_OF_NEWEST: f64 = 1.0 / 128.0;
/// How many gaps it takes until half of what they show is believed.
const HALF_BELIEF: f64 = 64.0;
/// How long it takes until half of what was shown is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Deviations this small are noise; in logarithms, so about 15 %.
const NOISE: f64 = 0.15;
/// What one gap may show at most, as a factor either way.
const SHOWN_MAX: f64 = 8.0;
/// What is believed at most, as a factor either way.
const FACTOR_MAX: f64 = 4.0;

/// How much the newest gap counts in the short memory.
const SHARE_OF_NEWEST_LATELY: f64 = 0.1;
/// Gaps that the short memory must have seen before it says anything.
const GAPS_MIN: u32 = 16;
/// Gaps older than this are not in the short memory.
const LATELY: Duration = Duration::from_secs(30);
/// A ratio of this many times the pool's median is slow.
const SLOW_FACTOR: f64 = 4.0;
/// How long it must last.
const SLOW_FOR: Duration = Duration::from_secs(10);
/// Replicas that must have shown their pace before one is called slow against the others.
const PEERS_MIN: usize = 3;

/// The time in which a stream wrote some tokens.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    pub taken_ms: f64,
    /// For those tokens and the prompts that were read meanwhile.
    pub predicted_ms: f64,
    /// For the prompts that wait. They may be half read, and count once they are: for now they excuse a delay.
    pub waiting_ms: f64,
    /// Whether its replica was short of memory. Streams that stand still for that are no sign of a slow one.
    pub is_crowded: bool,
}

/// What has been seen of one replica's pace.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time that gaps took, and what was predicted of them, older ones fading. Sums and not a mean of ratios: a
    /// prompt that delays one gap is counted in the next.
    taken_ms: f64,
    predicted_ms: f64,
    gaps: f64,
    noted_at: Moment,
    factor: f64,
    lately: Lately,
}

/// The short memory.
#[derive(Clone, Copy, Debug, Default)]
struct Lately {
    /// Mean of time taken over time predicted.
    ratio: f64,
    gaps: u32,
    noted_at: Moment,
    slow_since: Option<Moment>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            taken_ms: 0.0,
            predicted_ms: 0.0,
            gaps: 0.0,
            noted_at: Moment::ZERO,
            factor: 1.0,
            lately: Lately::default(),
        }
    }
}

impl Pace {
    /// The factor by which work takes longer here than predicted, relative to the other replicas.
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// The ratio of time taken to time predicted of late, once enough was seen.
    pub fn lately(&self) -> Option<f64> {
        (GAPS_MIN <= self.lately.gaps).then_some(self.lately.ratio)
    }

    pub fn note(&mut self, now: Moment, gap: &Gap) {
        let Gap { taken_ms, predicted_ms, waiting_ms, is_crowded } = *gap;
        let ratio = taken_ms / predicted_ms;
        if !ratio.is_finite() || ratio <= 0.0 {
            return;
        }
        let shown_ms = predicted_ms * ratio.clamp(1.0 / SHOWN_MAX, SHOWN_MAX);
        let kept = 1.0 - SHARE_OF_NEWEST;
        self.taken_ms = kept * self.taken_ms + shown_ms;
        self.predicted_ms = kept * self.predicted_ms + predicted_ms;
        self.gaps += 1.0;
        self.noted_at = now;
        if !is_crowded {
            self.lately.note(now, taken_ms / (predicted_ms + waiting_ms));
        }
    }

    /// Notes that predictions are `stretch` times as long from now on; how it compares stays as it is.
    pub fn rebase(&mut self, stretch: f64) {
        let (predicted_ms, ratio) = (self.predicted_ms * stretch, self.lately.ratio / stretch);
        if predicted_ms.is_finite() && ratio.is_finite() {
            (self.predicted_ms, self.lately.ratio) = (predicted_ms, ratio);
        }
    }

    /// Tells whether it has been slow for too long against `median`, that of its pool.
    pub fn is_slow(&mut self, now: Moment, median: f64) -> bool {
        // A replica whose last gaps are old may be well by now.
        let is_fresh = now.since(self.lately.noted_at) < LATELY;
        let slow = is_fresh && self.lately().is_some_and(|it| SLOW_FACTOR * median < it);
        let since = &mut self.lately.slow_since;
        *since = if slow { since.or(Some(now)) } else { None };
        since.is_some_and(|since| SLOW_FOR <= now.since(since))
    }

    /// Begins the short memory anew.
    pub fn forget_lately(&mut self) {
        self.lately = Lately::default();
    }

    fn is_known(&self) -> bool {
        0.0 < self.predicted_ms
    }

    fn log_ratio(&self) -> f64 {
        (self.taken_ms / self.predicted_ms).ln()
    }

    fn compare(&mut self, now: Moment, median: f64) {
        let age = span_ms(now.since(self.noted_at)) / span_ms(HALF_LIFE);
        let belief = self.gaps / (self.gaps + HALF_BELIEF) * (-age).exp2();
        let deviation = belief * (self.log_ratio() - median);
        let beyond_noise = deviation.signum() * (deviation.abs() - NOISE).max(0.0);
        self.factor = beyond_noise.exp().clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
    }
}

impl Lately {
    fn note(&mut self, now: Moment, ratio: f64) {
        if LATELY <= now.since(self.noted_at) {
            *self = Self::default();
        }
        self.noted_at = now;
        self.ratio +=
            if self.gaps == 0 { ratio } else { SHARE_OF_NEWEST_LATELY * (ratio - self.ratio) };
        self.gaps = self.gaps.saturating_add(1);
    }
}

/// Compares the replicas of a pool with each other.
pub(super) fn compare<'a>(now: Moment, paces: impl Iterator<Item = &'a mut Pace>) {
    let mut paces: Vec<&mut Pace> = paces.filter(|it| it.is_known()).collect();
    paces.sort_by(|a, b| a.log_ratio().total_cmp(&b.log_ratio()));
    let (Some(low), Some(high)) =
        (paces.get(paces.len().saturating_sub(1) / 2), paces.get(paces.len() / 2))
    else {
        return;
    };
    let median = f64::midpoint(low.log_ratio(), high.log_ratio());
    for it in paces {
        it.compare(now, median);
    }
}

/// Finds the median of what the replicas of a pool have shown of late; `None` where too few have. Sorts what it is
/// given.
pub fn median(ratios: &mut [f64]) -> Option<f64> {
    if ratios.len() < PEERS_MIN {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    Some(ratios[(ratios.len() - 1) / 2])
}

#[cfg(test)]
mod tests;
