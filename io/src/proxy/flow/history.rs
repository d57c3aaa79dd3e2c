//! The last hour of every pool, one sample for each five seconds. Bounded: an hour of samples for each of a
//! limited number of pools. A pool that is gone keeps its hour until that has passed, so that what was
//! before a change can be held against what is now.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use cleave_core::brain::{LeaveCause, MoveTotals};

use super::FlowTaken;

/// How far samples are apart, unless they are to be closer.
const SAMPLE_SECONDS: u32 = 5;
/// An hour of them.
const SAMPLES_MAX: usize = 720;
const HOUR_S: u64 = 3600;
/// Pools whose hour is kept.
const POOLS_MAX: usize = 64;

/// What happened in a pool within one sample's time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowSample {
    /// Its end, in seconds of Unix time.
    pub at_s: u64,
    /// Requests that were answered, failed, were refused, and whose client left.
    pub ended: [u64; 4],
    /// Tokens of prompts, those of them that were cached, and tokens of answers.
    pub tokens: [u64; 3],
    /// At the 50th, 90th and 99th percentile; nothing where no stream began.
    pub first_token_ms: Option<[f64; 3]>,
    /// In flight and in the line at its end.
    pub in_flight: usize,
    pub waiting: usize,
    /// Sessions that changed their replica, by cause in the order of [`LeaveCause::ALL`].
    pub moved: [u64; LeaveCause::ALL.len()],
}

/// The last hour.
#[derive(Debug)]
pub struct FlowHistory {
    sample_seconds: AtomicU32,
    pools: Mutex<BTreeMap<String, PoolHour>>,
}

#[derive(Debug, Default)]
struct PoolHour {
    samples: VecDeque<FlowSample>,
    moved: MoveTotals,
}

impl Default for FlowHistory {
    fn default() -> Self {
        let sample_seconds = AtomicU32::new(SAMPLE_SECONDS);
        Self { sample_seconds, pools: Mutex::default() }
    }
}

impl FlowHistory {
    /// How far samples are apart, in seconds.
    pub fn sample_seconds(&self) -> u32 {
        self.sample_seconds.load(Relaxed)
    }

    /// Has samples taken every second. As many are kept, so that they reach back twelve minutes.
    pub fn sample_every_second(&self) {
        self.sample_seconds.store(1, Relaxed);
    }

    /// Adds a sample of a pool; `moved` counts since the start.
    pub(in crate::proxy) fn add(
        &self,
        pool: &str,
        taken: FlowTaken,
        (in_flight, waiting): (usize, usize),
        moved: MoveTotals,
    ) {
        let at_s = now_s();
        let mut all = self.lock();
        if !all.contains_key(pool) && POOLS_MAX <= all.len() {
            return;
        }
        let hour = all.entry(pool.to_owned()).or_default();
        let before = std::mem::replace(&mut hour.moved, moved);
        let moved = LeaveCause::ALL.map(|it| moved.of(it).saturating_sub(before.of(it)));
        let FlowTaken { ended, tokens, first_token_ms } = taken;
        if hour.samples.len() == SAMPLES_MAX {
            hour.samples.pop_front();
        }
        hour.samples.push_back(FlowSample {
            at_s,
            ended,
            tokens,
            first_token_ms,
            in_flight,
            waiting,
            moved,
        });
    }

    /// Forgets samples that are over an hour old, and pools that have none left.
    pub(in crate::proxy) fn expire(&self) {
        let oldest = now_s().saturating_sub(HOUR_S);
        let mut all = self.lock();
        for it in all.values_mut() {
            while it.samples.front().is_some_and(|it| it.at_s < oldest) {
                it.samples.pop_front();
            }
        }
        all.retain(|_, it| !it.samples.is_empty());
    }

    /// Lists the samples of every pool that ended after a moment of Unix time, the oldest first.
    pub fn after(&self, at_s: u64) -> Vec<(String, Vec<FlowSample>)> {
        let all = self.lock();
        let newer = |it: &PoolHour| -> Vec<FlowSample> {
            it.samples.iter().filter(|it| at_s < it.at_s).cloned().collect()
        };
        let found = all.iter().map(|(name, it)| (name.clone(), newer(it)));
        found.filter(|it| !it.1.is_empty()).collect()
    }

    /// The moment of the newest sample; 0 where there is none.
    pub fn newest_s(&self) -> u64 {
        let newest = |it: &PoolHour| it.samples.back().map(|it| it.at_s);
        self.lock().values().filter_map(newest).max().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PoolHour>> {
        // A panic elsewhere cannot leave samples half written.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(history: &FlowHistory, pool: &str) {
        history.add(pool, FlowTaken::default(), (1, 2), MoveTotals::default());
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let history = FlowHistory::default();
        for _ in 0..SAMPLES_MAX + 50 {
            add(&history, "a");
        }
        let all = history.after(0);
        assert_eq!((all.len(), all[0].1.len()), (1, SAMPLES_MAX));
        assert_eq!(history.after(history.newest_s()), []);
    }

    #[test]
    fn so_are_only_so_many_pools() {
        let history = FlowHistory::default();
        for number in 0..POOLS_MAX + 9 {
            add(&history, &number.to_string());
        }
        assert_eq!(history.after(0).len(), POOLS_MAX);
        history.lock().values_mut().for_each(|it| it.samples[0].at_s = 1);
        history.expire();
        assert_eq!(history.newest_s(), 0);
        assert_eq!(history.after(0), []);
    }
}
