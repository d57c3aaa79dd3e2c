//! `cleave replay`: what would have been, on the traffic that was recorded. The requests of a recording come again,
//! when they came, to a simulated fleet that takes as long as the router had learned that its own takes, under the
//! brain that serves; once as it was, to see how far to believe it, and then as it might be.

mod answer;
mod basis;
mod fleet;
mod past;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use cleave_core::policy::PolicyKind;
use cleave_sim::measure::Slo;
use cleave_sim::traces::{Loop, Recording, Replay, Request, Scale, Workload};
use cleave_sim::world::{Unwatched, World, WorldSettings};

use rlimit::Resource;

use crate::simulate::compare::print;
use crate::simulate::output;
use crate::simulate::runs::parallel;
use crate::simulate::scenario::LoopKind;
use answer::{Felt, ReplayAnswer, Variant};
use basis::Basis;
use fleet::FleetChange;
use past::Past;

/// How often times are stretched before they are taken as they are.
const STRETCHES_MAX: u32 = 3;
/// What it may take where it is bounded.
const BOUNDED_BYTES: u64 = 4 << 30;
const BOUNDED_CPU_SECONDS: u64 = 110;

/// Ask what would have been: replay recorded traffic with another policy, fleet or load
///
/// Says first how well the replay of what happened agrees with what happened, then what would have been.
/// Record with `[record]`, with `POST /record` on the admin port or with `cleave demo --record FOLDER`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Recordings, or folders of them
    #[arg(required = true, value_name = "FILE|FOLDER")]
    from: Vec<PathBuf>,
    /// Play the last part of what was recorded, as in 30m; what came before it warms the caches
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    last: Option<Duration>,
    /// The pool that is played [default: the one with the most requests]
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Policies to try, with commas between them [default: the one that was recorded]
    #[arg(long = "policy", value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<String>,
    /// Come this many times as fast [default: 1]
    #[arg(long, value_name = "FACTOR")]
    rate_scale: Option<f64>,
    /// Whether requests come when they were recorded, or after the one before in their session has ended and
    /// its reader has thought as long as then [default: open]
    #[arg(long = "loop", value_enum)]
    pace: Option<LoopKind>,
    /// Promise this instead, as in ttft=1s,tpot=50ms [default: what the default class promises]
    #[arg(long, value_name = "PROMISES")]
    slo: Option<String>,
    /// Run what `cleave serve` would run with this file [default: what was recorded of it]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    fleet: fleet::ReplayFleetArgs,
    /// Where chance begins [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Use one thread and bounded memory and time, as beside a router that serves
    #[arg(long, hide = true)]
    bounded: bool,
}

/// A number of replicas, or how many more or fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaCount {
    Is(usize),
    More(usize),
    Fewer(usize),
}

impl FromStr for ReplicaCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| {
            let parsed = digits.parse().ok().filter(|_| !digits.starts_with('+'));
            parsed.ok_or_else(|| format!("{text:?} is no number as in 8, +2 or -2"))
        };
        match text.split_at_checked(1) {
            Some(("+", more)) => number(more).map(Self::More),
            Some(("-", fewer)) => number(fewer).map(Self::Fewer),
            _ => number(text).map(Self::Is),
        }
    }
}

/// Everything that is asked, settled.
struct ReplayQuestion {
    recording: Recording,
    past: Past,
    warmup: Vec<Request>,
    requests: Vec<Request>,
    change: FleetChange,
    config: Option<PathBuf>,
    /// The policy that served.
    own: PolicyKind,
    /// Those that might have; none where nothing is to be changed.
    policies: Vec<PolicyKind>,
    slo: Option<Slo>,
    /// How requests come again, as they came and as they might.
    base: Replay,
    changed: Replay,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let (json, bounded) = (self.json, self.bounded);
        if bounded {
            Resource::AS.set(BOUNDED_BYTES, BOUNDED_BYTES)?;
            Resource::CPU.set(BOUNDED_CPU_SECONDS, BOUNDED_CPU_SECONDS)?;
        }
        let question = self.ask()?;
        let (basis, replayed) = question.find_basis()?;
        let was = question.world(&basis)?;
        let mut variants = Vec::new();
        for policy in &question.policies {
            variants.push(question.change.apply(&was, *policy, question.slo)?);
        }
        let played = |it: &WorldSettings| question.play(it, &question.changed, &basis);
        let felt = if bounded {
            variants.iter().map(played).collect()
        } else {
            parallel(&variants, played)
        };
        let scale = question.changed.rate_scale.get();
        let mut what_if = Vec::new();
        for (settings, felt) in variants.iter().zip(felt) {
            what_if.push((Variant::of(settings, scale), felt?));
        }
        let own = Variant::of(&was, 1.0);
        let answer = ReplayAnswer::new(question.past.on(&basis), &basis, (own, replayed), what_if);
        print(&if json { output::json(&answer)? } else { answer.text() })
    }

    /// Reads the recording and settles what is played.
    fn ask(self) -> anyhow::Result<ReplayQuestion> {
        let files = files_of(&self.from)?;
        let recording = Recording::open(files.iter().map(PathBuf::as_path))?;
        let slo = self.slo.as_deref().map(Slo::from_str).transpose().context("--slo")?;
        let past = Past::select(&recording, self.pool.as_deref(), self.last, slo)?;
        let change = FleetChange::read(self.fleet)?;
        let own = PolicyKind::among(cleave_sim::policies::ALL, &past.pool.policy)
            .with_context(|| format!("the recorded policy {:?}", past.pool.policy))?;
        let base = Replay { seed: self.seed.unwrap_or(0), ..Replay::default() };
        let pace = match self.pace {
            Some(LoopKind::Closed) => Loop::Closed,
            Some(LoopKind::Open) | None => Loop::Open,
        };
        let rate_scale = Scale::new(self.rate_scale.unwrap_or(1.0))?;
        let changed = Replay { rate_scale, pace, ..base.clone() };
        let mut policies = Vec::new();
        for name in &self.policies {
            let policy = PolicyKind::among(cleave_sim::policies::ALL, name.trim());
            policies.push(policy.with_context(|| format!("{name:?}"))?);
        }
        let is_changed = change.is_some() || slo.is_some() || changed != base;
        if policies.is_empty() && is_changed {
            policies.push(own);
        }
        let (requests, warmup) = (past.requests(&recording), past.warmup(&recording));
        ensure!(!requests.is_empty(), "there is nothing to play in that part of the recording");
        let config = self.config;
        Ok(ReplayQuestion {
            recording,
            past,
            warmup,
            requests,
            change,
            config,
            own,
            policies,
            slo,
            base,
            changed,
        })
    }
}

impl ReplayQuestion {
    /// The fleet as it was, on a basis.
    fn world(&self, basis: &Basis) -> anyhow::Result<WorldSettings> {
        let past = self.past.on(basis);
        fleet::as_it_was(&past, self.config.as_deref(), &self.change, self.own, self.base.seed)
    }

    /// Finds the times with which the fleet as it was agrees best with how long answers took.
    fn find_basis(&self) -> anyhow::Result<(Basis, Felt)> {
        let tried = |basis: Basis| {
            let felt = self.play(&self.world(&basis)?, &self.base, &basis)?;
            anyhow::Ok((Basis::error(&self.past, &felt), basis, felt))
        };
        let mut best = None::<(f64, Basis, Felt)>;
        for basis in Basis::of_router(&self.recording, &self.past) {
            let mut now = tried(basis)?;
            for _ in 0..STRETCHES_MAX {
                let next = now.1.stretched(&self.recording, &self.past, &now.2);
                let Some(next) = next.map(tried).transpose()? else { break };
                if now.0 <= next.0 {
                    break;
                }
                now = next;
            }
            if best.as_ref().is_none_or(|it| now.0 < it.0) {
                best = Some(now);
            }
        }
        let (_, basis, felt) = best.context("the recording does not say what work takes")?;
        Ok((basis, felt))
    }

    /// Plays the requests once.
    fn play(
        &self,
        settings: &WorldSettings,
        replay: &Replay,
        basis: &Basis,
    ) -> anyhow::Result<Felt> {
        let mut world = World::new(settings.clone());
        world.run(&mut workload(&self.warmup, &self.base)?, &mut Unwatched)?;
        world.start_measuring();
        world.run(&mut workload(&self.requests, replay)?, &mut Unwatched)?;
        let mut felt = Felt::of(&world, settings.brain.policy);
        felt.add_overhead(basis.overhead_ms);
        Ok(felt)
    }
}

fn workload(requests: &[Request], replay: &Replay) -> anyhow::Result<Workload> {
    let requests: Vec<_> = requests.iter().cloned().map(Ok).collect();
    Ok(Workload::of_requests(Box::new(requests.into_iter()), replay)?)
}

/// Lists files, and of folders the recordings in them.
fn files_of(from: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in from {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let is_recording = |it: &Path| it.extension().is_some_and(|it| it == "rec");
        let listed =
            std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let before = files.len();
        for entry in listed {
            let file = entry?.path();
            if is_recording(&file) {
                files.push(file);
            }
        }
        ensure!(
            before < files.len(),
            "{} has no recordings (files that end in .rec): turn recording on with [record] or POST /record",
            path.display()
        );
    }
    files.sort();
    Ok(files)
}
