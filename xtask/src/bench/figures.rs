//! From runs to figures: percentiles inside a run, medians over runs, ratios between proxies. The
//! median of at least three runs is what this machine can promise; differences below a quarter mean
//! nothing.

use std::time::Duration;

use serde::Serialize;

use super::load::LoadSeen;

/// One run of one cell, or the median over several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) requests_per_second: f64,
    pub(super) chunks_per_second: f64,
    /// Processor milliseconds of the proxy per 1,000 requests, or per 1,000 chunks of a stream.
    pub(super) cpu_ms_per_thousand: f64,
    /// How much of its core the proxy used: below 90 something else was the limit.
    pub(super) core_percent: f64,
    pub(super) latency_ms_p50: f64,
    pub(super) latency_ms_p99: f64,
    pub(super) first_chunk_ms_p50: f64,
    pub(super) first_chunk_ms_p99: f64,
    pub(super) resident_mb: f64,
    pub(super) errors: f64,
}

impl Figures {
    pub(super) fn of(
        mut seen: LoadSeen,
        cpu: Duration,
        resident_mb: f64,
        elapsed: Duration,
    ) -> Self {
        seen.latencies.sort();
        seen.first_chunks.sort();
        let work = if 0 < seen.chunks { seen.chunks } else { seen.answers };
        Self {
            requests_per_second: f64::from(seen.answers) / elapsed.as_secs_f64(),
            chunks_per_second: f64::from(seen.chunks) / elapsed.as_secs_f64(),
            cpu_ms_per_thousand: cpu.as_secs_f64() * 1e6 / f64::from(work.max(1)),
            core_percent: cpu.as_secs_f64() * 100.0 / elapsed.as_secs_f64(),
            latency_ms_p50: percentile_ms(&seen.latencies, 50),
            latency_ms_p99: percentile_ms(&seen.latencies, 99),
            first_chunk_ms_p50: percentile_ms(&seen.first_chunks, 50),
            first_chunk_ms_p99: percentile_ms(&seen.first_chunks, 99),
            resident_mb,
            errors: f64::from(seen.errors),
        }
    }

    /// Takes the median of each figure by itself; errors are added up, because one is one too many.
    pub(super) fn median(runs: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| median(runs.iter().map(field).collect());
        Self {
            requests_per_second: of(|it| it.requests_per_second),
            chunks_per_second: of(|it| it.chunks_per_second),
            cpu_ms_per_thousand: of(|it| it.cpu_ms_per_thousand),
            core_percent: of(|it| it.core_percent),
            latency_ms_p50: of(|it| it.latency_ms_p50),
            latency_ms_p99: of(|it| it.latency_ms_p99),
            first_chunk_ms_p50: of(|it| it.first_chunk_ms_p50),
            first_chunk_ms_p99: of(|it| it.first_chunk_ms_p99),
            resident_mb: of(|it| it.resident_mb),
            errors: runs.iter().map(|it| it.errors).sum(),
        }
    }
}

fn percentile_ms(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |it| it.as_secs_f64() * 1e3)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        even if even % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two() {
        assert!(near(median(vec![3.0, 1.0, 2.0]), 2.0));
        assert!(near(median(vec![4.0, 1.0]), 2.5));
        assert!(near(median(Vec::new()), 0.0));
    }

    #[test]
    fn percentiles_stay_inside_the_data() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert!(near(percentile_ms(&times, 50), 51.0));
        assert!(near(percentile_ms(&times, 99), 100.0));
        assert!(near(percentile_ms(&[], 50), 0.0));
    }

    #[test]
    fn processor_time_is_per_chunk_for_streams_and_per_request_otherwise() {
        let seen = |answers, chunks| LoadSeen { answers, chunks, ..LoadSeen::default() };
        let second = Duration::from_secs(1);
        let requests = Figures::of(seen(500, 0), second, 0.0, second);
        assert!(near(requests.cpu_ms_per_thousand, 2000.0));
        let streams = Figures::of(seen(5, 1000), second, 0.0, second);
        assert!(near(streams.cpu_ms_per_thousand, 1000.0));
    }
}
