//! Load as a share of what the fleet has, in place of a rate that means something only for one trace
//! on one fleet: of its work (`load`), by looking through the workload once and pricing every request
//! with an endless cache; of its KV (`kv_load`), by the longest prompt of each session.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use cleave_core::domain::{Moment, whole_u32};
use cleave_sim::measure::real;
use cleave_sim::traces::{Loop, Replay, Scale, Seen, Starts};
use cleave_sim::work;

use super::plan::Plan;
use super::scenario::WorkloadSection;

/// Turns shares of what the fleet has into the rate and the number of sessions that are played.
pub(crate) fn settle(plan: &mut Plan, it: &WorkloadSection) -> anyhow::Result<()> {
    let is_share = |share: f64| share.is_finite() && 0.0 < share;
    if let Some(load) = it.load {
        ensure!(is_share(load), "load must be above 0");
        ensure!(it.rate_scale.is_none(), "give load or rate_scale, not both");
        ensure!(
            plan.replay.pace == Loop::Open,
            "load is for open loops, where work comes whatever is done; sessions have kv_load"
        );
        plan.replay.rate_scale = Scale::new(load / work_load(plan)?)?;
    }
    if let Some(share) = it.kv_load {
        ensure!(is_share(share), "kv_load must be above 0");
        let fixed = it.sessions_at_once.is_some() || it.sessions_per_second.is_some();
        ensure!(!fixed, "give kv_load or a number of sessions, not both");
        plan.replay.starts = Starts::Concurrent { sessions: sessions(plan, share)? };
        plan.replay.pace = Loop::Closed;
    }
    Ok(())
}

/// Measures the work that comes at the recorded rate, as a share of what the fleet can do.
fn work_load(plan: &Plan) -> anyhow::Result<f64> {
    let first = &plan.settings.replicas[0].engine;
    let speed = |times| work::prefill_ms(times, 1_000, 10_000);
    let replicas = plan.settings.replicas.iter().map(|it| &it.engine.times);
    let replicas: f64 = replicas.map(|it| speed(&first.times) / speed(it)).sum();
    let mut workload =
        plan.workload_as(&Replay { rate_scale: Scale::ONE, ..plan.replay.clone() })?;
    let mut seen = Seen::default();
    let (mut work_ms, mut last) = (0.0, Moment::ZERO);
    while let Some(request) = workload.take()? {
        let prompt = request.prompt.tokens().max(1);
        let cached = seen.cached_tokens(&request.prompt).min(prompt - 1);
        seen.insert(&request.prompt);
        work_ms += work::prefill_ms(&first.times, prompt - cached, cached)
            + work::decode_ms(&first.times, prompt, request.output_tokens.max(1));
        last = request.arrival;
    }
    let span_ms = last.since(Moment::ZERO).as_secs_f64() * 1e3;
    ensure!(0.0 < work_ms && 0.0 < span_ms, "the workload is too short to have a load");
    Ok(work_ms / (span_ms * replicas))
}

/// Counts the sessions whose longest prompts fill `share` of the fleet's KV.
fn sessions(plan: &Plan, share: f64) -> anyhow::Result<u32> {
    // One after the other, each turn at once: only their content matters.
    let replay = Replay {
        pace: Loop::Closed,
        starts: Starts::Concurrent { sessions: 1 },
        rate_scale: Scale::ONE,
        think_max: Duration::ZERO,
        requests_max: u64::MAX,
        ..plan.replay.clone()
    };
    let mut workload = plan.workload_as(&replay)?;
    let mut longest = BTreeMap::<u64, u32>::new();
    while let Some(request) = workload.take()? {
        let tokens = longest.entry(request.session).or_default();
        *tokens = request.prompt.tokens().max(*tokens);
        workload.on_end(request.arrival, request.ticket);
    }
    let sum: u64 = longest.values().map(|it| u64::from(*it)).sum();
    let count = u64::try_from(longest.len())?;
    ensure!(0 < sum, "the workload has no sessions");
    let kv: u64 = plan.settings.replicas.iter().map(|it| u64::from(it.engine.kv_tokens)).sum();
    Ok(whole_u32(share * real(kv) * real(count) / real(sum)).max(1))
}
