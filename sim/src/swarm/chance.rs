//! Draws a world. Ranges are small on purpose: engines with hardly any KV, one sequence at a time,
//! routers that see nothing for seconds. Real fleets are kinder.

use std::time::Duration;

use cleave_core::brain::{self, LineSettings, QuarantineSettings, RetrySettings};
use cleave_core::cost::StepTimes;
use cleave_core::queue::{Limits, Work};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::engine;
use crate::traces::{
    Class, ClassShare, HeavyTail, Mix, MultiTurn, SharedPrefix, Spread, Stage, Starts, SubAgents,
    Synthetic, Tenant,
};
use crate::world::{Exchange, Fault, FaultKind, ReplicaSettings, Timeouts, View, WorldSettings};

pub(super) struct Draws {
    rng: Pcg64Mcg,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Pcg64Mcg::seed_from_u64(seed) }
    }

    pub(super) fn settings(&mut self, seed: u64) -> WorldSettings {
        let (replicas, routers) = (self.fleet(), self.rng.random_range(1..=3));
        let policies = crate::policies::ALL;
        let policy = policies[self.rng.random_range(0..policies.len())];
        let faults = self.faults(replicas.len(), routers);
        let mut retries = RetrySettings::default();
        if self.sometimes() {
            retries.tries_max = 1;
        }
        if self.sometimes() {
            retries.reserve = 0;
        }
        let mut quarantine = QuarantineSettings::default();
        if self.sometimes() {
            quarantine.enabled = false;
        }
        let (loss, delay) = (if self.sometimes() { 0.01 } else { 0.0 }, self.millis(0, 1_000));
        let exchange = Exchange { delay, loss, older: 0 };
        WorldSettings {
            exchange: self.sometimes().then_some(exchange),
            brain: brain::Settings {
                policy,
                retries,
                quarantine,
                line: LineSettings { holds: self.sometimes(), ..LineSettings::default() },
                ..brain::Settings::default()
            },
            view: View { interval: self.millis(10, 5_000), delay: self.millis(0, 2_000) },
            timeouts: Timeouts {
                first_byte: self.millis(120_000, 300_000),
                idle: self.millis(5_000, 60_000),
                probe_interval: self.millis(500, 10_000),
            },
            replicas,
            routers,
            faults,
            seed,
            checks: true,
            ..WorldSettings::default()
        }
    }

    pub(super) fn workload(&mut self) -> Synthetic {
        let stage = Stage {
            per_second: f64::from(self.rng.random_range(1..=30)),
            lasts: Duration::from_secs(self.rng.random_range(5..=40)),
            pause: Duration::ZERO,
        };
        let tail = |mean: f64, max| Spread::LogNormal { mean, cv: 1.5, min: 1, max };
        match self.rng.random_range(0..3) {
            0 => Synthetic::SharedPrefix(SharedPrefix {
                groups: self.rng.random_range(1..=20),
                // Some ask the same again and again, as health checks do.
                prompts_per_group: self.sometimes().then(|| self.rng.random_range(1..=3)),
                prefix_tokens: self.rng.random_range(1..=2_000),
                question_tokens: self.rng.random_range(1..=300),
                output_tokens: self.rng.random_range(1..=100),
                stages: vec![stage],
            }),
            1 => Synthetic::HeavyTail(HeavyTail {
                input: tail(400.0, 8_000),
                output: tail(40.0, 500),
                stages: vec![stage],
            }),
            _ => Synthetic::MultiTurn(Box::new(MultiTurn {
                sessions: self.rng.random_range(5..=40),
                starts: Starts::Poisson { per_second: 2.0 },
                shared_tokens: self.rng.random_range(0..=500),
                system_tokens: Spread::Fixed(self.rng.random_range(0..=500)),
                turns: Spread::Between { min: 1, mean: 4, max: 12 },
                input_tokens: tail(100.0, 1_000),
                output_tokens: tail(40.0, 300),
                think_ms: tail(2_000.0, 20_000),
                sub_agents: self.sometimes().then_some(SubAgents {
                    chance: 0.2,
                    count: Spread::Between { min: 1, mean: 2, max: 4 },
                    turns: Spread::Between { min: 1, mean: 2, max: 4 },
                    system_tokens: Spread::Fixed(200),
                }),
                context_tokens_max: 4_000,
            })),
        }
    }

    /// Draws tenants, classes and deadlines, so that the line has something to order.
    pub(super) fn mix(&mut self) -> Option<Mix> {
        if self.sometimes() {
            return None;
        }
        let classes = (0..3).map(|class| ClassShare {
            class: Class(class),
            share: self.rng.random_range(0.1..1.0),
            deadline: self.sometimes().then(|| self.millis(10, 20_000)),
        });
        let classes = classes.collect();
        let tenants = 0..self.rng.random_range(1..=6);
        let tenants = tenants.map(|it| (Tenant(it), self.rng.random_range(0.1..10.0)));
        Some(Mix { classes, tenants: tenants.collect() })
    }

    fn fleet(&mut self) -> Vec<ReplicaSettings> {
        let block_tokens = if self.sometimes() { 16 } else { 64 };
        let count = self.rng.random_range(1..=8);
        let mut replica = self.replica(block_tokens);
        let mixed = self.sometimes();
        let mut fleet = Vec::new();
        for _ in 0..count {
            if mixed {
                replica = self.replica(block_tokens);
            }
            fleet.push(replica);
        }
        fleet
    }

    fn replica(&mut self, block_tokens: u32) -> ReplicaSettings {
        let times = if self.sometimes() { StepTimes::LLAMA_70B } else { StepTimes::LLAMA_8B };
        let engine = engine::EngineSettings {
            times,
            kv_tokens: block_tokens * self.rng.random_range(20..=400),
            block_tokens,
            batched_tokens_max: self.rng.random_range(64..=8_192),
            seqs_max: self.rng.random_range(1..=64),
        };
        ReplicaSettings { engine, weight: f64::from(self.rng.random_range(1..=4)) }
    }

    /// Draws a script in which everything ends, and the first replica is never taken away.
    fn faults(&mut self, replicas: usize, routers: usize) -> Vec<Fault> {
        let count = self.rng.random_range(0..=5);
        let mut faults = Vec::new();
        for _ in 0..count {
            let replica = self.rng.random_range(0..replicas);
            if self.rng.random_bool(0.1) {
                faults.extend(self.flapping(replica));
                continue;
            }
            let kind = match self.rng.random_range(0..8) {
                0 => FaultKind::Crash { replica },
                1 => FaultKind::Hang { replica },
                2 => {
                    let factor = f64::from(self.rng.random_range(2..=20));
                    FaultKind::Slow { replica, factor }
                }
                3 => FaultKind::Freeze { replica: self.sometimes().then_some(replica) },
                4 if 0 < replica => FaultKind::Drain { replica },
                5 => FaultKind::RestartRouter { router: self.rng.random_range(0..routers) },
                6 => FaultKind::Poison { tenant: Tenant(0), hangs: self.sometimes() },
                _ => FaultKind::Join,
            };
            let lasts = Some(self.millis(100, 60_000));
            faults.push(Fault { at: self.millis(0, 60_000), lasts, kind });
        }
        faults
    }

    /// Draws replicas that lie, and tenants that are taken out and put back in.
    pub(super) fn lies(&mut self, replicas: usize) -> Vec<Fault> {
        let count = self.rng.random_range(0..=4);
        let lies = (0..count).map(|_| {
            let replica = self.rng.random_range(0..replicas);
            let kind =
                if self.sometimes() { FaultKind::Lie { replica } } else { FaultKind::Reload };
            let (at, lasts) = (self.millis(0, 30_000), Some(self.millis(100, 60_000)));
            Fault { at, lasts, kind }
        });
        lies.collect()
    }

    /// Draws how many more routers there are than were drawn first; few worlds have more, because every two of them
    /// talk all the time.
    pub(super) fn more_routers(&mut self) -> usize {
        if self.rng.random_bool(0.2) { self.rng.random_range(1..=2) } else { 0 }
    }

    /// Draws routers that cannot reach the others for a while.
    pub(super) fn partitions(&mut self, routers: usize) -> Vec<Fault> {
        let count = self.rng.random_range(0..=3);
        let apart = (0..count).map(|_| {
            let kind = FaultKind::Apart { router: self.rng.random_range(0..routers) };
            Fault { at: self.millis(0, 40_000), lasts: Some(self.millis(100, 30_000)), kind }
        });
        apart.collect()
    }

    /// Draws connections between routers that break, and how many routers are of the version before.
    pub(super) fn upgrade(&mut self, routers: usize) -> (usize, Vec<Fault>) {
        let count = self.rng.random_range(0..=3);
        let broken = (0..count).map(|_| {
            let kind = FaultKind::HangUp { router: self.rng.random_range(0..routers) };
            Fault { at: self.millis(0, 60_000), lasts: None, kind }
        });
        let broken = broken.collect();
        let older = if self.sometimes() { self.rng.random_range(0..=routers) } else { 0 };
        (older, broken)
    }

    /// Draws contracts that are never filled, so that all of them are kept and none refuses
    /// anything.
    pub(super) fn contracts(&mut self) -> Vec<(Tenant, Limits)> {
        let limits = Limits {
            work_per_min: Some(Work::from_parts(u64::MAX)),
            tokens_per_min: Some(u64::MAX),
            requests_per_min: Some(u64::MAX),
            burst: self.millis(0, 60_000),
            is_hard: false,
        };
        (0..3).filter(|_| self.sometimes()).map(|it| (Tenant(it), limits)).collect()
    }

    /// Draws a replica that comes back again and again, and never for long.
    fn flapping(&mut self, replica: usize) -> Vec<Fault> {
        let (from, every) = (self.millis(0, 20_000), self.millis(2_000, 10_000));
        let times = self.rng.random_range(3..=8);
        let crash = |number| Fault {
            at: from + every * number,
            lasts: Some(every / 2),
            kind: FaultKind::Crash { replica },
        };
        (0..times).map(crash).collect()
    }

    fn sometimes(&mut self) -> bool {
        self.rng.random_bool(0.5)
    }

    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(least..=most))
    }
}
