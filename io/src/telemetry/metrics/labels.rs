//! What figures are told apart by, and short words for finding one.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Half a millisecond to ten minutes, finer from five seconds on, where answers of models are.
pub(super) const SECONDS: [f64; 25] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0,
    15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0,
];
pub(super) const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
pub(super) const TOKEN_TYPES: [&str; 3] = ["input", "cached", "output"];

/// The place of a status among the classes.
pub(super) fn class_of(status: u16) -> usize {
    usize::from((status / 100).clamp(1, 5)) - 1
}

pub(super) type Real = Gauge<f64, AtomicU64>;
pub(super) type RealCounter = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PoolLabel {
    pub(super) pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabel {
    pub(super) pool: String,
    pub(super) kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StatusLabel {
    pub(super) pool: String,
    pub(super) status_class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RefusalLabel {
    pub(super) pool: String,
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TokenLabel {
    pub(super) pool: String,
    pub(super) token_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StreamLabel {
    pub(super) pool: String,
    pub(super) stream: &'static str,
}

impl PoolLabel {
    pub(super) fn of(pool: &str) -> Self {
        Self { pool: pool.to_owned() }
    }
}

impl KindLabel {
    pub(super) fn of(pool: &str, kind: &'static str) -> Self {
        Self { pool: pool.to_owned(), kind }
    }
}

/// Sets a counter that is kept elsewhere.
pub(super) fn set_count(family: &Family<PoolLabel, Counter>, pool: &str, count: u64) {
    family.get_or_create(&PoolLabel::of(pool)).inner().store(count, Relaxed);
}

/// The same for a counter of something that is not counted in whole numbers.
pub(super) fn set_real(counter: &RealCounter, value: f64) {
    counter.inner().store(value.to_bits(), Relaxed);
}

pub(super) fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// For what should take no time: a microsecond to a second.
pub(super) fn fine_seconds() -> Histogram {
    Histogram::new([
        1e-6, 5e-6, 2.5e-5, 1e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0,
    ])
}

pub(super) fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}
