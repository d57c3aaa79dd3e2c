//! What is remembered of sessions: which replica served each one last, and when. A set-associative table of
//! fixed size: 16 bytes a session, allocated once, the oldest of eight neighbours makes room. A map
//! with a list for recency would take five times the bytes and grow in leaps under the lock.
//!
//! Routing does not depend on it, only these do: a replica of weight 0 keeps the sessions it has,
//! and operators see how many sessions live where and how many moved.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::{Moment, ReplicaId, SliceKey};

use super::super::settings::SessionSettings;

const WAYS: usize = 8;
/// How much of the table one sweep looks through: a sixty-fourth.
const SWEEPS_PER_ROUND: usize = 64;

/// Key, then replica + 1 in the high half and the second it was last seen in the low half. All
/// zeros is an empty place, so that a fresh table costs no memory until it is used.
type Entry = [u64; 2];

const EMPTY: Entry = [0, 0];

#[derive(Debug)]
pub(super) struct Sessions {
    entries: Vec<Entry>,
    ttl_s: u32,
    counts: BTreeMap<ReplicaId, u32>,
    swept_to: usize,
}

impl Sessions {
    pub(super) fn new(settings: SessionSettings) -> Self {
        let sets_max = settings.bytes_max / (WAYS * size_of::<Entry>());
        // Rounded down to a power of two, so that the bound holds and the index is a mask.
        let sets = (sets_max / 2 + 1).next_power_of_two().min(sets_max.max(1));
        Self {
            entries: vec![EMPTY; sets * WAYS],
            ttl_s: whole_seconds(settings.ttl).max(1),
            counts: BTreeMap::new(),
            swept_to: 0,
        }
    }

    /// Finds the replica that served the session last, unless that is too long ago.
    pub(super) fn home(&self, now: Moment, key: SliceKey) -> Option<ReplicaId> {
        let entry = self.set(key).iter().find(|it| holds(it, key))?;
        self.is_live(entry, now).then(|| replica_of(entry))
    }

    /// Says when the session was last served, unless that is too long ago.
    pub(super) fn last_served(&self, now: Moment, key: SliceKey) -> Option<Moment> {
        let entry = self.set(key).iter().find(|it| holds(it, key))?;
        let at = Moment::ZERO + Duration::from_secs(seen_s(entry).into());
        self.is_live(entry, now).then_some(at)
    }

    /// Notes that `replica` serves the session from now on; returns which did before.
    pub(super) fn remember(
        &mut self,
        now: Moment,
        key: SliceKey,
        replica: ReplicaId,
    ) -> Option<ReplicaId> {
        let range = self.set_range(key);
        let set = &self.entries[range.clone()];
        let found = set.iter().position(|it| holds(it, key));
        let age = |it: &Entry| (*it != EMPTY, seen_s(it));
        let oldest = || set.iter().enumerate().min_by_key(|(_, it)| age(it)).map(|it| it.0);
        let place = range.start + found.or_else(oldest).unwrap_or(0);
        let old = self.entries[place];
        let before = (found.is_some() && self.is_live(&old, now)).then(|| replica_of(&old));
        self.forget(place);
        self.entries[place] = entry(key, replica, now);
        *self.counts.entry(replica).or_default() += 1;
        before
    }

    /// Counts the sessions that live on `replica`; those past their time count until swept.
    pub(super) fn count(&self, replica: ReplicaId) -> u32 {
        self.counts.get(&replica).copied().unwrap_or(0)
    }

    /// Lists the sessions that live, with their replicas.
    pub(super) fn iter(&self, now: Moment) -> impl Iterator<Item = (SliceKey, ReplicaId)> + '_ {
        let live = self.entries.iter().filter(move |it| **it != EMPTY && self.is_live(it, now));
        live.map(|it| (SliceKey(it[0]), replica_of(it)))
    }

    /// Forgets what is past its time, in one slice of the table.
    pub(super) fn sweep(&mut self, now: Moment) {
        let step = self.entries.len().div_ceil(SWEEPS_PER_ROUND);
        let end = (self.swept_to + step).min(self.entries.len());
        for place in self.swept_to..end {
            if self.entries[place] != EMPTY && !self.is_live(&self.entries[place], now) {
                self.forget(place);
            }
        }
        self.swept_to = if end == self.entries.len() { 0 } else { end };
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.entries.len()
    }

    fn forget(&mut self, place: usize) {
        let old = std::mem::replace(&mut self.entries[place], EMPTY);
        if old == EMPTY {
            return;
        }
        let replica = replica_of(&old);
        if let Some(count) = self.counts.get_mut(&replica) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&replica);
            }
        }
    }

    fn is_live(&self, entry: &Entry, now: Moment) -> bool {
        second_of(now).saturating_sub(seen_s(entry)) <= self.ttl_s
    }

    fn set(&self, key: SliceKey) -> &[Entry] {
        &self.entries[self.set_range(key)]
    }

    fn set_range(&self, key: SliceKey) -> std::ops::Range<usize> {
        // Multiplying spreads the key's halves; the high bits are the well-mixed ones.
        let spread = key.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let sets = self.entries.len() / WAYS;
        let set = usize::try_from(spread).unwrap_or(0) & (sets - 1);
        set * WAYS..(set + 1) * WAYS
    }
}

fn entry(key: SliceKey, replica: ReplicaId, now: Moment) -> Entry {
    [key.0, ((u64::from(replica.0) + 1) << 32) | u64::from(second_of(now))]
}

fn holds(entry: &Entry, key: SliceKey) -> bool {
    entry[0] == key.0 && *entry != EMPTY
}

fn replica_of(entry: &Entry) -> ReplicaId {
    ReplicaId(u32::try_from((entry[1] >> 32) - 1).unwrap_or(u32::MAX))
}

fn seen_s(entry: &Entry) -> u32 {
    u32::try_from(entry[1] & 0xFFFF_FFFF).unwrap_or(0)
}

fn second_of(now: Moment) -> u32 {
    whole_seconds(now.since(Moment::ZERO))
}

fn whole_seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn table(bytes_max: usize) -> Sessions {
        Sessions::new(SessionSettings { bytes_max, ttl: Duration::from_secs(60) })
    }

    fn key(number: u64) -> SliceKey {
        SliceKey::new(1, "m", &number.to_string())
    }

    #[test]
    fn a_session_is_found_until_its_time_is_over() {
        let mut sessions = table(1 << 16);
        assert_eq!(sessions.remember(at(0), key(1), ReplicaId(0)), None);
        assert_eq!(sessions.home(at(60), key(1)), Some(ReplicaId(0)));
        assert_eq!(sessions.home(at(61), key(1)), None);
        assert_eq!(sessions.remember(at(50), key(1), ReplicaId(4)), Some(ReplicaId(0)));
        assert_eq!(sessions.home(at(61), key(1)), Some(ReplicaId(4)));
        assert_eq!((sessions.count(ReplicaId(0)), sessions.count(ReplicaId(4))), (0, 1));
    }

    #[test]
    fn nobody_makes_room_while_there_is_some_even_in_the_first_second() {
        let mut sessions = table(1 << 16);
        for number in 0..100 {
            sessions.remember(at(0), key(number), ReplicaId(0));
        }
        assert_eq!(sessions.count(ReplicaId(0)), 100);
    }

    #[test]
    fn the_byte_bound_holds_for_any_size() {
        for bytes_max in [0, 1, 127, 128, 300, 4096, 100_000, 16 << 20] {
            let sessions = table(bytes_max);
            let bytes = sessions.entries.capacity() * size_of::<Entry>();
            assert!(bytes <= bytes_max.max(128), "{bytes} for {bytes_max}");
            assert!(bytes_max < 4 * bytes, "{bytes} for {bytes_max}");
        }
    }

    #[test]
    fn when_full_the_oldest_make_room_and_the_counts_stay_true() {
        let mut sessions = table(1 << 14);
        let capacity = u64::try_from(sessions.capacity()).unwrap();
        for number in 0..4 * capacity {
            let replica = ReplicaId(u32::try_from(number % 3).unwrap());
            sessions.remember(at(number / capacity), key(number), replica);
        }
        let held = sessions.entries.iter().filter(|it| **it != EMPTY).count();
        let counted: u32 = (0..3).map(|it| sessions.count(ReplicaId(it))).sum();
        assert_eq!(usize::try_from(counted).unwrap(), held);
        let newest = 4 * capacity - 1;
        assert!(sessions.home(at(4), key(newest)).is_some());
        let recent =
            (3 * capacity..4 * capacity).filter(|it| sessions.home(at(4), key(*it)).is_some());
        assert!(capacity * 6 / 10 < u64::try_from(recent.count()).unwrap());
    }

    #[test]
    fn sweeping_forgets_what_is_past_its_time() {
        let mut sessions = table(1 << 14);
        for number in 0..100 {
            sessions.remember(at(0), key(number), ReplicaId(0));
        }
        sessions.remember(at(100), key(1), ReplicaId(0));
        for _ in 0..SWEEPS_PER_ROUND {
            sessions.sweep(at(100));
        }
        assert_eq!(sessions.count(ReplicaId(0)), 1);
    }
}
