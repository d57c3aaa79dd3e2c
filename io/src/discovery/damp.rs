//! The set of replicas when answers waver. A replica that appears is taken on at once: it must pass
//! its health check anyway. A missing one stays until it has been missing for a while and more than
//! once, because resolvers answer with parts of a set, and a drained replica has lost its sessions.
//! An empty answer is never believed at once for the same reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cleave_core::domain::Moment;

use crate::replicas::Origin;

/// How often and how long a replica must be missing.
const MISSES_MIN: u32 = 3;
const MISSING_MIN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Roll {
    there: BTreeMap<Origin, Missing>,
    told: bool,
}

/// Since when, and how often, a replica was not in an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Missing(Option<(Moment, u32)>);

impl Roll {
    /// Takes a list as it is; returns it if it is another one.
    pub(super) fn set(&mut self, there: BTreeSet<Origin>) -> Option<Vec<Origin>> {
        let changed = !self.told || !there.iter().eq(self.there.keys());
        self.there = there.into_iter().map(|it| (it, Missing::default())).collect();
        self.told = true;
        changed.then(|| self.list())
    }

    /// Takes in an answer; returns the replicas that are there now, if that has changed.
    pub(super) fn on_answer(
        &mut self,
        now: Moment,
        there: BTreeSet<Origin>,
    ) -> Option<Vec<Origin>> {
        let before = self.there.len();
        self.there.retain(|origin, missing| {
            if there.contains(origin) {
                *missing = Missing::default();
                return true;
            }
            let (since, misses) = missing.0.map_or((now, 1), |(since, n)| (since, n + 1));
            *missing = Missing(Some((since, misses)));
            misses < MISSES_MIN || now.since(since) < MISSING_MIN
        });
        let left = self.there.len() < before;
        let kept = self.there.len();
        for origin in there {
            self.there.entry(origin).or_default();
        }
        let joined = kept < self.there.len();
        let first = !std::mem::replace(&mut self.told, true);
        (first || left || joined).then(|| self.list())
    }

    fn list(&self) -> Vec<Origin> {
        self.there.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(numbers: &[u8]) -> BTreeSet<Origin> {
        numbers.iter().map(|it| format!("http://gpu-{it}:8000").parse().unwrap()).collect()
    }

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn newcomers_are_taken_on_at_once_and_the_missing_leave_slowly() {
        let mut roll = Roll::default();
        assert_eq!(roll.on_answer(at(0), set(&[0])).unwrap().len(), 1);
        assert_eq!(roll.on_answer(at(1), set(&[0, 1])).unwrap().len(), 2);
        for second in 2..7 {
            assert_eq!(roll.on_answer(at(second), set(&[0])), None, "{second}");
        }
        assert_eq!(roll.on_answer(at(7), set(&[0])).unwrap(), Vec::from_iter(set(&[0])));
    }

    #[test]
    fn who_comes_and_goes_stays() {
        let mut roll = Roll::default();
        roll.on_answer(at(0), set(&[0, 1]));
        for second in 1..60 {
            let wavering = if second % 2 == 0 { set(&[0]) } else { set(&[0, 1]) };
            assert_eq!(roll.on_answer(at(second), wavering), None, "{second}");
        }
    }

    #[test]
    fn a_list_that_is_meant_is_taken_as_it_is() {
        let mut roll = Roll::default();
        assert_eq!(roll.set(set(&[])), Some(Vec::new()));
        assert_eq!(roll.set(set(&[0, 1])).unwrap().len(), 2);
        assert_eq!(roll.set(set(&[0, 1])), None);
        assert_eq!(roll.set(set(&[1])).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn nobody_in_the_last_answer_is_ever_left_out(
            answers in prop::collection::vec(prop::collection::vec(0..6_u8, 0..6), 1..40),
        ) {
            let mut roll = Roll::default();
            let mut told = None;
            for (second, answer) in (0..).zip(&answers) {
                let there = set(answer);
                if let Some(list) = roll.on_answer(at(second), there.clone()) {
                    prop_assert_ne!(told.as_ref(), Some(&list));
                    told = Some(list);
                }
                let told = told.as_ref().expect("the first answer is told");
                prop_assert!(there.iter().all(|it| told.contains(it)));
            }
        }
    }
}
