//! `cleave scale`: how many replicas each pool should have and why, for people to read. It asks a running router's
//! admin port.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context as _;
use serde::Deserialize;

use crate::admin::AdminPort;

/// Show how many replicas each pool should have, and why
///
/// Pools without a scaling section in their configuration are not listed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    port: AdminPort,
    /// Print what the router answers, as JSON
    #[arg(long)]
    json: bool,
    /// How many lines of the past to show
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    history: usize,
}

#[derive(Debug, Deserialize)]
struct ScalePage {
    pools: Vec<ScaledPool>,
}

#[derive(Debug, Deserialize)]
struct ScaledPool {
    name: String,
    mode: String,
    min: u64,
    max: u64,
    wanted: Option<u64>,
    why: Option<String>,
    leads: bool,
    terms: Option<Terms>,
    victims: Vec<String>,
    last_step: Option<Step>,
    replica_hours: f64,
    cost: Option<f64>,
    history: Vec<Point>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Terms {
    demand_mu_per_min: f64,
    spread_mu_per_min: f64,
    forecast_mu_per_min: f64,
    held_mu: f64,
    refused_mu: f64,
    beyond_contract_mu_per_min: f64,
    capacity_mu_per_min: Option<f64>,
    kv_tokens_needed: u64,
    kv_tokens_per_replica: Option<u64>,
    needed: Needed,
    ready: u64,
    starting: u64,
    unhealthy: u64,
    coming: u64,
    overdue: u64,
    start_up_seconds: f64,
    cool_down_seconds: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Needed {
    forecast: u64,
    backlog: u64,
    memory: u64,
    floor: u64,
}

#[derive(Debug, Deserialize)]
struct Step {
    at: String,
    replicas: u64,
    victims: Vec<String>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Point {
    at: String,
    wanted: u64,
    ready: u64,
    starting: u64,
    demand_mu_per_min: f64,
    reason: String,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let page = runtime.block_on(self.port.client()?.read("/scale"))?;
        let mut out = std::io::stdout();
        if self.json {
            out.write_all(&page)?;
            return Ok(writeln!(out)?);
        }
        let all: ScalePage = serde_json::from_slice(&page).context("read the router's answer")?;
        if all.pools.is_empty() {
            writeln!(out, "no pool is scaled: add [pools.scaling] to one in the configuration")?;
        }
        for pool in &all.pools {
            write!(out, "{}", table(pool, self.history))?;
        }
        Ok(())
    }
}

/// Writes one pool.
fn table(pool: &ScaledPool, history: usize) -> String {
    let mut out = String::new();
    write_pool(&mut out, pool, history).expect("writing to a string does not fail");
    out
}

fn write_pool(out: &mut String, pool: &ScaledPool, history: usize) -> std::fmt::Result {
    let ScaledPool { name, mode, min, max, .. } = pool;
    let (Some(wanted), Some(terms)) = (pool.wanted, &pool.terms) else {
        return writeln!(out, "pool {name} · {mode}, {min} to {max}: not looked at yet");
    };
    let led = if pool.leads { "" } else { ", another router leads" };
    writeln!(out, "pool {name} · {mode}, {min} to {max}{led}")?;
    let Terms { ready, starting, unhealthy, coming, overdue, .. } = terms;
    write!(out, "  wanted {wanted}, ready {ready}, starting {starting}")?;
    for (count, word) in [(unhealthy, "out"), (coming, "coming"), (overdue, "overdue")] {
        if 0 < *count {
            write!(out, ", {word} {count}")?;
        }
    }
    writeln!(out, "\n  {}", pool.why.as_deref().unwrap_or_default())?;
    write_terms(out, terms)?;
    if !pool.victims.is_empty() {
        writeln!(out, "  draining: {}", pool.victims.join(", "))?;
    }
    if let Some(step) = &pool.last_step {
        let how = step.error.as_ref().map_or("done".to_owned(), |it| format!("failed: {it}"));
        let without = if step.victims.is_empty() {
            String::new()
        } else {
            format!(" without {}", step.victims.join(", "))
        };
        writeln!(out, "  last step {}: {} replicas{without}, {how}", step.at, step.replicas)?;
    }
    let cost = pool.cost.map(|it| format!(", {it:.2} spent")).unwrap_or_default();
    writeln!(out, "  {:.2} replica hours since the router started{cost}", pool.replica_hours)?;
    for it in pool.history.iter().rev().take(history).rev() {
        let Point { at, wanted, ready, starting, demand_mu_per_min, reason } = it;
        let row = format!("wanted {wanted:>3}  ready {ready:>3}  starting {starting:>3}");
        writeln!(out, "    {at}  {row}  {demand_mu_per_min:>8.1} MU/min  {reason}")?;
    }
    Ok(())
}

fn write_terms(out: &mut String, it: &Terms) -> std::fmt::Result {
    let capacity = it.capacity_mu_per_min.map_or("unknown".to_owned(), |it| format!("{it:.1}"));
    let memory = it.kv_tokens_per_replica.map_or("unknown".to_owned(), |it| it.to_string());
    let (forecast, start_up) = (it.forecast_mu_per_min, it.start_up_seconds);
    let rows = [
        (
            "forecast",
            it.needed.forecast,
            format!(
                "{forecast:.1} MU/min in {start_up:.0} s ({:.1} now, spread {:.1}), {capacity} a replica",
                it.demand_mu_per_min, it.spread_mu_per_min
            ),
        ),
        (
            "backlog",
            it.needed.backlog,
            format!("{:.2} MU wait, {:.2} MU refused lately", it.held_mu, it.refused_mu),
        ),
        (
            "memory",
            it.needed.memory,
            format!("{} KV tokens of live sessions, {memory} a replica", it.kv_tokens_needed),
        ),
        ("floor", it.needed.floor, "subsets that operators asked for".to_owned()),
    ];
    for (term, replicas, figures) in rows {
        writeln!(out, "    {term:<9} {replicas:>4}  {figures}")?;
    }
    if 0.0 < it.beyond_contract_mu_per_min {
        let beyond = it.beyond_contract_mu_per_min;
        writeln!(out, "    beyond contracts: {beyond:.1} MU/min, which buy no replicas")?;
    }
    if 0.0 < it.cool_down_seconds {
        writeln!(out, "    fewer in {:.0} s at the soonest", it.cool_down_seconds)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_shown_with_its_number_its_reason_and_every_term() {
        let page = r#"{"name":"chat","mode":"command","min":0,"max":8,"wanted":3,"reason":"forecast",
            "why":"the work needs this many","leads":true,"victims":["http://a:1"],"steps_done":1,
            "steps_failed":0,"replica_hours":1.5,"price_per_hour":2.0,"cost":3.0,
            "terms":{"demand_mu_per_min":200.0,"spread_mu_per_min":40.0,"forecast_mu_per_min":240.0,
                "held_mu":1.0,"refused_mu":0.0,"beyond_contract_mu_per_min":9.0,
                "capacity_mu_per_min":100.0,"kv_tokens_needed":1000,"kv_tokens_per_replica":null,
                "needed":{"forecast":3,"backlog":1,"memory":0,"floor":0,"enough":3},"ready":2,
                "starting":1,"unhealthy":0,"coming":1,"overdue":0,"start_up_seconds":45.0,
                "cool_down_seconds":0.0},
            "last_step":{"at":"2026-01-01T00:00:00Z","replicas":3,"victims":[],"error":null},
            "history":[{"at":"2026-01-01T00:00:00Z","wanted":3,"reason":"forecast","ready":2,
                "starting":1,"demand_mu_per_min":200.0,"held_mu":1.0}]}"#;
        let shown = table(&serde_json::from_str(page).unwrap(), 10);
        for part in [
            "pool chat · command, 0 to 8\n  wanted 3, ready 2, starting 1, coming 1\n",
            "forecast     3  240.0 MU/min in 45 s (200.0 now, spread 40.0), 100.0 a replica",
            "memory       0  1000 KV tokens of live sessions, unknown a replica",
            "beyond contracts: 9.0 MU/min",
            "draining: http://a:1",
            "last step 2026-01-01T00:00:00Z: 3 replicas, done",
            "1.50 replica hours since the router started, 3.00 spent",
            "wanted   3  ready   2  starting   1     200.0 MU/min  forecast",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
    }

    #[test]
    fn a_pool_that_was_not_looked_at_says_so() {
        let page = r#"{"name":"a","mode":"advise","min":1,"max":2,"wanted":null,"why":null,"leads":false,
            "victims":[],"replica_hours":0.0,"cost":null,"terms":null,"last_step":null,"history":[]}"#;
        let shown = table(&serde_json::from_str(page).unwrap(), 1);
        assert_eq!(shown, "pool a · advise, 1 to 2: not looked at yet\n");
    }
}
