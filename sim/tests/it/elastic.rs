//! A fleet whose size follows a rule: replicas come after their start-up time, leave when they have finished, and what
//! is paid for is counted.

use std::time::Duration;

use cleave_core::domain::Moment;
use cleave_sim::scalers::{FleetView, ScaleRule};
use cleave_sim::traces::{Replay, Synthetic, Workload, presets};
use cleave_sim::world::*;

const START_UP: Duration = Duration::from_secs(10);

/// Wants other numbers from given seconds on.
#[derive(Debug)]
struct Script(Vec<(u64, usize)>);

impl ScaleRule for Script {
    fn look(&mut self, now: Moment, _: &FleetView) -> Option<usize> {
        let second = now.since(Moment::ZERO).as_secs();
        self.0.iter().rfind(|it| it.0 <= second).map(|it| it.1)
    }
}

/// Plays a minute of prompts on a fleet of `start` replicas that is sized by a script.
fn play(start: usize, script: &[(u64, usize)]) -> World {
    let Some(Synthetic::SharedPrefix(mut it)) = presets::named("smg-600-prefixes") else {
        panic!("the preset is there")
    };
    it.groups = 100;
    it.stages[0].per_second = 20.0;
    it.stages[0].lasts = Duration::from_secs(60);
    let replicas = vec![ReplicaSettings::default(); start];
    let mut world =
        World::new(WorldSettings { replicas, checks: true, ..WorldSettings::default() });
    world.scale_with(Box::new(Script(script.to_vec())), START_UP);
    world.start_measuring();
    let replay = Replay { seed: 5, ..Replay::default() };
    let mut workload = Workload::synthetic(&Synthetic::SharedPrefix(it), &replay);
    world.run(&mut workload, &mut Unwatched).expect("the world comes to its end");
    world
}

fn at(points: &[FleetPoint], second: usize) -> (usize, usize) {
    let point = points[second - 1];
    (point.ready, point.starting)
}

#[test]
fn replicas_come_after_their_start_up_time_and_leave_without_losing_a_request() {
    let world = play(1, &[(0, 1), (10, 4), (40, 2)]);
    let points = world.sizing().expect("it is sized").points;
    assert_eq!(at(&points, 9), (1, 0));
    assert_eq!(at(&points, 15), (1, 3), "they are paid for and not ready");
    assert_eq!(at(&points, 22), (4, 0));
    assert_eq!(at(&points, 55), (2, 0));
    let it = world.measures();
    assert_eq!((it.finished, it.cut, it.refused), (it.arrived, 0, 0));
}

#[test]
fn what_is_paid_for_is_counted_from_asking_to_leaving() {
    let fixed = play(2, &[(0, 2)]).sizing().expect("it is sized");
    let seconds = f64::from(u32::try_from(fixed.points.len()).unwrap());
    assert!((fixed.replica_hours * 3_600.0 - 2.0 * seconds).abs() < 2.0, "{}", fixed.replica_hours);
    let grown = play(2, &[(0, 2), (30, 3)]).sizing().expect("it is sized");
    let more = (grown.replica_hours - fixed.replica_hours) * 3_600.0;
    assert!((25.0..=50.0).contains(&more), "{more}");
}

#[test]
fn one_that_has_not_started_is_let_go_first() {
    let world = play(1, &[(0, 1), (10, 6), (15, 1)]);
    let points = world.sizing().expect("it is sized").points;
    assert_eq!(at(&points, 17), (1, 0));
    assert!(points.iter().all(|it| it.ready <= 1), "none of them was ever ready");
}
