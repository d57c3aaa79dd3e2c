//! The faults, one after another, in an order that a seed decides. Each has its victim, lasts a while
//! and is taken back; then the fleet has time to recover, so that what follows is not blamed on what
//! came before.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::fleet::{Fleet, REPLICAS};
use crate::http1;

/// How long the fleet has to recover from a fault.
const REST: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Kill,
    ColdRestart,
    Hang,
    Silence,
    Slow,
    Reset,
    Truncated,
    Garbage,
    Flapping,
    FrozenMetrics,
    Poison,
    RouterRestart,
}

const ALL: [Kind; 12] = [
    Kind::Kill,
    Kind::ColdRestart,
    Kind::Hang,
    Kind::Silence,
    Kind::Slow,
    Kind::Reset,
    Kind::Truncated,
    Kind::Garbage,
    Kind::Flapping,
    Kind::FrozenMetrics,
    Kind::Poison,
    Kind::RouterRestart,
];

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL, back after 3 s",
            Self::ColdRestart => "cold restart",
            Self::Hang => "SIGSTOP for 8 s",
            Self::Silence => "accepts, then silence",
            Self::Slow => "ten times slower",
            Self::Reset => "cut in mid-stream",
            Self::Truncated => "truncated stream",
            Self::Garbage => "garbage in stream",
            Self::Flapping => "flapping health",
            Self::FrozenMetrics => "frozen metrics",
            Self::Poison => "poison request",
            Self::RouterRestart => "router restart",
        }
    }

    /// Whether the replica should go on serving as if nothing were wrong: nothing is wrong with the
    /// answers it gives.
    pub(super) const fn is_harmless(self) -> bool {
        matches!(self, Self::FrozenMetrics | Self::RouterRestart)
    }

    /// What makes the fault, where the mock replica does it itself.
    const fn faults(self) -> Option<&'static str> {
        match self {
            Self::Silence => Some(r#"{"hang_rate":1}"#),
            Self::Slow => Some(r#"{"slow_factor":10}"#),
            Self::Reset => Some(r#"{"truncate_rate":0.5}"#),
            Self::Truncated => Some(r#"{"short_rate":0.5}"#),
            Self::Garbage => Some(r#"{"garbage_rate":0.5}"#),
            Self::FrozenMetrics => Some(r#"{"metrics_frozen":true}"#),
            Self::Kill
            | Self::ColdRestart
            | Self::Hang
            | Self::Flapping
            | Self::Poison
            | Self::RouterRestart => None,
        }
    }
}

/// A fault as it happened.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// Who had it; several for poison, none for the router's own.
    pub(super) replicas: Vec<usize>,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

/// Runs faults until the time is up, every kind before any twice.
pub(super) fn run(fleet: &mut Fleet, seed: u64, until: Instant) -> Result<Vec<Fault>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut faults = Vec::new();
    let mut due: Vec<Kind> = Vec::new();
    while Instant::now() < until {
        if due.is_empty() {
            due.extend(ALL);
            due.shuffle(&mut rng);
        }
        let Some(kind) = due.pop() else { break };
        let victim = rng.random_range(0..REPLICAS);
        println!("  {} at replica {victim}", kind.name());
        faults.push(strike(fleet, kind, victim)?);
        thread::sleep(REST);
    }
    Ok(faults)
}

fn strike(fleet: &mut Fleet, kind: Kind, victim: usize) -> Result<Fault> {
    let began = Instant::now();
    let seconds = |it| thread::sleep(Duration::from_secs(it));
    let mut replicas = vec![victim];
    match kind {
        Kind::Kill => {
            fleet.kill(victim)?;
            seconds(3);
            fleet.revive(victim)?;
        }
        Kind::ColdRestart => {
            fleet.kill(victim)?;
            fleet.revive(victim)?;
        }
        Kind::Hang => {
            fleet.signal(victim, "STOP")?;
            seconds(8);
            fleet.signal(victim, "CONT")?;
        }
        Kind::Flapping => {
            for _ in 0..4 {
                fleet.set_faults(victim, r#"{"unhealthy":true}"#)?;
                thread::sleep(Duration::from_millis(700));
                fleet.set_faults(victim, "{}")?;
                thread::sleep(Duration::from_millis(700));
            }
        }
        Kind::Poison => replicas = poison(fleet)?,
        Kind::RouterRestart => {
            fleet.router.restart()?;
            replicas.clear();
        }
        Kind::Silence
        | Kind::Slow
        | Kind::Reset
        | Kind::Truncated
        | Kind::Garbage
        | Kind::FrozenMetrics => {
            fleet.set_faults(victim, kind.faults().unwrap_or("{}"))?;
            seconds(5);
            fleet.set_faults(victim, "{}")?;
        }
    }
    Ok(Fault { kind, replicas, began, ended: Instant::now() })
}

/// Sends a request that no replica survives; returns those that died of it, alive again.
fn poison(fleet: &mut Fleet) -> Result<Vec<usize>> {
    for replica in 0..REPLICAS {
        fleet.set_faults(replica, r#"{"poison":true}"#)?;
    }
    let body = r#"{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"<|crash|>"}]}"#;
    // However it is answered, what counts is how many it took with it.
    for _ in 0..3 {
        _ = http1::post(fleet.router.address, "/v1/chat/completions", body);
    }
    let mut dead = Vec::new();
    for replica in 0..REPLICAS {
        if fleet.is_dead(replica) {
            fleet.revive(replica)?;
            dead.push(replica);
        } else {
            fleet.set_faults(replica, "{}")?;
        }
    }
    Ok(dead)
}
