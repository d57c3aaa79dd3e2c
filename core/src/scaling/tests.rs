use std::time::Duration;

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
        let out = self.sample.unhealthy;
        let ready = self.replicas.iter().filter(|it| **it <= now).count();
        let sample = Sample {
            ready: ready - out,
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
        (1..ticks).for_each(|_| drop(self.tick(mu_per_min)));
        self.tick(mu_per_min)
    }
}

#[test]
fn the_number_follows_the_work_up_and_down() {
    let mut pool = Pool::new(RULES, 1);
    let calm = pool.run(120, 80.0);
    assert_eq!((calm.wanted, calm.reason), (1, Reason::Steady));
    let busy = pool.run(60, 750.0);
    assert!((8..=12).contains(&busy.wanted), "{busy:?}");
    let idle = pool.run(400, 0.0);
    assert_eq!((idle.wanted, idle.reason), (1, Reason::Steady));
}
