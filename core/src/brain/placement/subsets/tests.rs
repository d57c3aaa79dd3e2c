//! Which replicas a workload may use, and how that changes with its load and with replicas that die.

mod growth;
mod orders;

use std::ops::{Deref, DerefMut};

use super::*;
use crate::domain::{Place, ReplicaId};

/// Subsets, and what was selected for the request at hand.
struct At {
    subsets: Subsets,
    at: Selection,
}

impl Deref for At {
    type Target = Subsets;

    fn deref(&self) -> &Subsets {
        &self.subsets
    }
}

impl DerefMut for At {
    fn deref_mut(&mut self) -> &mut Subsets {
        &mut self.subsets
    }
}

impl At {
    fn new(settings: SubsetSettings) -> Self {
        Self { subsets: Subsets::new(settings), at: Selection::default() }
    }

    fn select(
        &mut self,
        now: Moment,
        key: SliceKey,
        home: Option<ReplicaId>,
        look: impl Fn(ReplicaId) -> Option<Sight>,
    ) -> bool {
        self.subsets.note_overdue(now, key, &look);
        self.subsets.select(now, key, home, look, &mut self.at);
        self.at.is_divided
    }

    fn spill(&mut self, now: Moment, key: SliceKey) -> bool {
        self.subsets.spill(now, key, &mut self.at)
    }

    fn allows(&self, place: Place) -> bool {
        self.subsets.allows(&self.at, place)
    }

    fn beyond(&self, place: Place) -> Option<Beyond> {
        self.subsets.beyond(&self.at, place)
    }
}

fn fleet(count: u32) -> Vec<PlannedReplica> {
    (0..count)
        .map(|it| PlannedReplica {
            id: ReplicaId(it),
            place: Place::of(&format!("http://gpu-{it}:8000")),
            capacity_mu_per_min: 100.0,
            closed: false,
            out: false,
        })
        .collect()
}

fn key(workload: u32, session: u32) -> SliceKey {
    SliceKey(Slice::of_prefix(workload.wrapping_mul(0x9E37_79B9)).low | u64::from(session))
}

fn at_s(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

/// Subsets of a pool that has seen two workloads.
fn planned(settings: SubsetSettings, replicas: u32) -> At {
    let mut subsets = At::new(settings);
    (1000..1002).for_each(|it| subsets.on_sent(at_s(0), key(it, 0), 1e-6, 1));
    subsets.plan(at_s(1), fleet(replicas).into_iter());
    subsets
}

fn subset(subsets: &mut At, key: SliceKey) -> Vec<Place> {
    assert!(subsets.select(at_s(1), key, None, well));
    subsets.at.chosen.clone()
}

/// Lists the replicas that may take the request at hand.
fn allowed(subsets: &At) -> Vec<Place> {
    subsets.planned.iter().map(|it| it.place).filter(|it| subsets.allows(*it)).collect()
}

/// Settings with a bound on spilling.
fn spilling(spill_max: u32) -> SubsetSettings {
    SubsetSettings { spill_max: Some(spill_max), ..SubsetSettings::default() }
}

/// Looks at a replica that was heard of just now.
#[expect(clippy::unnecessary_wraps, reason = "it stands for a look at a fleet")]
fn well(_: ReplicaId) -> Option<Sight> {
    Some(Sight { takes: true, out: false, heard_at: Moment::MAX })
}

/// Looks at a replica that nothing was heard of for long.
#[expect(clippy::unnecessary_wraps, reason = "it stands for a look at a fleet")]
fn silent(_: ReplicaId) -> Option<Sight> {
    Some(Sight { takes: true, out: false, heard_at: Moment::ZERO })
}

/// Looks at replicas of which these are well and the others take nothing.
fn only(takes: impl Fn(ReplicaId) -> bool) -> impl Fn(ReplicaId) -> Option<Sight> {
    move |it| Some(Sight { takes: takes(it), out: false, heard_at: Moment::MAX })
}

/// Keeps a workload at `mu_per_min` for these seconds, and plans when it is due.
fn load(subsets: &mut At, workload: u32, mu_per_min: f64, seconds: std::ops::Range<u64>) {
    for second in seconds {
        for session in 0..10 {
            let key = key(workload, session << 28);
            subsets.on_sent(at_s(second), key, mu_per_min / 600.0, 1000);
        }
        if subsets.is_due(at_s(second)) {
            let planned: Vec<PlannedReplica> = subsets.planned.iter().copied().collect();
            subsets.plan(at_s(second), planned.into_iter());
        }
    }
}

#[test]
fn a_pool_no_larger_than_the_floor_is_not_divided() {
    let four = SubsetSettings { floor: Some(4), ..SubsetSettings::default() };
    let mut subsets = planned(four.clone(), 4);
    assert!(!subsets.select(at_s(1), key(1, 1), None, well));
    let mut subsets = planned(four, 5);
    assert_eq!(subset(&mut subsets, key(1, 1)).len(), 4);
}

#[test]
fn the_floor_is_a_sixteenth_of_the_pool_and_a_small_pool_is_not_divided() {
    for (replicas, floor) in [(8, 2), (32, 2), (33, 3), (64, 4), (100, 4)] {
        let mut subsets = planned(SubsetSettings::default(), replicas);
        assert_eq!(subset(&mut subsets, key(1, 1)).len(), floor, "{replicas}");
    }
    let mut subsets = planned(SubsetSettings::default(), 7);
    assert!(!subsets.select(at_s(1), key(1, 1), None, well));
}

#[test]
fn a_session_may_stay_where_its_cache_is_unless_its_workload_is_in_trouble() {
    let mut subsets = planned(SubsetSettings::default(), 32);
    let all = fleet(32);
    let inside = subset(&mut subsets, key(1, 7));
    let home = *all.iter().find(|it| !inside.contains(&it.place)).unwrap();
    assert!(subsets.select(at_s(2), key(1, 7), Some(home.id), well));
    assert_eq!(subsets.at.chosen[inside.len()..], [home.place]);
    assert_eq!(subsets.beyond(home.place), Some(Beyond::Home));
    assert_eq!(subsets.beyond(inside[0]), None);
    subsets.on_lost(at_s(2), key(1, 7), Some((ReplicaId(99), at_s(1))));
    subsets.on_gone(ReplicaId(99));
    assert!(subsets.select(at_s(2), key(1, 7), Some(home.id), well));
    assert_eq!(subsets.at.chosen, inside);
    assert_eq!(subsets.spill_wait(Some(Duration::from_secs(1))), Duration::from_millis(20));
    assert_eq!(subsets.spill_wait(None), Duration::from_secs(1));
}

#[test]
fn a_workload_under_which_replicas_die_neither_grows_nor_moves_nor_spills() {
    let mut subsets = planned(SubsetSettings::default(), 32);
    load(&mut subsets, 2, 1000.0, 1..20);
    load(&mut subsets, 1, 1.0, 20..22);
    let before = subset(&mut subsets, key(1, 7));
    subsets.on_lost(at_s(22), key(1, 7), Some((ReplicaId(99), at_s(21))));
    subsets.on_gone(ReplicaId(99));
    load(&mut subsets, 1, 1000.0, 22..200);
    assert_eq!(subset(&mut subsets, key(1, 7)), before, "what is tried again is no demand");
    assert!(subsets.select(at_s(23), key(1, 7), None, only(|_| false)));
    assert_eq!(subsets.at.chosen.len(), before.len() + 1, "one stand-in to show it is harmless");
    subsets.on_done(key(1, 7));
    load(&mut subsets, 1, 1000.0, 200..230);
    assert!(before.len() < subset(&mut subsets, key(1, 7)).len());
}

#[test]
fn a_workload_is_never_split_over_more_than_its_subset() {
    let mut subsets = planned(SubsetSettings::default(), 16);
    for (workload, second) in (1..9).zip((20..).step_by(20)) {
        load(&mut subsets, workload, 100.0, second..second + 20);
    }
    for workload in 1..9 {
        let mut reached: Vec<Place> = Vec::new();
        for session in 0..64_u32 {
            reached.extend(subset(&mut subsets, key(workload, session << 26)));
        }
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(reached.len(), subset(&mut subsets, key(workload, 0)).len());
    }
}

#[test]
fn a_dead_replica_has_the_same_stand_in_everywhere_and_is_replaced_after_a_while() {
    let four = SubsetSettings { floor: Some(4), ..SubsetSettings::default() };
    let mut one = planned(four.clone(), 16);
    let mut other = planned(four, 16);
    let before = subset(&mut one, key(1, 7));
    let dead = fleet(16).into_iter().find(|it| it.place == before[0]).unwrap().id;
    for subsets in [&mut one, &mut other] {
        assert!(subsets.select(at_s(1), key(1, 7), None, only(|it| it != dead)));
        assert_eq!(subsets.at.chosen.len(), 5);
    }
    assert_eq!(one.at.chosen, other.at.chosen);
    let stand_in = one.at.chosen[4];
    assert!(!before.contains(&stand_in));
    let without = |subsets: &mut At, second| {
        let planned = fleet(16).into_iter().map(|it| PlannedReplica { out: it.id == dead, ..it });
        subsets.plan(at_s(second), planned);
    };
    without(&mut one, 10);
    assert_eq!(subset(&mut one, key(1, 7)), before, "perhaps it comes back");
    without(&mut one, 80);
    assert!(!subset(&mut one, key(1, 7)).contains(&before[0]));
}

#[test]
fn a_workload_that_silences_what_it_touches_reaches_its_subset_and_one_more() {
    for homes in [false, true] {
        let mut subsets = planned(SubsetSettings::default(), 64);
        let all = fleet(64);
        let id = |place: Place| all.iter().find(|it| it.place == place).unwrap().id;
        let mut reached: Vec<ReplicaId> = Vec::new();
        for step in 0..200_u32 {
            let now = at_s(1) + Duration::from_millis(u64::from(step) * 50);
            // From then on its first step is overdue, and sessions may live anywhere.
            let home = (homes && 100 < step).then_some(ReplicaId(step % 64));
            let look = |it| if reached.contains(&it) { silent(it) } else { well(it) };
            subsets.select(now, key(1, step), home, look);
            subsets.spill(now, key(1, step));
            let fresh = allowed(&subsets).into_iter().find(|it| !reached.contains(&id(*it)));
            let place = fresh.unwrap_or(subsets.at.chosen[0]);
            subsets.on_placed(now, key(1, step), place, Duration::from_secs(1), look);
            if !reached.contains(&id(place)) {
                reached.push(id(place));
            }
        }
        assert_eq!(reached.len(), 4 + 1, "homes: {homes}");
    }
}

#[test]
fn a_step_beyond_the_subset_is_the_only_one_until_something_is_heard_of_it() {
    let mut subsets = planned(spilling(16), 32);
    let inside = subset(&mut subsets, key(1, 7));
    assert!(subsets.spill(at_s(1), key(1, 7)));
    let beyond = subsets.at.chosen[inside.len()..].to_vec();
    assert_eq!(beyond.len(), 16);
    let (step, home) = (beyond[2], *beyond.last().unwrap());
    let home_id = fleet(32).iter().find(|it| it.place == home).unwrap().id;
    subsets.on_placed(at_s(2), key(1, 7), step, Duration::from_secs(3), well);
    let mut beyond_at = |second, home, look: fn(ReplicaId) -> Option<Sight>| {
        subsets.select(at_s(second), key(1, 8), home, look);
        let stays = subsets.at.chosen[inside.len()..].to_vec();
        subsets.spill(at_s(second), key(1, 8));
        (stays, subsets.at.chosen[inside.len()..].to_vec())
    };
    assert_eq!(beyond_at(3, None, silent), (vec![], vec![step]));
    assert_eq!(beyond_at(3, Some(home_id), silent), (vec![home], vec![home, step]), "its cache");
    assert_eq!(beyond_at(4, None, well), (vec![], beyond.clone()), "it lives");
    assert_eq!(beyond_at(6, Some(home_id), silent), (vec![], vec![step]), "it is overdue");
    assert_eq!(beyond_at(9, None, well), (vec![], vec![step]), "a late sign proves nothing");
    subsets.on_answering(key(1, 7), step);
    subsets.on_done(key(1, 7));
    subsets.select(at_s(9), key(1, 8), None, silent);
    subsets.spill(at_s(9), key(1, 8));
    assert_eq!(subsets.at.chosen[inside.len()..], beyond, "it was served");
}

#[test]
fn nobody_is_confined_to_replicas_that_are_gone_for_good() {
    let mut subsets = planned(SubsetSettings::default(), 32);
    let before = subset(&mut subsets, key(1, 7));
    subsets.on_lost(at_s(1), key(1, 7), Some((ReplicaId(99), at_s(0))));
    subsets.on_gone(ReplicaId(99));
    let without = |subsets: &mut At, second| {
        let gone = |it: &PlannedReplica| before.contains(&it.place);
        let planned: Vec<PlannedReplica> =
            fleet(32).into_iter().map(|it| PlannedReplica { out: gone(&it), ..it }).collect();
        subsets.plan(at_s(second), planned.into_iter());
        subsets.select(at_s(second), key(1, 7), None, well);
        subsets.at.chosen.clone()
    };
    assert_eq!(without(&mut subsets, 2), before, "perhaps they come back");
    let after = without(&mut subsets, 63);
    assert_eq!(after.len(), before.len());
    assert!(after.iter().all(|it| !before.contains(it)));
}

#[test]
fn spilling_is_anywhere_or_bounded_and_then_always_to_the_same_ones() {
    let mut subsets = planned(SubsetSettings::default(), 16);
    let inside = subset(&mut subsets, key(1, 7));
    assert_eq!(allowed(&subsets).len(), 2);
    assert!(subsets.spill(at_s(1), key(1, 7)));
    assert_eq!(allowed(&subsets).len(), 16);
    assert_eq!(subsets.beyond(inside[0]), None);
    let other = allowed(&subsets).into_iter().find(|it| !inside.contains(it)).unwrap();
    assert_eq!(subsets.beyond(other), Some(Beyond::Load));
    let mut subsets = planned(spilling(8), 16);
    let inside = subset(&mut subsets, key(1, 7));
    assert!(subsets.spill(at_s(1), key(1, 7)));
    let outside: Vec<Place> = subsets.at.chosen[inside.len()..].to_vec();
    assert_eq!(outside.len(), 8);
    subset(&mut subsets, key(1, 99));
    subsets.spill(at_s(1), key(1, 99));
    assert_eq!(subsets.at.chosen[inside.len()..], outside, "whichever session it is");
}

fn configured(workload: u32, exclusive: bool, spill: bool) -> WorkloadSettings {
    let workload = key(workload, 0).workload();
    let name = "batch".to_owned();
    WorkloadSettings { workload, name, floor: Some(3), cap: Some(3), spill, exclusive }
}

#[test]
fn an_exclusive_workload_shares_nothing_not_even_by_spilling() {
    let workloads = vec![configured(1, true, false)];
    let mut subsets = planned(SubsetSettings { workloads, ..SubsetSettings::default() }, 16);
    let own = subset(&mut subsets, key(1, 7));
    assert_eq!(own.len(), 3);
    assert!(!subsets.spill(at_s(1), key(1, 7)), "it may not spill");
    for other in 2..60 {
        subset(&mut subsets, key(other, 7));
        subsets.spill(at_s(1), key(other, 7));
        assert!(allowed(&subsets).iter().all(|it| !own.contains(it)), "workload {other}");
    }
}

#[test]
fn tables_stay_within_bytes_whatever_workloads_come() {
    let mut subsets = planned(SubsetSettings::default(), 64);
    for number in 0..200_000_u32 {
        subsets.on_sent(at_s(1), key(number, number), 1.0, 10);
    }
    let all = fleet(64);
    (2..10).for_each(|it| subsets.plan(at_s(it * 2), all.iter().copied()));
    assert!(subsets.bytes() < 1 << 20, "{}", subsets.bytes());
}
