//! How much work will come, and how much more it may be? Several simple forecasts are kept side by side, and each is
//! held against what came in the history: with the margin that would have been right in hindsight, what would it have
//! cost? The cheapest is used, with that margin. So calm traffic gets a small margin and bursts a large one, and no
//! constant says which traffic this is.
//!
//! What it costs to be wrong is one figure: work that finds no room is [`SHORTFALL_COST`] times as dear as room that
//! finds no work.

use super::history::History;

/// What a model unit without room costs in model units of idle room: one bucket in about this many may need more than
/// is there. Requests that come in such a bucket break their promises, so this is about the share of them.
const SHORTFALL_COST: f64 = 100.0;
/// Forecasts are held against the past again after this many new buckets.
const REFIT_EVERY: u64 = 6;
/// With fewer cases than this the past says nothing about margins.
const CASES_MIN: usize = 12;
/// The margin until then, as a share of the forecast.
const MARGIN_UNKNOWN: f64 = 0.5;
/// A margin does not reach beyond this many times the most that ever came: what jumped once need not jump again from
/// where it is now.
const PEAK_FACTOR: f64 = 1.2;

/// What sums of many floats are rounded by at most.
const HAIR: f64 = 1e-9;

/// Which buckets ahead are forecast: the most of those from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) first: usize,
    pub(super) last: usize,
}

/// What to expect.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outlook {
    pub(super) expected: f64,
    pub(super) spread: f64,
}

impl Outlook {
    pub(super) const fn upper(self) -> f64 {
        self.expected + self.spread
    }
}

/// A simple forecast from what came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// The mean of the latest buckets.
    Mean(usize),
    /// The same, going on as it went over as many buckets before.
    Trend(usize),
    /// The most of the latest buckets.
    Peak(usize),
}

/// How a margin grows with what is forecast: not at all, as the noise of many small requests does, or in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Level,
    Root,
    Share,
}

const METHODS: [Method; 8] = [
    Method::Mean(1),
    Method::Mean(3),
    Method::Mean(9),
    Method::Mean(27),
    Method::Trend(6),
    Method::Trend(18),
    Method::Peak(18),
    Method::Peak(90),
];
const SCALES: [Scale; 3] = [Scale::Level, Scale::Root, Scale::Share];

/// One look ahead, and what was found to serve it best.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    chosen: Option<Chosen>,
    /// For which look ahead, and when it was chosen.
    fitted: Option<(Ahead, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Chosen {
    method: Method,
    scale: Scale,
    margin: f64,
    cost: f64,
}

impl Forecast {
    pub(super) const fn new() -> Self {
        Self { chosen: None, fitted: None }
    }

    /// Says what to expect.
    pub(super) fn look(&mut self, history: &History, ahead: Ahead) -> Outlook {
        let is_old = |(of, at): (Ahead, u64)| of != ahead || at + REFIT_EVERY <= history.filled();
        if self.fitted.is_none_or(is_old) {
            self.fitted = Some((ahead, history.filled()));
            self.chosen = PastCases::new(history, ahead).best();
        }
        let sums = RateSums::of(history);
        let end = sums.len();
        if let Some(it) = self.chosen {
            let expected = sums.forecast(it.method, end, ahead);
            let most = PEAK_FACTOR * sums.rates.iter().copied().fold(0.0, f64::max);
            let margin = (it.margin * it.scale.of(expected)).min((most - expected).max(0.0));
            return Outlook { expected, spread: margin.max(-expected) };
        }
        let expected = sums.forecast(Method::Mean(3), end, ahead);
        Outlook { expected, spread: MARGIN_UNKNOWN * expected }
    }
}

impl Scale {
    fn of(self, forecast: f64) -> f64 {
        match self {
            Self::Level => 1.0,
            Self::Root => forecast.sqrt(),
            Self::Share => forecast,
        }
    }
}

/// Rates with their running sums, so that a mean takes no time.
#[derive(Debug)]
struct RateSums {
    rates: Vec<f64>,
    sums: Vec<f64>,
}

impl RateSums {
    fn of(history: &History) -> Self {
        let rates: Vec<f64> = history.rates().iter().copied().collect();
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        for rate in &rates {
            sum += rate;
            sums.push(sum);
        }
        Self { rates, sums }
    }

    fn len(&self) -> usize {
        self.rates.len()
    }

    /// The mean of `count` buckets before `end`, or of as many as there are.
    fn mean(&self, end: usize, count: usize) -> f64 {
        let start = end.saturating_sub(count);
        if end == start {
            return 0.0;
        }
        ((self.sums[end] - self.sums[start]) / real(end - start)).max(0.0)
    }

    /// Forecasts what comes after `end` from what came before it.
    fn forecast(&self, method: Method, end: usize, ahead: Ahead) -> f64 {
        match method {
            Method::Mean(count) => self.mean(end, count),
            Method::Trend(count) => {
                let now = self.mean(end, count);
                let before = self.mean(end.saturating_sub(count), count);
                // From the middle of the newer half to the middle of what is looked at.
                let steps = real(count + ahead.first + ahead.last) / 2.0;
                (now + (now - before) / real(count) * steps).max(0.0)
            }
            Method::Peak(count) => {
                let start = end.saturating_sub(count);
                self.rates[start..end].iter().copied().fold(0.0, f64::max)
            }
        }
    }
}

/// The cases of the past for one look ahead: what could have been forecast, and what came.
struct PastCases {
    sums: RateSums,
    ahead: Ahead,
    /// What came, for a look from before each bucket.
    came: Vec<f64>,
}

impl PastCases {
    fn new(history: &History, ahead: Ahead) -> Self {
        let sums = RateSums::of(history);
        let (first, last) = (ahead.first.max(1), ahead.last.max(ahead.first).max(1));
        let count = (sums.len() + 1).saturating_sub(last + 1);
        let window = |end: usize| sums.rates[end + first - 1..end + last].iter().copied();
        // From one bucket on, as nothing can be forecast from none.
        let came = (1..=count).map(|end| window(end).fold(0.0, f64::max)).collect();
        Self { sums, ahead, came }
    }

    /// Finds the forecast and margin that would have cost least.
    fn best(&self) -> Option<Chosen> {
        if self.came.len() < CASES_MIN {
            return None;
        }
        let mut best: Option<Chosen> = None;
        for method in METHODS {
            let forecasts: Vec<f64> = (1..=self.came.len())
                .map(|end| self.sums.forecast(method, end, self.ahead))
                .collect();
            for scale in SCALES {
                let it = self.fit(method, scale, &forecasts);
                // Of equals the first, whatever their sums were rounded to.
                if best.is_none_or(|best| it.cost < best.cost * (1.0 - HAIR)) {
                    best = Some(it);
                }
            }
        }
        best
    }

    /// Finds the margin of one forecast that would have cost least: a quantile of how far it was off, by weight.
    fn fit(&self, method: Method, scale: Scale, forecasts: &[f64]) -> Chosen {
        let mut misses: Vec<(f64, f64)> = forecasts
            .iter()
            .zip(&self.came)
            .map(|(forecast, came)| (scale.of(*forecast), came - forecast))
            .filter(|(weight, _)| 0.0 < *weight)
            .map(|(weight, miss)| (miss / weight, weight))
            .collect();
        misses.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let total: f64 = misses.iter().map(|it| it.1).sum();
        let (mut above, mut margin) = (0.0, 0.0);
        for (miss, weight) in misses.iter().rev() {
            margin = *miss;
            above += weight;
            if total * (1.0 - HAIR) <= SHORTFALL_COST * above {
                break;
            }
        }
        let cost = forecasts.iter().zip(&self.came).map(|(forecast, came)| {
            let room = (forecast + margin * scale.of(*forecast)).max(0.0);
            room + SHORTFALL_COST * (came - room).max(0.0)
        });
        Chosen { method, scale, margin, cost: cost.sum() }
    }
}

fn real(count: usize) -> f64 {
    crate::domain::float(u64::try_from(count).unwrap_or(u64::MAX))
}
