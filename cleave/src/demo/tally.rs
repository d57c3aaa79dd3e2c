//! What the clients measured, added up per replica. Everything shown is counted here, at the far end
//! of the router, from what a client is told: the replica's name, the usage, its own clock. The
//! engines' own counters would leave out what happens on the way.

use std::time::Duration;

/// One answered request, as its client saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The number of the replica that answered.
    pub(super) replica: usize,
    pub(super) ttft: Duration,
    pub(super) prompt_tokens: u32,
    pub(super) cached_tokens: u32,
    pub(super) output_tokens: u32,
}

/// Where in its conversation a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Cannot be in any cache, but for the system prompt.
    First,
    Later,
}

/// What one replica, or all of them, did for the clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) output_tokens: u64,
    first_ttft_ms: Vec<f64>,
    later_ttft_ms: Vec<f64>,
}

impl Tally {
    fn add(&mut self, sample: &Sample, turn: Turn) {
        self.requests += 1;
        self.prompt_tokens += u64::from(sample.prompt_tokens);
        self.cached_tokens += u64::from(sample.cached_tokens);
        self.output_tokens += u64::from(sample.output_tokens);
        let times = match turn {
            Turn::First => &mut self.first_ttft_ms,
            Turn::Later => &mut self.later_ttft_ms,
        };
        times.push(sample.ttft.as_secs_f64() * 1e3);
    }

    /// Returns the share of prompt tokens that were found in the cache.
    pub(super) fn hit_share(&self) -> Option<f64> {
        (0 < self.prompt_tokens).then(|| to_f64(self.cached_tokens) / to_f64(self.prompt_tokens))
    }

    /// Returns the time to the first token that `percent` of the requests did not exceed.
    pub(super) fn ttft_ms(&self, percent: usize) -> Option<f64> {
        quantile([&self.first_ttft_ms[..], &self.later_ttft_ms[..]].concat(), percent)
    }

    /// Returns the same of those requests whose conversation had begun before.
    pub(super) fn later_ttft_ms(&self, percent: usize) -> Option<f64> {
        quantile(self.later_ttft_ms.clone(), percent)
    }

    /// Counts the prompt tokens that had to be computed, for want of a cache.
    pub(super) fn prefilled_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_sub(self.cached_tokens)
    }

    /// Counts the tokens that went through the model, read or written.
    fn computed_tokens(&self) -> u64 {
        self.prefilled_tokens() + self.output_tokens
    }
}

/// The tallies of one phase.
#[derive(Clone, Debug)]
pub(super) struct Tallies {
    pub(super) replicas: Vec<Tally>,
    pub(super) errors: u64,
    /// Why the first error happened.
    pub(super) first_error: Option<String>,
}

impl Tallies {
    pub(super) fn new(replicas: usize) -> Self {
        Self { replicas: vec![Tally::default(); replicas], errors: 0, first_error: None }
    }

    pub(super) fn add(&mut self, sample: &Sample, turn: Turn) {
        match self.replicas.get_mut(sample.replica) {
            Some(tally) => tally.add(sample, turn),
            None => self.fail(&anyhow::anyhow!("there is no replica {}", sample.replica)),
        }
    }

    pub(super) fn fail(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| format!("{error:#}"));
    }

    pub(super) fn total(&self) -> Tally {
        let mut total = Tally::default();
        for it in &self.replicas {
            total.requests += it.requests;
            total.prompt_tokens += it.prompt_tokens;
            total.cached_tokens += it.cached_tokens;
            total.output_tokens += it.output_tokens;
            total.first_ttft_ms.extend_from_slice(&it.first_ttft_ms);
            total.later_ttft_ms.extend_from_slice(&it.later_ttft_ms);
        }
        total
    }

    /// Compares the replica that computed most with the mean of all.
    pub(super) fn work_max_over_mean(&self) -> Option<f64> {
        let work = || self.replicas.iter().map(Tally::computed_tokens);
        let (max, sum) = (work().max()?, work().sum::<u64>());
        let replicas = u64::try_from(self.replicas.len()).ok()?;
        (0 < sum).then(|| to_f64(max * replicas) / to_f64(sum))
    }
}

/// Finds the smallest of the values that `percent` of them do not exceed.
fn quantile(mut values: Vec<f64>, percent: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied()
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(replica: usize, ttft_ms: u64) -> Sample {
        let ttft = Duration::from_millis(ttft_ms);
        Sample { replica, ttft, prompt_tokens: 100, cached_tokens: 75, output_tokens: 5 }
    }

    fn near(found: Option<f64>, wanted: f64) {
        assert!(found.is_some_and(|it| (it - wanted).abs() < 1e-9), "{found:?}, not {wanted}");
    }

    #[test]
    fn quantiles_are_times_that_occurred() {
        let mut tallies = Tallies::new(2);
        for ms in 1..=100 {
            let turn = if ms <= 60 { Turn::Later } else { Turn::First };
            tallies.add(&sample(usize::from(ms % 2 == 1), ms), turn);
        }
        let total = tallies.total();
        near(total.ttft_ms(50), 50.0);
        near(total.ttft_ms(90), 90.0);
        near(total.ttft_ms(99), 99.0);
        near(total.later_ttft_ms(99), 60.0);
        near(tallies.replicas[0].ttft_ms(100), 100.0);
    }

    #[test]
    fn nothing_measured_is_nothing_shown() {
        let tallies = Tallies::new(2);
        let total = tallies.total();
        assert_eq!((total.hit_share(), total.ttft_ms(50)), (None, None));
        assert_eq!(tallies.work_max_over_mean(), None);
    }

    #[test]
    fn tokens_add_up_and_work_is_what_was_computed() {
        let mut tallies = Tallies::new(2);
        for replica in [0, 0, 0, 1] {
            tallies.add(&sample(replica, 1), Turn::Later);
        }
        let total = tallies.total();
        assert_eq!((total.requests, total.prefilled_tokens()), (4, 100));
        near(total.hit_share(), 0.75);
        near(tallies.work_max_over_mean(), 1.5);
    }

    #[test]
    fn errors_are_counted_and_the_first_is_kept() {
        let mut tallies = Tallies::new(1);
        tallies.fail(&anyhow::anyhow!("reset"));
        tallies.add(&sample(1, 1), Turn::First);
        assert_eq!((tallies.errors, tallies.total().requests), (2, 0));
        assert_eq!(tallies.first_error.as_deref(), Some("reset"));
    }
}
