//! How long replicas take to start: from when one was asked for, or from when it was first seen where none was, until it
//! takes requests.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cleave_core::domain::{Moment, ReplicaId};

use crate::proxy::ScaledReplica;

/// When one is expected that should have been there.
const SOON: Duration = Duration::from_secs(1);
/// How many that were asked for are waited for, each with its time.
const ASKED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Starts {
    /// When each one that has not come was asked for, oldest first.
    asked: VecDeque<Moment>,
    /// Those that are there, and since when; nothing once they took requests.
    seen: BTreeMap<ReplicaId, Option<Moment>>,
    is_begun: bool,
}

impl Starts {
    /// Notes that more replicas were asked for.
    pub(super) fn ask(&mut self, now: Moment, replicas: usize) {
        let room = ASKED_MAX.saturating_sub(self.asked.len());
        self.asked.extend(std::iter::repeat_n(now, replicas.min(room)));
    }

    /// Notes that no more than `missing` are still wanted.
    pub(super) fn on_missing(&mut self, missing: usize) {
        // Those that were asked for last are not started.
        self.asked.truncate(missing);
    }

    /// Looks at the replicas that are there, and says how long those took that became ready.
    pub(super) fn look(&mut self, now: Moment, replicas: &[ScaledReplica]) -> Vec<Duration> {
        let mut took = Vec::new();
        self.seen.retain(|id, _| replicas.iter().any(|it| it.id == *id));
        for it in replicas {
            let known = self.seen.entry(it.id).or_insert(Some(now));
            if !it.is_up {
                continue;
            }
            let Some(since) = known.take() else { continue };
            // Those that were there before this router have told nothing.
            if self.is_begun {
                let since = self.asked.pop_front().map_or(since, |asked| asked.min(since));
                took.push(now.since(since));
            }
        }
        self.is_begun = true;
        took
    }

    /// Says when the next replica is there, where one takes `start_up`.
    pub(super) fn next_in(&self, now: Moment, start_up: Duration) -> Duration {
        let is_starting = || self.seen.values().any(Option::is_some);
        let left = match self.asked.front() {
            Some(asked_at) => (*asked_at + start_up).since(now),
            // It was asked for before this router came, or by others.
            None if is_starting() => SOON,
            None => start_up,
        };
        left.max(SOON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn replica(id: u32, is_up: bool) -> ScaledReplica {
        ScaledReplica { id: ReplicaId(id), address: format!("http://a:{id}"), name: None, is_up }
    }

    #[test]
    fn a_replica_takes_as_long_as_since_it_was_asked_for_or_else_since_it_was_seen() {
        let mut starts = Starts::default();
        assert!(starts.look(at(0), &[replica(0, true)]).is_empty(), "it was there before");
        starts.ask(at(10), 1);
        let there = [replica(0, true), replica(1, false), replica(2, false)];
        assert!(starts.look(at(30), &there).is_empty());
        let there = [replica(0, true), replica(1, true), replica(2, false)];
        assert_eq!(starts.look(at(40), &there), [Duration::from_secs(30)]);
        let there = [replica(0, true), replica(1, true), replica(2, true)];
        assert_eq!(starts.look(at(50), &there), [Duration::from_secs(20)], "seen at 30");
        assert!(starts.look(at(60), &there).is_empty());
    }

    #[test]
    fn the_next_one_comes_a_start_up_time_after_it_was_asked_for() {
        let mut starts = Starts::default();
        let start_up = Duration::from_secs(60);
        assert_eq!(starts.next_in(at(100), start_up), start_up);
        starts.ask(at(100), 2);
        assert_eq!(starts.next_in(at(130), start_up), Duration::from_secs(30));
        assert_eq!(starts.next_in(at(900), start_up), Duration::from_secs(1), "any moment now");
        starts.on_missing(0);
        assert_eq!(starts.next_in(at(900), start_up), start_up);
        starts.look(at(900), &[replica(0, false)]);
        assert_eq!(starts.next_in(at(900), start_up), SOON, "one starts that was not asked for");
    }
}
