//! Calibrates a live replica: opens, measures, fits, tells. The only place that knows the whole course.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use cleave_core::cost::{
    Coefficients, CostBook, ErrorQuantiles, Fit, KneePoint, Origin, RequestCost, StepSample,
    StepTimes, fit,
};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::client::ReplicaClient;
use super::grid::{Cell, GridSize};
use super::measure::{Bench, Findings, Halt};
use super::{Args, file, opening, plot, report};

/// Fewer cells of a kind leave coefficients that mean nothing.
const CELLS_MIN: usize = 3;
/// A median error above this is told to the user.
const ERROR_SUSPICIOUS: f64 = 0.1;

/// What a calibration found, as one value.
#[derive(Debug)]
pub(super) struct Calibration {
    pub(super) coefficients: Coefficients,
    pub(super) fit: Fit,
    pub(super) findings: Findings,
}

pub(super) fn run(url: &str, args: &Args) -> anyhow::Result<()> {
    // Each client of the ladder holds a descriptor; a lower limit only means fewer of them.
    _ = rlimit::increase_nofile_limit(u64::MAX);
    // A file that cannot be added to is better found out before minutes of measuring.
    if let Some(path) = &args.out {
        file::read(path)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut calibration = runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut signals = JoinSet::new();
        signals.spawn(stop_on_signal(stop.clone()));
        calibrate(url, args, &stop).await
    })?;
    let entry = calibration.coefficients.clone();
    let settled = match &args.out {
        Some(path) => file::add(path, vec![entry])?,
        None => file::put(&mut CostBook::default(), vec![entry]),
    };
    calibration.coefficients = settled.into_iter().next().context("the book lost its entry")?;
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::draw(&calibration))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    report::print(&calibration, args)
}

/// Measures one replica and fits what was seen.
pub(super) async fn calibrate(
    url: &str,
    args: &Args,
    stop: &CancellationToken,
) -> anyhow::Result<Calibration> {
    let client = ReplicaClient::new(url)?;
    let source = client.base().to_owned();
    let pace = if args.quick { GridSize::Quick } else { GridSize::Full };
    let seed = Uuid::new_v4().as_u64_pair().0;
    let mut subject = tokio::select! {
        () = stop.cancelled() => bail!("stopped before anything was measured"),
        opened = opening::open(client, args.model.as_deref(), pace, args.force, seed) => opened?,
    };
    let progress = progress();
    let bench = Bench::new(&mut subject, pace, args.force, stop, &progress);
    let mut findings = Box::pin(bench.run()).await;
    if subject.report.requests().is_none() {
        let told = "the replica has no metrics: whether it served others meanwhile is unknown";
        findings.notes.push(told.to_owned());
    }
    judge(&mut findings)?;
    let samples: Vec<StepSample> = findings.cells.iter().map(|it| it.sample).collect();
    let fit = rounded(fit(&samples));
    if ERROR_SUSPICIOUS < fit.error_held_out.p50 {
        let told = "half of the predictions are off by more than a tenth: the replica or this machine \
                    was busy with something else; measure again, without --quick";
        findings.notes.push(told.to_owned());
    }
    let knee = KneePoint::of(findings.mix, &findings.rungs).unwrap_or_else(|| {
        findings.notes.push("the knee is predicted, not measured".to_owned());
        KneePoint { reached: false, ..KneePoint::predict(&fit.times, findings.mix) }
    });
    let coefficients = Coefficients {
        model: subject.model,
        class: args.class.clone(),
        origin: Origin::Replica,
        source,
        date: file::today(),
        capacity_mu_per_min: 100.0,
        overhead_ms: fit.overhead_ms,
        image_ms: 0.0,
        audio_second_ms: 0.0,
        adapter_ms: RequestCost::ADAPTER_MS_UNKNOWN,
        step: fit.times,
        knee,
        error: Some(fit.error_held_out),
    };
    Ok(Calibration { coefficients, fit, findings })
}

/// Keeps as many digits as a measurement can have, so that a file stays readable.
fn rounded(fit: Fit) -> Fit {
    let round = |value: f64| format!("{value:.4e}").parse().unwrap_or(value);
    let ErrorQuantiles { p50, p90, p95, max } = fit.error_held_out;
    Fit {
        times: StepTimes {
            floor_ms: round(fit.times.floor_ms),
            new_token_ms: round(fit.times.new_token_ms),
            attention_ms: round(fit.times.attention_ms),
            context_ms: round(fit.times.context_ms),
        },
        overhead_ms: round(fit.overhead_ms),
        error_held_out: ErrorQuantiles {
            p50: round(p50),
            p90: round(p90),
            p95: round(p95),
            max: round(max),
        },
        ..fit
    }
}

/// Decides whether what was measured is enough, and says what a reader should know.
fn judge(findings: &mut Findings) -> anyhow::Result<()> {
    let prompts = findings.cells.iter().filter(|it| matches!(it.cell, Cell::Prompt { .. })).count();
    let batches = findings.cells.len() - prompts;
    let is_enough = CELLS_MIN <= prompts && CELLS_MIN <= batches;
    let told = match findings.halt.take() {
        None => None,
        Some(Halt::Foreign(tokens)) => bail!(
            "the replica wrote {tokens:.0} tokens for other clients meanwhile; take it out of \
             rotation, or give --force"
        ),
        Some(Halt::Broken(error)) if !is_enough => return Err(error),
        Some(Halt::Broken(error)) => Some(format!("ended early: {error:#}")),
        Some(Halt::Interrupted) => Some("ended early, as asked".to_owned()),
        Some(Halt::OutOfTime) => Some("ended early: the time was up".to_owned()),
        Some(Halt::OutOfRequests) => Some("ended early: too many requests".to_owned()),
    };
    findings.notes.extend(told);
    if is_enough {
        return Ok(());
    }
    let mut notes = findings.notes.clone();
    notes.truncate(4);
    Err(anyhow!(
        "too little was measured for a fit ({prompts} prompts, {batches} batches): {}; let it run \
         longer, or raise the replica's context length or sequences at once",
        notes.join("; ")
    ))
}

/// Shows how far it is, where there is a terminal to show it on.
fn progress() -> ProgressBar {
    let bar = ProgressBar::no_length();
    let style =
        ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} requests, {msg}");
    bar.set_style(style.expect("the template is well formed").progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Ctrl-C and SIGTERM mean the same here: fit what there is and go.
async fn stop_on_signal(stop: CancellationToken) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    stop.cancel();
    Ok(())
}
