//! How long a round of planning and a lookup take: `cargo xtask bench planner`. A fleet of the size
//! given on the command line, 64 slices for each replica, load that wobbles by a third, and in
//! every second round one replica missing. Times are of the processor where the kernel tells them,
//! so that other users of the machine matter less.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures and tells")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cleave_core::domain::{Moment, Place, SliceKey};
use cleave_core::sharding::{
    Assignment, FleetMember, LoadMap, Lookup, Planner, PlannerSettings, RangeLoad, Slice,
};

const SLICES: u64 = 64;

fn main() {
    let mut args = std::env::args().skip(1).map(|it| it.parse::<u64>());
    let replicas = args.next().and_then(Result::ok).unwrap_or(1000);
    let rounds = args.next().and_then(Result::ok).unwrap_or(50);
    let lookups = args.next().and_then(Result::ok).unwrap_or(10_000_000);
    let fleet: Vec<FleetMember> =
        (0..replicas).map(|it| FleetMember::new(Place::of(&format!("gpu-{it}")), 1.0)).collect();
    let settings = PlannerSettings { slices_min: 64, slices_max: 96, ..PlannerSettings::default() };
    let planner = Planner::new(settings);
    let empty = Arc::new(Assignment::empty());
    let begun = Watch::start();
    let mut base = planner.plan(Moment::ZERO, &empty, &fleet, &[], &load(replicas, 0)).assignment;
    println!("{replicas} replicas, {} slices, first plan {:?}", base.len(), begun.elapsed());
    let mut spent = Duration::ZERO;
    for round in 0..rounds {
        let load = load(replicas, round);
        let there = if round % 2 == 0 { &fleet[..] } else { &fleet[1..] };
        let now = Moment::ZERO + Duration::from_secs(100) * u32::try_from(round + 1).unwrap_or(1);
        let begun = Watch::start();
        base = planner.plan(now, &base, there, &[], &load).assignment;
        spent += begun.elapsed();
    }
    if let Some(mean) = u32::try_from(rounds).ok().and_then(|it| spent.checked_div(it)) {
        println!("a round: {mean:?} on average");
    }
    if let Ok(lookups) = u32::try_from(lookups).map(|it| it.max(1)) {
        let lookup = Lookup::new(base, fleet.iter().map(|it| (it.place, it.capacity)));
        println!("a lookup: {:?}", time_lookups(&lookup, lookups) / lookups);
    }
}

/// Processor time of this thread, or else time that passed.
struct Watch {
    begun: Instant,
    ran: Option<Duration>,
}

impl Watch {
    fn start() -> Self {
        Self { begun: Instant::now(), ran: ran() }
    }

    fn elapsed(&self) -> Duration {
        let of_processor = self.ran.and_then(|it| ran()?.checked_sub(it));
        of_processor.unwrap_or_else(|| self.begun.elapsed())
    }
}

fn ran() -> Option<Duration> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    line.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn load(replicas: u64, round: u64) -> LoadMap {
    let slices = replicas * SLICES;
    let width = u64::MAX / slices;
    let range = |it: u64| {
        let wobble = f64::from(u8::try_from(spread(it * 31 + round) >> 56).unwrap_or(0)) / 255.0;
        let slice = Slice { low: it * width, high: it * width + (width - 1) };
        RangeLoad { slice, load: 0.6 / 64.0 * (0.7 + 0.6 * wobble), state: 1.0 }
    };
    LoadMap::new(&(0..slices).map(range).collect::<Vec<_>>(), &[])
}

fn time_lookups(lookup: &Lookup, lookups: u32) -> Duration {
    let begun = Watch::start();
    for number in 0..lookups {
        black_box(lookup.holders(SliceKey(spread(u64::from(number)))));
    }
    begun.elapsed()
}

fn spread(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}
