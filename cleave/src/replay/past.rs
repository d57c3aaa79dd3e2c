//! What happened: the part of a recording that is played, the pool as it stood, and what clients felt.

use std::time::Duration;

use anyhow::Context as _;
use cleave_core::domain::span_of_ms;
use cleave_core::recording::PoolLine;
use cleave_sim::measure::{Histogram, Slo, ratio, real};
use cleave_sim::results::Quantiles;
use cleave_sim::traces::{RecordedRequest, Recording, Request};

use super::answer::Felt;
use super::basis::Basis;

/// What comes before the part that is played fills caches, as far back as this.
const WARMUP_MAX: Duration = Duration::from_secs(10 * 60);

/// The part that is played.
#[derive(Clone, Debug)]
pub(super) struct Past {
    /// The pool as it stood last.
    pub(super) pool: PoolLine,
    pub(super) from_us: u64,
    pub(super) until_us: u64,
    pub(super) slo: Slo,
    pub(super) felt: Felt,
    /// What an answer's way to the client adds to its first token.
    pub(super) overhead_ms: f64,
    /// The share of answers that did not stream.
    pub(super) non_streaming: f64,
    /// Requests that are not played, because another fleet would not have served them either.
    pub(super) left_out: u64,
    pub(super) files: usize,
    pub(super) damage: Vec<String>,
}

impl Past {
    /// Chooses the pool and the time.
    pub(super) fn select(
        recording: &Recording,
        pool: Option<&str>,
        last: Option<Duration>,
        slo: Option<Slo>,
    ) -> anyhow::Result<Self> {
        let mut names: Vec<(&str, usize)> = Vec::new();
        for (_, line) in recording.pools() {
            if !names.iter().any(|it| it.0 == line.name) {
                let of = |it: &&RecordedRequest| it.line.pool == line.pool;
                names.push((&line.name, recording.requests.iter().filter(of).count()));
            }
        }
        let name = match pool {
            Some(name) => name,
            None => names.iter().max_by_key(|it| it.1).context("the recording names no pool")?.0,
        };
        let stood = || recording.pools().filter(|it| it.1.name == name);
        let (_, first) = stood().next().with_context(|| {
            let names: Vec<_> = names.iter().map(|it| it.0).collect();
            format!("there is no pool {name:?}; there are: {}", names.join(", "))
        })?;
        let own = || recording.requests.iter().filter(|it| it.line.pool == first.pool);
        let first_us = own().map(|it| it.at_us).min();
        let first_us =
            first_us.with_context(|| format!("the recording has no requests of pool {name:?}"))?;
        let until_us = own().map(|it| it.at_us).max().unwrap_or(first_us);
        let span_us = last.map(|it| u64::try_from(it.as_micros()).unwrap_or(u64::MAX));
        let from_us = span_us.map_or(first_us, |it| until_us.saturating_sub(it).max(first_us));
        let stood = stood().rev().find(|it| it.0 <= until_us).map_or(first, |it| it.1);
        let slo = slo.unwrap_or_else(|| promise(stood));
        let mut past = Self {
            pool: stood.clone(),
            from_us,
            until_us,
            slo,
            felt: Felt::default(),
            overhead_ms: overhead_ms(stood),
            non_streaming: 0.0,
            left_out: 0,
            files: recording.files,
            damage: recording.damage.clone(),
        };
        past.measure(recording);
        Ok(past)
    }

    /// The same with other times.
    pub(super) fn on(&self, basis: &Basis) -> Self {
        let mut past = self.clone();
        past.pool.costs.clone_from(&basis.costs);
        past.overhead_ms = basis.overhead_ms;
        past
    }

    pub(super) fn is_within(&self, it: &RecordedRequest) -> bool {
        it.line.pool == self.pool.pool && (self.from_us..=self.until_us).contains(&it.at_us)
    }

    /// The requests that are played, from moment zero.
    pub(super) fn requests(&self, recording: &Recording) -> Vec<Request> {
        recording.only(|it| self.is_within(it)).requests_from(self.from_us)
    }

    /// Those that came shortly before.
    pub(super) fn warmup(&self, recording: &Recording) -> Vec<Request> {
        let back_us = u64::try_from(WARMUP_MAX.as_micros()).unwrap_or(u64::MAX);
        let from_us = self.from_us.saturating_sub(back_us);
        let is_before = |it: &RecordedRequest| {
            it.line.pool == self.pool.pool && (from_us..self.from_us).contains(&it.at_us)
        };
        recording.only(is_before).requests_from(from_us)
    }

    /// Sums up what clients felt.
    fn measure(&mut self, recording: &Recording) {
        let (mut ttft, mut whole) = (Histogram::default(), Histogram::default());
        let (mut good, mut judged, mut finished, mut refused) = (0_u64, 0_u64, 0_u64, 0_u64);
        let (mut cached, mut asked, mut streamed) = (0_u64, 0_u64, 0_u64);
        let (mut all, mut left_out) = (0_u64, 0_u64);
        for it in recording.requests.iter().filter(|it| self.is_within(it)) {
            let line = &it.line;
            if !it.is_work() {
                left_out += 1;
                continue;
            }
            all += 1;
            let was_refused = line.replica.is_none();
            refused += u64::from(was_refused);
            let end = Duration::from_micros(line.end);
            if line.how == "done" && line.status < 400 && !was_refused {
                finished += 1;
                whole.record(end);
                streamed += u64::from(line.stream);
            }
            if let (Some(cached_of), Some(input)) = (line.cached, line.input) {
                cached += u64::from(cached_of);
                asked += u64::from(input);
            }
            let first = line.first.map(Duration::from_micros);
            if let Some(first) = first {
                ttft.record(first);
            }
            if first.is_some() || was_refused {
                judged += 1;
                let gaps = line.output.unwrap_or(1).saturating_sub(1);
                let gap = |first: Duration| end.saturating_sub(first).checked_div(gaps);
                let is_good = first.is_some_and(|first| {
                    first <= self.slo.ttft && gap(first).is_none_or(|it| it <= self.slo.tpot)
                });
                good += u64::from(is_good);
            }
        }
        let span_s = real(self.until_us - self.from_us) / 1e6;
        self.left_out = left_out;
        self.non_streaming = ratio(real(finished - streamed), real(finished));
        self.felt = Felt {
            requests: all,
            requests_per_s: ratio(real(all), span_s),
            ttft_s: Quantiles::of(&ttft),
            end_to_end_s: Quantiles::of(&whole),
            hit: ratio(real(cached), real(asked)),
            good_share: ratio(real(good), real(judged)),
            refused,
            replicas_idle: 0,
        };
    }
}

/// What the default class promises.
fn promise(pool: &PoolLine) -> Slo {
    let usual = Slo::default();
    let Some(class) = pool.classes.iter().find(|it| it.is_default) else { return usual };
    Slo {
        ttft: class.first_token_ms.map_or(usual.ttft, span_of_ms),
        tpot: class.token_gap_ms.map_or(usual.tpot, span_of_ms),
    }
}

/// The mean over replicas of what the way to the client takes.
fn overhead_ms(pool: &PoolLine) -> f64 {
    let of = |class: &str| pool.costs.iter().find(|it| it.class == class).map(|it| it.overhead_ms);
    let known: Vec<f64> = pool.replicas.iter().filter_map(|it| of(&it.class)).collect();
    let count = real(u64::try_from(known.len()).unwrap_or(u64::MAX));
    ratio(known.iter().filter(|it| it.is_finite() && 0.0 <= **it).sum(), count)
}

#[cfg(test)]
impl Past {
    /// A pool of nothing.
    pub(super) fn example() -> Self {
        let pool = PoolLine {
            pool: 0,
            at_us: 0,
            name: "a".to_owned(),
            policy: "priced".to_owned(),
            holds: true,
            gates: false,
            learns: true,
            classes: Vec::new(),
            replicas: Vec::new(),
            costs: Vec::new(),
        };
        Self {
            pool,
            from_us: 0,
            until_us: 1,
            slo: Slo::default(),
            felt: Felt::default(),
            overhead_ms: 0.0,
            non_streaming: 0.0,
            left_out: 0,
            files: 1,
            damage: Vec::new(),
        }
    }
}
