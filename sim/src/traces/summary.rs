//! What a workload is like, in numbers: the first thing to look at before a replay, and the proof
//! that a reader reads what is there. Quantiles are exact, with straight lines between samples.

use std::collections::BTreeSet;

use serde::Serialize;

use super::draw;
use super::lines::TraceError;
use super::seen::Seen;
use super::workload::Workload;

/// How long something is, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lengths {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: u32,
}

/// A workload in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TraceSummary {
    pub requests: u64,
    pub sessions: u64,
    pub tenants: u64,
    /// From moment zero to the last arrival.
    pub span_s: f64,
    pub per_second: f64,
    pub input: Lengths,
    pub output: Lengths,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Share of input tokens whose block and all before it were sent earlier.
    pub ideal_hit: f64,
    pub unique_blocks: u64,
}

impl TraceSummary {
    /// Plays a workload to its end, every request ending as it arrives.
    pub fn of(mut workload: Workload) -> Result<Self, TraceError> {
        let mut seen = Seen::default();
        let (mut sessions, mut tenants) = (BTreeSet::new(), BTreeSet::new());
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let mut cached: u64 = 0;
        let mut span_s: f64 = 0.0;
        while let Some(request) = workload.take()? {
            workload.on_end(request.arrival, request.ticket);
            cached += u64::from(seen.cached_tokens(&request.prompt));
            seen.insert(&request.prompt);
            sessions.insert((request.tenant, request.session));
            tenants.insert(request.tenant);
            inputs.push(request.prompt.tokens());
            outputs.push(request.output_tokens);
            span_s = request.arrival.since(cleave_core::domain::Moment::ZERO).as_secs_f64();
        }
        let sum = |lengths: &[u32]| lengths.iter().copied().map(u64::from).sum::<u64>();
        let (input_tokens, output_tokens) = (sum(&inputs), sum(&outputs));
        let requests = count(inputs.len());
        Ok(Self {
            requests,
            sessions: count(sessions.len()),
            tenants: count(tenants.len()),
            span_s,
            per_second: ratio(draw::real(requests), span_s),
            input: lengths(inputs),
            output: lengths(outputs),
            input_tokens,
            output_tokens,
            ideal_hit: ratio(draw::real(cached), draw::real(input_tokens)),
            unique_blocks: seen.blocks(),
        })
    }
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if 0.0 < whole { part / whole } else { 0.0 }
}

fn lengths(mut samples: Vec<u32>) -> Lengths {
    samples.sort_unstable();
    let Some(&max) = samples.last() else { return Lengths::default() };
    let total: u64 = samples.iter().copied().map(u64::from).sum();
    let quantile = |percent: u64| {
        // The quantile lies `rest` hundredths of the way from one sample to the next.
        let (whole, rest) = (percent * (count(samples.len()) - 1), 100);
        let place = usize::try_from(whole / rest).unwrap_or(usize::MAX);
        let low = f64::from(samples[place]);
        let high = f64::from(*samples.get(place + 1).unwrap_or(&max));
        low + (high - low) * draw::real(whole % rest) / 100.0
    };
    Lengths {
        mean: draw::real(total) / draw::real(count(samples.len())),
        p50: quantile(50),
        p90: quantile(90),
        p99: quantile(99),
        max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_on_straight_lines_between_samples() {
        let lengths = lengths(vec![40, 10, 20, 30]);
        assert!((lengths.p50 - 25.0).abs() < 1e-9 && (lengths.p99 - 39.7).abs() < 1e-9);
        assert_eq!(lengths.max, 40);
    }
}
