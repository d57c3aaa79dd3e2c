//! Runs worlds on all cores, one core each: a run is one thread from beginning to end, so its result
//! does not depend on how many run beside it. Wall time is taken here, because the simulator has no
//! clock, and kept apart from the figures, because those must be the same on any machine.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use cleave_core::brain::TtftError;
use cleave_core::policy::PolicyKind;
use cleave_sim::bounds::{self, Bounds};
use cleave_sim::results::{Curves, Results};
use cleave_sim::world::{Decisions, Watch, World};
use indicatif::{ProgressBar, ProgressStyle};

use super::plan::Plan;

/// One run and what it took.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) results: Results,
    pub(crate) curves: Curves,
    pub(crate) decisions: Decisions,
    /// How well the routers predicted first tokens.
    pub(crate) ttft_error: TtftError,
    pub(crate) wall: Duration,
}

/// Looks on with a real clock and moves the progress bar.
struct Onlooker<'a> {
    zero: Instant,
    bar: &'a ProgressBar,
    unseen: u64,
}

/// Arrivals between two moves of the bar.
const ARRIVALS_PER_MOVE: u64 = 500;

impl Watch for Onlooker<'_> {
    fn on_arrival(&mut self) {
        self.unseen += 1;
        if self.unseen == ARRIVALS_PER_MOVE {
            self.bar.inc(self.unseen);
            self.unseen = 0;
        }
    }

    fn nanos(&mut self) -> u64 {
        u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Runs one policy with one seed; where faults are about, once more without them, beside which it is
/// held.
pub(crate) fn run(
    plan: &Plan,
    policy: PolicyKind,
    seed: u64,
    bar: &ProgressBar,
) -> anyhow::Result<Run> {
    let mut run = run_once(plan, policy, seed, bar)?;
    if run.results.others.is_some() {
        let mut calm = plan.clone();
        calm.settings.calm = true;
        run.results.pair_with(run_once(&calm, policy, seed, bar)?.results);
    }
    Ok(run)
}

fn run_once(plan: &Plan, policy: PolicyKind, seed: u64, bar: &ProgressBar) -> anyhow::Result<Run> {
    let began = Instant::now();
    let mut onlooker = Onlooker { zero: began, bar, unseen: 0 };
    let mut world = World::new(plan.settings(policy, seed));
    if let Some(mut warmup) = plan.warmup(seed)? {
        world.run(&mut warmup, &mut onlooker)?;
    }
    world.start_measuring();
    let played = world.run(&mut plan.workload(seed)?, &mut onlooker);
    played.with_context(|| format!("{policy}, seed {seed}"))?;
    ensure!(
        0 < world.measures().arrived,
        "there is nothing to play: no request of the workload is within the limits given"
    );
    Ok(Run {
        results: Results::of(&world, policy.as_str()),
        curves: Curves::of(&world),
        decisions: world.decisions(),
        ttft_error: world.ttft_error(),
        wall: began.elapsed(),
    })
}

/// Computes the bounds for one seed.
pub(crate) fn bound(plan: &Plan, seed: u64) -> anyhow::Result<Bounds> {
    let policy = plan.policies.first().copied().unwrap_or(PolicyKind::ROUND_ROBIN);
    let mut warmup = plan.warmup(seed)?;
    let settings = plan.settings(policy, seed);
    Ok(bounds::bounds(settings, warmup.as_mut(), &mut plan.workload(seed)?)?)
}

/// Does all jobs, as many at a time as there are cores, and returns what came of them in order.
pub(crate) fn parallel<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(jobs.len()));
    thread::scope(|scope| {
        for _ in 0..cores.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((at, job)) = take(jobs, &next) {
                    let result = work(job);
                    done.lock().expect("no worker panics while it holds this").push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no worker panics while it holds this");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, J>(jobs: &'a [J], next: &AtomicUsize) -> Option<(usize, &'a J)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(at).map(|job| (at, job))
}

/// A bar that counts requests, on a terminal only.
pub(crate) fn progress() -> ProgressBar {
    let bar = ProgressBar::no_length();
    let style = "{spinner} {msg} · {human_pos} requests · {per_sec} · {elapsed}";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is well formed"));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_jobs() {
        let jobs: Vec<u32> = (0..100).collect();
        assert_eq!(parallel(&jobs, |it| it * 2), jobs.iter().map(|it| it * 2).collect::<Vec<_>>());
        assert!(parallel(&[], |(): &()| ()).is_empty());
    }
}
