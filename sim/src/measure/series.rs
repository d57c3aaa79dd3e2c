//! Sums over time in bounded memory: when the buckets run out, neighbours are joined and every bucket
//! is twice as wide. A run of a minute and a run of a week give plots of the same weight.

use std::time::Duration;

use cleave_core::domain::Moment;

use super::real;

const BUCKETS_MAX: usize = 240;

/// What each of several replicas got, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    width: Duration,
    rows: Vec<Vec<f64>>,
}

impl Default for Series {
    fn default() -> Self {
        Self { width: Duration::from_secs(1), rows: Vec::new() }
    }
}

impl Series {
    /// Adds an amount to a row at a moment.
    pub fn add(&mut self, row: usize, since_start: Duration, amount: f64) {
        while self.place(since_start) >= BUCKETS_MAX {
            self.widen();
        }
        let place = self.place(since_start);
        if self.rows.len() <= row {
            self.rows.resize(row + 1, Vec::new());
        }
        let cells = &mut self.rows[row];
        if cells.len() <= place {
            cells.resize(place + 1, 0.0);
        }
        cells[place] += amount;
    }

    pub fn width(&self) -> Duration {
        self.width
    }

    /// The rows as amounts per second.
    pub fn rates(&self) -> Vec<Vec<f64>> {
        let seconds = self.width.as_secs_f64();
        self.rows.iter().map(|row| row.iter().map(|sum| sum / seconds).collect()).collect()
    }

    fn place(&self, since_start: Duration) -> usize {
        let width_ns = self.width.as_nanos().max(1);
        usize::try_from(since_start.as_nanos() / width_ns).unwrap_or(usize::MAX)
    }

    fn widen(&mut self) {
        self.width *= 2;
        for row in &mut self.rows {
            *row = row.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
    }
}

/// The mean over time of something sampled at equal distances, and the highest sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauge {
    sum: f64,
    count: u64,
    max: f64,
}

impl Gauge {
    pub fn sample(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        self.max = self.max.max(value);
    }

    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / real(self.count) }
    }

    pub fn max(&self) -> f64 {
        self.max
    }
}

/// The stretch of time in which something was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub from: Moment,
    pub to: Moment,
}

impl Span {
    pub fn seconds(&self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_keeps_every_sum() {
        let mut series = Series::default();
        for second in 0..5_000 {
            series.add(1, Duration::from_secs(second), 2.0);
        }
        assert_eq!(series.width(), Duration::from_secs(32));
        let rates = series.rates();
        assert!(rates[0].is_empty());
        assert!(rates[1].len() <= BUCKETS_MAX);
        let total: f64 = rates[1].iter().sum::<f64>() * 32.0;
        assert!((total - 10_000.0).abs() < 1e-6, "{total}");
    }
}
