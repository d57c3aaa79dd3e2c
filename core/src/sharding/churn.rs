//! How much load changed hands from one assignment to the next, and why. What left a replica that
//! is gone or going is forced; so is what a new replica was given; the rest was a choice. Load that
//! could be counted twice is counted as forced.

use crate::domain::Place;

use super::assignment::Assignment;
use super::load::LoadMap;
use super::numbers::count;
use super::rule::FleetMember;
use super::slice::Slice;

/// Load that changed hands, in the unit of load, and the state that went with it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Churn {
    /// Left replicas that are gone or drain.
    pub removal: f64,
    /// Went to replicas that held nothing before.
    pub addition: f64,
    /// Moved between replicas that were there and stay.
    pub choice: f64,
    /// State of all of it.
    pub state: f64,
    /// All load, to compare with.
    pub total: f64,
}

impl Churn {
    /// Measures what changed; shares of a slice are taken as equal.
    pub fn between(
        old: &Assignment,
        new: &Assignment,
        fleet: &[FleetMember],
        map: &LoadMap,
    ) -> Self {
        let mut churn = Self { total: map.total(), ..Self::default() };
        if old.is_empty() {
            return churn;
        }
        let before = old.all_holders();
        let stays = |it: Place| fleet.iter().any(|member| member.place == it && !member.draining);
        let gone: Vec<Place> = before.iter().copied().filter(|it| !stays(*it)).collect();
        let (mut one, mut other) = (0, 0);
        while one < old.len() && other < new.len() {
            let (was, is) = (old.get(one), new.get(other));
            if was.holders != is.holders
                && let Some(slice) = was.slice.overlap(&is.slice)
            {
                let fresh = |it: &Place| before.binary_search(it).is_err();
                churn.count(&slice, map, was.holders, is.holders, &gone, fresh);
            }
            one += usize::from(was.slice.high <= is.slice.high);
            other += usize::from(is.slice.high <= was.slice.high);
        }
        churn
    }

    fn count(
        &mut self,
        slice: &Slice,
        map: &LoadMap,
        was: &[Place],
        is: &[Place],
        gone: &[Place],
        fresh: impl Fn(&Place) -> bool,
    ) {
        let load = map.load_of(slice);
        if was.is_empty() || is.is_empty() {
            return;
        }
        let (old_share, new_share) = (1.0 / count(was.len()), 1.0 / count(is.len()));
        let kept = was.iter().filter(|it| is.contains(it)).count();
        let moved = (1.0 - count(kept) * old_share.min(new_share)).max(0.0);
        let left = count(was.iter().filter(|it| gone.contains(it)).count()) * old_share;
        let removal = left.min(moved);
        let came = count(is.iter().filter(|it| fresh(it)).count()) * new_share;
        let addition = came.min(moved - removal);
        self.removal += load * removal;
        self.addition += load * addition;
        self.choice += load * (moved - removal - addition).max(0.0);
        self.state += map.state_of(slice) * moved;
    }
}

#[cfg(test)]
mod tests {
    use super::super::assignment::{Row, SliceReason};
    use super::super::generation::Generation;
    use super::super::load::RangeLoad;
    use super::*;
    use crate::domain::Moment;

    fn assignment(holders: &[&[u64]]) -> Assignment {
        let width = u64::MAX / u64::try_from(holders.len()).unwrap();
        let mut low = 0_u64;
        let rows = holders.iter().map(|holders| {
            let high = low.saturating_add(width);
            let high = if u64::MAX - high < width { u64::MAX } else { high };
            let slice = Slice { low, high };
            low = high.wrapping_add(1);
            let holders = holders.iter().map(|it| Place(*it)).collect();
            let settled_at = Moment::ZERO;
            Row { slice, holders, why: SliceReason::First, since: 1, settled_at, previous: None }
        });
        Assignment::from_rows(Generation::default(), rows.collect::<Vec<_>>()).unwrap()
    }

    fn between(old: &[&[u64]], new: &[&[u64]], fleet: &[u64]) -> Churn {
        let load = RangeLoad { slice: Slice::ALL, load: 1.0, state: 100.0 };
        let fleet: Vec<FleetMember> =
            fleet.iter().map(|it| FleetMember::new(Place(*it), 1.0)).collect();
        let map = LoadMap::new(&[load], &[]);
        Churn::between(&assignment(old), &assignment(new), &fleet, &map)
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn what_leaves_a_dead_replica_is_forced() {
        let churn = between(&[&[1], &[2]], &[&[1], &[1]], &[1]);
        assert!(near(churn.removal, 0.5) && near(churn.addition, 0.0) && near(churn.choice, 0.0));
        assert!(near(churn.state, 50.0));
    }

    #[test]
    fn what_a_new_replica_gets_is_its_due() {
        let churn = between(&[&[1], &[1]], &[&[1], &[2]], &[1, 2]);
        assert!(near(churn.addition, 0.5) && near(churn.removal, 0.0) && near(churn.choice, 0.0));
    }

    #[test]
    fn what_moves_between_those_who_stay_is_a_choice() {
        let churn = between(&[&[1], &[2]], &[&[2], &[1]], &[1, 2]);
        assert!(near(churn.choice, 1.0), "{churn:?}");
        let churn = between(&[&[1]], &[&[1, 2]], &[1, 2, 3]);
        assert!(near(churn.addition, 0.5), "one of two holders is new to the fleet: {churn:?}");
    }
}
