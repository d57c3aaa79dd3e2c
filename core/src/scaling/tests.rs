use std::time::Duration;

use proptest::prelude::*;

use crate::domain::Moment;

use super::{Advice, Reason, Rules, Sample, Scaler};

const START_UP: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_secs(5);
const RULES: Rules = Rules { min: 1, max: 20, start_up: Some(START_UP) };

/// A pool whose replicas do 100 model units a minute and are ready when they should be.
struct Pool {
    scaler: Scaler,
    now: Moment,
    /// When each is ready.
    replicas: Vec<Moment>,
    /// What every sample says beside what is counted.
    sample: Sample,
}

impl Pool {
    fn new(rules: Rules, ready: usize) -> Self {
        let sample = Sample {
            capacity_mu_per_min: Some(100.0),
            kv_tokens_per_replica: Some(1_000),
            ..Sample::default()
        };
        let replicas = vec![Moment::ZERO; ready];
        Self { scaler: Scaler::new(rules), now: Moment::ZERO, replicas, sample }
    }

    /// Lets a tick pass in which work came at this rate, and does what is advised.
    fn tick(&mut self, mu_per_min: f64) -> Advice {
        self.now = self.now + TICK;
        let now = self.now;
        let ready = self.replicas.iter().filter(|it| **it <= now).count();
        let sample = Sample {
            ready: ready.saturating_sub(self.sample.unhealthy),
            starting: self.replicas.len() - ready,
            offered_mu: mu_per_min * TICK.as_secs_f64() / 60.0,
            ..self.sample
        };
        self.scaler.observe(now, &sample);
        let advice = self.scaler.decide(now);
        self.replicas.resize(advice.wanted, now + START_UP);
        advice
    }

    fn run(&mut self, ticks: usize, mu_per_min: f64) -> Advice {
        for _ in 1..ticks {
            self.tick(mu_per_min);
        }
        self.tick(mu_per_min)
    }
}

/// Noise of a tenth either way, the same each time.
fn noisy(at: usize) -> f64 {
    let steps = u32::try_from(at.wrapping_mul(7_919) % 201).unwrap();
    0.9 + f64::from(steps) / 1_000.0
}

#[test]
fn one_that_follows_gives_the_number_of_the_leader_and_goes_on_from_it() {
    let mut pool = Pool::new(RULES, 2);
    pool.run(60, 60.0);
    let (now, sample) = (pool.now + TICK, Sample { ready: 2, ..pool.sample });
    pool.scaler.observe(now, &sample);
    let told = pool.scaler.follow(now, 7, Reason::Backlog);
    assert_eq!((told.wanted, told.reason, told.terms.ready), (7, Reason::Backlog, 2));
    // It leads from now on, and neither jumps back nor asks for the same again.
    pool.scaler.observe(now + TICK, &sample);
    let own = pool.scaler.decide(now + TICK);
    assert_eq!((own.wanted, own.terms.coming), (7, 5), "{own:?}");
    let beyond = pool.scaler.follow(now + TICK, 1_000_000, Reason::Forecast);
    assert_eq!(beyond.wanted, RULES.max, "its own bounds hold");
}

#[test]
fn the_number_follows_the_work_up_and_down() {
    let mut pool = Pool::new(RULES, 1);
    let calm = pool.run(120, 60.0);
    assert_eq!((calm.wanted, calm.reason), (1, Reason::Steady));
    let busy = pool.run(60, 750.0);
    assert!((8..=12).contains(&busy.wanted), "{busy:?}");
    let idle = pool.run(400, 0.0);
    assert_eq!((idle.wanted, idle.reason), (1, Reason::Steady));
}

#[test]
fn noise_of_a_tenth_changes_nothing() {
    for level in [35.0, 75.0, 80.0, 230.0, 350.0, 512.0, 1_450.0] {
        let mut pool = Pool::new(RULES, 1);
        let mut wanted = 0;
        // By then the noise has been seen as large as it gets.
        for at in 0..1_000 {
            wanted = pool.tick(level * noisy(at)).wanted;
        }
        for at in 1_000..4_000 {
            let advice = pool.tick(level * noisy(at));
            assert_eq!(advice.wanted, wanted, "{level} at tick {at}: {advice:?}");
        }
    }
}

#[test]
fn no_step_is_undone_twice_in_three_start_ups() {
    // Bursts of a minute every few minutes, the worst for a start-up of a minute.
    let mut pool = Pool::new(RULES, 1);
    let (mut last, mut steps) = (1, Vec::new());
    for at in 0..4_000_usize {
        let advice = pool.tick(if at % 60 < 12 { 900.0 } else { 90.0 });
        if advice.wanted != last {
            steps.push((pool.now, last < advice.wanted));
            last = advice.wanted;
        }
    }
    let undone: Vec<Moment> = steps
        .windows(2)
        .filter(|it| it[0].1 != it[1].1 && it[1].0.since(it[0].0) < 3 * START_UP)
        .map(|it| it[1].0)
        .collect();
    assert!(undone.windows(2).all(|it| 3 * START_UP <= it[1].since(it[0])), "{undone:?}");
}

#[test]
fn what_was_asked_for_is_not_asked_for_again() {
    let mut pool = Pool::new(RULES, 2);
    pool.run(100, 150.0);
    pool.sample.held_mu = 150.0;
    let first = pool.tick(150.0);
    let later = pool.run(11, 150.0);
    assert_eq!(first.reason, Reason::Backlog);
    assert_eq!(later.wanted, first.wanted, "they come: {later:?}");
    assert!(0 < later.terms.coming, "{later:?}");
}

#[test]
fn replicas_that_do_not_come_are_given_up_and_said_so() {
    let mut pool = Pool::new(RULES, 2);
    pool.run(100, 150.0);
    for _ in 0..60 {
        pool.tick(600.0);
        pool.replicas.truncate(2);
    }
    let advice = pool.tick(600.0);
    assert_eq!(advice.reason, Reason::NotComing, "{advice:?}");
    assert!(6 <= advice.wanted && 0 < advice.terms.overdue && advice.terms.coming == 0);
}

#[test]
fn missing_figures_frozen_reports_and_faults_take_nothing_away() {
    type Change = fn(&mut Sample);
    let cases: [(Change, Reason); 4] = [
        (|it| it.is_missing = true, Reason::DataMissing),
        (|it| it.is_frozen = true, Reason::ReportsFrozen),
        (|it| it.unhealthy = 1, Reason::Fault),
        (|it| it.unhealthy = 6, Reason::HalfOut),
    ];
    for (change, reason) in cases {
        let mut pool = Pool::new(RULES, 9);
        pool.run(100, 800.0);
        change(&mut pool.sample);
        let before = pool.replicas.len();
        let advice = pool.run(500, 0.0);
        assert!(before <= advice.wanted, "{reason:?}: {advice:?}");
        assert_eq!(advice.reason, reason);
    }
}

#[test]
fn replicas_that_are_out_are_made_up_for_unless_half_of_them_are() {
    let mut pool = Pool::new(RULES, 6);
    let before = pool.run(100, 500.0).wanted;
    pool.sample.unhealthy = 1;
    assert_eq!(pool.run(3, 500.0).wanted, before + 1);
    let mut pool = Pool::new(RULES, 6);
    let before = pool.run(100, 500.0).wanted;
    pool.sample.unhealthy = 4;
    assert_eq!(pool.run(3, 500.0).wanted, before);
}

#[test]
fn no_traffic_is_data_and_a_pool_may_go_to_zero_and_back() {
    let mut pool = Pool::new(Rules { min: 0, ..RULES }, 3);
    pool.run(60, 250.0);
    assert_eq!(pool.run(1_000, 0.0).wanted, 0);
    pool.sample.held_mu = 0.1;
    let woken = pool.tick(0.0);
    assert_eq!(woken.wanted, 1, "{woken:?}");
}

#[test]
fn work_without_a_known_capacity_gets_one_replica_and_no_fewer() {
    let mut pool = Pool::new(Rules { min: 0, ..RULES }, 0);
    pool.sample.capacity_mu_per_min = None;
    let advice = pool.run(3, 500.0);
    assert_eq!((advice.wanted, advice.reason), (1, Reason::CapacityUnknown));
}

#[test]
fn a_tenant_beyond_its_contract_buys_no_replicas() {
    let mut pool = Pool::new(RULES, 2);
    let before = pool.run(100, 120.0).wanted;
    pool.sample.beyond_contract_mu = 100.0;
    let advice = pool.run(100, 120.0);
    assert_eq!((advice.wanted, advice.reason), (before, Reason::ContractExceeded), "{advice:?}");
}

#[test]
fn more_than_the_most_is_the_most_and_said_so() {
    let mut pool = Pool::new(RULES, 2);
    let advice = pool.run(100, 9_000.0);
    assert_eq!((advice.wanted, advice.reason), (20, Reason::MaxReached));
}

#[test]
fn live_sessions_keep_the_replicas_that_hold_them() {
    let mut pool = Pool::new(RULES, 5);
    pool.sample.kv_tokens_needed = 4_300;
    let advice = pool.run(500, 20.0);
    assert_eq!((advice.wanted, advice.terms.by_memory), (5, 5), "{advice:?}");
}

#[test]
fn it_shrinks_by_steps_a_start_up_apart() {
    let mut pool = Pool::new(RULES, 16);
    let mut steps: Vec<(Moment, usize)> = vec![(Moment::ZERO, 16)];
    for _ in 0..1_000 {
        let wanted = pool.tick(150.0).wanted;
        if wanted != steps[steps.len() - 1].1 {
            steps.push((pool.now, wanted));
        }
    }
    assert!(3 <= steps.len() && steps[steps.len() - 1].1 <= 3, "{steps:?}");
    assert!(steps[1..].windows(2).all(|it| START_UP <= it[1].0.since(it[0].0)), "{steps:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_said_the_number_is_within_its_bounds(
        figures in prop::collection::vec(
            (any::<f64>(), any::<f64>(), 0..40_usize, 0..40_usize, 0..40_usize, any::<u64>(), any::<u8>()),
            1..60,
        ),
        min in 0..5_usize,
        max in 0..30_usize,
        start_up in prop::option::of(any::<u32>()),
    ) {
        let start_up = start_up.map(|it| Duration::from_secs(it.into()));
        let rules = Rules { min, max, start_up };
        let mut scaler = Scaler::new(rules);
        let mut now = Moment::ZERO;
        for (offered, other, ready, starting, unhealthy, tokens, flags) in figures {
            now = now + Duration::from_millis(tokens % 100_000);
            let sample = Sample {
                ready,
                starting,
                unhealthy,
                offered_mu: offered,
                beyond_contract_mu: other,
                held_mu: other,
                refused_mu: offered,
                kv_tokens_needed: tokens,
                kv_tokens_per_replica: (flags & 1 == 0).then_some(tokens / 3),
                capacity_mu_per_min: (flags & 2 == 0).then_some(other),
                floor: ready,
                is_missing: flags & 4 == 0,
                is_frozen: flags & 8 == 0,
            };
            scaler.observe(now, &sample);
            let advice = scaler.decide(now);
            prop_assert!((min..=max.max(min)).contains(&advice.wanted), "{:?}", advice);
            prop_assert!(!advice.reason.to_string().is_empty());
        }
    }

    #[test]
    fn more_work_never_needs_fewer_replicas(
        loads in prop::collection::vec(0.0..900.0_f64, 30..120),
        factor in 1.0..3.0_f64,
    ) {
        let rules = Rules { max: 200, ..RULES };
        let (mut less, mut more) = (Scaler::new(rules), Scaler::new(rules));
        let mut now = Moment::ZERO;
        for load in loads {
            now = now + TICK;
            let of = |mu: f64| Sample {
                ready: 3,
                offered_mu: mu,
                capacity_mu_per_min: Some(100.0),
                ..Sample::default()
            };
            less.observe(now, &of(load / 12.0));
            more.observe(now, &of(factor * load / 12.0));
            let (one, other) = (less.decide(now), more.decide(now));
            prop_assert!(one.terms.by_demand <= other.terms.by_demand, "{:?} {:?}", one, other);
        }
    }

    #[test]
    fn missing_figures_never_take_a_replica_away(
        before in prop::collection::vec(0.0..900.0_f64, 1..60),
        after in prop::collection::vec(0.0..900.0_f64, 1..200),
    ) {
        let mut pool = Pool::new(RULES, 4);
        for load in before {
            pool.tick(load);
        }
        pool.sample.is_missing = true;
        let mut least = pool.replicas.len();
        for load in after {
            let wanted = pool.tick(load).wanted;
            prop_assert!(least <= wanted);
            least = wanted;
        }
    }
}
