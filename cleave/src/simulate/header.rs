//! What a run was asked to be, said first: version, seed and every parameter, so that a result can be
//! made again from its own first lines.

use std::collections::BTreeMap;
use std::time::Duration;

use cleave_core::brain::{LineSettings, SubsetSettings};
use cleave_sim::traces::{Loop, Replay, Starts};
use cleave_sim::world::Belief;

use super::plan::{Plan, Source};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

type Parameters = BTreeMap<&'static str, String>;

/// Every parameter by its name, in the order of names.
pub(crate) fn parameters(plan: &Plan) -> Parameters {
    let mut all = Parameters::new();
    add_contest(plan, &mut all);
    add_replay(&plan.replay, &mut all);
    add_world(plan, &mut all);
    all
}

/// Adds what is compared, on what load, by which promises.
fn add_contest(plan: &Plan, all: &mut Parameters) {
    let policies: Vec<_> = plan.policies.iter().map(|it| it.as_str()).collect();
    all.insert("policies", policies.join(","));
    all.insert("seeds", plan.seeds.to_string());
    all.insert("slo", plan.settings.slo.to_string());
    all.insert("workload", workload(&plan.source));
    all.extend(labels(plan));
    if let Some(warmup) = &plan.warmup {
        all.insert("warmup", warmup.display().to_string());
    }
}

fn add_replay(replay: &Replay, all: &mut Parameters) {
    let pace = match replay.pace {
        Loop::Open => "open",
        Loop::Closed => "closed",
    };
    all.insert("loop", pace.to_owned());
    all.insert("rate scale", replay.rate_scale.get().to_string());
    all.insert("from", format!("{:?}", replay.from));
    all.insert("until", limit(replay.until, Duration::MAX));
    all.insert("requests max", bound(replay.requests_max, u64::MAX));
    all.insert("prompt tokens max", bound(replay.prompt_tokens_max, u32::MAX));
    all.insert("think max", limit(replay.think_max, Duration::MAX));
    all.insert("session starts", starts(replay.starts));
    all.insert("share tools", replay.share_tools.to_string());
}

/// Adds the fleet, its routers and what befalls them.
fn add_world(plan: &Plan, all: &mut Parameters) {
    let settings = &plan.settings;
    let brain = &settings.brain;
    all.insert("line", line(&brain.line));
    let divided = brain.subsets != SubsetSettings::undivided();
    all.insert("subsets", on_or_off(divided).to_owned());
    all.insert("learning", on_or_off(brain.learns_costs).to_owned());
    all.insert("quarantine", on_or_off(brain.quarantine.enabled).to_owned());
    let classes = plan.classes.iter().map(|it| {
        format!(
            "{} × {} at speed {}: {} KV tokens in blocks of {}, {} tokens and {} sequences a step, weight {}",
            it.replicas, it.hardware.as_deref().unwrap_or_default(), it.speed, it.kv_tokens, it.block_tokens,
            it.batched_tokens, it.max_seqs, it.weight,
        )
    });
    all.insert("fleet", classes.collect::<Vec<_>>().join("; "));
    let (view, timeouts) = (settings.view, settings.timeouts);
    all.insert(
        "routers",
        format!(
            "{}, metrics read every {:?} and {:?} late, first byte within {:?}, then {:?}, probed every {:?}",
            settings.routers, view.interval, view.delay, timeouts.first_byte, timeouts.idle,
            timeouts.probe_interval,
        ),
    );
    if let Some(it) = settings.exchange {
        all.insert("exchange", format!("{:?} late", it.delay));
    }
    if 0.0 < settings.non_streaming {
        all.insert("answers that do not stream", settings.non_streaming.to_string());
    }
    if settings.belief != Belief::default() {
        all.insert("routers believe", belief(&settings.belief));
    }
    if !settings.faults.is_empty() {
        let faults = settings.faults.iter().map(|it| {
            let lasts = it.lasts.map_or_else(String::new, |it| format!(" for {it:?}"));
            format!("{:?} at {:?}{lasts}", it.kind, it.at)
        });
        all.insert("faults", faults.collect::<Vec<_>>().join("; "));
    }
}

/// The tenants of the requests.
fn labels(plan: &Plan) -> Parameters {
    let classes = plan.mix.classes.iter().map(|it| {
        let due = it.deadline.map_or_else(String::new, |it| format!(" due in {it:?}"));
        format!("{} {}{due}", it.class, it.share)
    });
    let tenants = plan.mix.tenants.iter().map(|(tenant, share)| format!("{tenant} {share}"));
    let only = plan.only.iter().map(ToString::to_string);
    let all: [(_, Vec<String>); 3] =
        [("classes", classes.collect()), ("tenants", tenants.collect()), ("only", only.collect())];
    let said = all.into_iter().filter(|it| !it.1.is_empty());
    said.map(|(name, shares)| (name, shares.join(", "))).collect()
}

/// What waits at the routers.
fn line(it: &LineSettings) -> String {
    let gate = if it.gates { format!("at {} of KV", it.gate.kv_share) } else { "off".to_owned() };
    format!("hold {}, gate {gate}", on_or_off(it.holds))
}

const fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// The first lines of a run.
pub(crate) fn text(command: &str, plan: &Plan) -> String {
    let mut text = format!("cleave {VERSION} {command}\n  seed: {}\n", plan.seed);
    for (name, value) in parameters(plan) {
        text.push_str("  ");
        text.push_str(name);
        text.push_str(": ");
        text.push_str(&value);
        text.push('\n');
    }
    text
}

fn workload(source: &Source) -> String {
    match source {
        Source::Trace { file, format } => {
            let format = format.map_or_else(String::new, |it| format!(" as {it:?}"));
            format!("{}{format}", file.display())
        }
        Source::Recordings { files } => {
            let files: Vec<_> = files.iter().map(|it| it.display().to_string()).collect();
            files.join(", ")
        }
        Source::Composed { tenants, content } => {
            format!("tenants of {} over {}", tenants.display(), content.display())
        }
        Source::Synthetic { preset } => format!("synthetic {preset}"),
    }
}

fn starts(starts: Starts) -> String {
    match starts {
        Starts::Poisson { per_second } => format!("{per_second} a second where not recorded"),
        Starts::Concurrent { sessions } => format!("{sessions} at once"),
    }
}

fn limit(time: Duration, none: Duration) -> String {
    if time == none { "none".to_owned() } else { format!("{time:?}") }
}

fn bound<T: PartialEq + ToString>(count: T, none: T) -> String {
    if count == none { "none".to_owned() } else { count.to_string() }
}

/// Says what routers take for true, as factors of what is.
fn belief(it: &Belief) -> String {
    let [floor, new_token, attention, context] = it.coefficients;
    let tokens = it.tokens;
    let steps = it.steps.map_or_else(String::new, |it| format!("steps of {} ms, ", it.floor_ms));
    format!(
        "{steps}floor × {floor}, new token × {new_token}, attention × {attention}, context × {context}, prompts × {tokens}"
    )
}
