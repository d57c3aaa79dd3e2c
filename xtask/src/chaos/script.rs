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
use crate::{http1, watch};

/// Copies of a poison request that come at once.
const POISON_COPIES: usize = 4;
/// How long a hang lasts at most; three times what a prompt of 100,000 tokens explains.
const HANG_MAX: Duration = Duration::from_secs(40);
/// How long the fleet has to recover from a fault.
const REST: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKind {
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
    PoisonAtOnce,
    RouterRestart,
}

const ALL: [FaultKind; 13] = [
    FaultKind::Kill,
    FaultKind::ColdRestart,
    FaultKind::Hang,
    FaultKind::Silence,
    FaultKind::Slow,
    FaultKind::Reset,
    FaultKind::Truncated,
    FaultKind::Garbage,
    FaultKind::Flapping,
    FaultKind::FrozenMetrics,
    FaultKind::Poison,
    FaultKind::PoisonAtOnce,
    FaultKind::RouterRestart,
];

impl FaultKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL, back after 3 s",
            Self::ColdRestart => "cold restart",
            Self::Hang => "SIGSTOP",
            Self::Silence => "accepts, then silence",
            Self::Slow => "ten times slower",
            Self::Reset => "cut in mid-stream",
            Self::Truncated => "truncated stream",
            Self::Garbage => "garbage in stream",
            Self::Flapping => "flapping health",
            Self::FrozenMetrics => "frozen metrics",
            Self::Poison => "poison request, three times",
            Self::PoisonAtOnce => "poison request, four at once",
            Self::RouterRestart => "router restart",
        }
    }

    /// Whether the replica should go on serving as if nothing were wrong: nothing is wrong with the
    /// answers it gives.
    pub(super) const fn is_harmless(self) -> bool {
        matches!(self, Self::FrozenMetrics | Self::RouterRestart)
    }

    /// Whether the replica's process ends, so that what it had must go elsewhere within a second.
    pub(super) const fn is_crash(self) -> bool {
        matches!(self, Self::Kill | Self::ColdRestart | Self::Poison | Self::PoisonAtOnce)
    }

    /// How many replicas the fault may take: two if a request comes again and again, as many as it
    /// was on when the first of them died if it comes several times at once.
    pub(super) fn deaths_max(self) -> Option<usize> {
        let at_once = (self == Self::PoisonAtOnce).then_some(POISON_COPIES);
        at_once.or((self == Self::Poison).then_some(2))
    }

    /// Whether the replica stops without a word, and must be found out.
    pub(super) const fn is_hang(self) -> bool {
        matches!(self, Self::Hang | Self::Silence)
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
            | Self::PoisonAtOnce
            | Self::RouterRestart => None,
        }
    }
}

/// A fault as it happened.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    /// The replicas that had it; several for poison, none for the router's own.
    pub(super) replicas: Vec<usize>,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// How much the router had logged before.
    pub(super) log_from: usize,
}

/// Runs every kind of fault `rounds` times, each round in an order of its own.
pub(super) fn run(fleet: &mut Fleet, seed: u64, rounds: u32) -> Result<Vec<Fault>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut faults = Vec::new();
    for _ in 0..rounds {
        let mut kinds = ALL;
        kinds.shuffle(&mut rng);
        for kind in kinds {
            let victim = rng.random_range(0..REPLICAS);
            println!("  {} at replica {victim}", kind.name());
            faults.push(strike(fleet, kind, victim)?);
            thread::sleep(REST);
        }
    }
    Ok(faults)
}

fn strike(fleet: &mut Fleet, kind: FaultKind, victim: usize) -> Result<Fault> {
    let log_from = fleet.router.said()?.len();
    let began = Instant::now();
    let seconds = |it| thread::sleep(Duration::from_secs(it));
    let mut replicas = vec![victim];
    match kind {
        FaultKind::Kill => {
            fleet.kill(victim)?;
            seconds(3);
            fleet.revive(victim)?;
        }
        FaultKind::ColdRestart => {
            fleet.kill(victim)?;
            fleet.revive(victim)?;
        }
        FaultKind::Hang => {
            fleet.signal(victim, "STOP")?;
            wait_until_out(fleet, victim);
            fleet.signal(victim, "CONT")?;
        }
        FaultKind::Flapping => {
            for _ in 0..4 {
                fleet.set_faults(victim, r#"{"unhealthy":true}"#)?;
                thread::sleep(Duration::from_millis(700));
                fleet.set_faults(victim, "{}")?;
                thread::sleep(Duration::from_millis(700));
            }
        }
        FaultKind::Poison => replicas = poison(fleet, 3, 1)?,
        FaultKind::PoisonAtOnce => replicas = poison(fleet, 1, POISON_COPIES)?,
        FaultKind::RouterRestart => {
            fleet.router.restart()?;
            replicas.clear();
        }
        FaultKind::Silence => {
            fleet.set_faults(victim, kind.faults().unwrap_or("{}"))?;
            wait_until_out(fleet, victim);
            fleet.set_faults(victim, "{}")?;
        }
        FaultKind::Slow
        | FaultKind::Reset
        | FaultKind::Truncated
        | FaultKind::Garbage
        | FaultKind::FrozenMetrics => {
            fleet.set_faults(victim, kind.faults().unwrap_or("{}"))?;
            seconds(5);
            fleet.set_faults(victim, "{}")?;
        }
    }
    Ok(Fault { kind, replicas, began, ended: Instant::now(), log_from })
}

/// Waits until the router has put a replica out, and a little longer.
fn wait_until_out(fleet: &Fleet, victim: usize) {
    let until = Instant::now() + HANG_MAX;
    let url = format!("http://{}", fleet.address(victim));
    while Instant::now() < until && !watch::is_out(fleet.router.admin, &url) {
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(Duration::from_secs(2));
}

/// Sends a request that no replica survives, `times` times and `at_once` at once; returns those
/// that died of it, alive again.
fn poison(fleet: &mut Fleet, times: usize, at_once: usize) -> Result<Vec<usize>> {
    for replica in 0..REPLICAS {
        fleet.set_faults(replica, r#"{"poison":true}"#)?;
    }
    let words = format!("<|crash|> {at_once}");
    let body = format!(
        r#"{{"model":"m","max_tokens":8,"messages":[{{"role":"user","content":"{words}"}}]}}"#
    );
    let (router, body) = (fleet.router.address, &body);
    for _ in 0..times {
        thread::scope(|scope| {
            for _ in 0..at_once {
                // However it is answered, what counts is how many it took with it.
                scope.spawn(move || _ = http1::post(router, "/v1/chat/completions", body));
            }
        });
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
