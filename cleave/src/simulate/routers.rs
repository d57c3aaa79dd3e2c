//! What the simulated routers run: what `cleave serve` runs, by the same defaults or from the same
//! file, but for what the scenario changes or turns off.

use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use cleave_core::brain::{self, SubsetSettings};
use cleave_core::domain::Promise;
use cleave_io::config::{self, Flags};
use cleave_sim::measure::Slo;
use serde::Deserialize;

use super::scenario::{LineSection, Scenario, SubsetSection};

/// A part of the router that can be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RouterPart {
    /// Holding requests at the router while every replica is past its knee
    Hold,
    /// Letting new sessions wait while the fleet's KV is full
    Gate,
    /// A bounded set of replicas for each workload
    Subsets,
    /// Keeping workloads that kill replicas apart
    Quarantine,
    /// Learning what work takes from what streams show
    Learning,
}

/// Settles what every router runs. Without a file of its own it promises what is asked of it.
pub(super) fn settle(scenario: &Scenario, slo: Slo) -> anyhow::Result<brain::Settings> {
    let mut base = match &scenario.config {
        Some(file) => of_file(file, scenario.pool.as_deref())?,
        None => brain::Settings::default(),
    };
    if scenario.config.is_none() && slo != Slo::default() {
        let promise = Promise { first_token: Some(slo.ttft), token_gap: Some(slo.tpot) };
        base.line.classes = base.line.classes.promising(promise);
    }
    let mut settings = brain::Settings {
        subsets: subsets(base.subsets, scenario.subset)?,
        line: line(base.line, scenario.line),
        ..base
    };
    for part in &scenario.without {
        match part {
            RouterPart::Hold => settings.line.holds = false,
            RouterPart::Gate => settings.line.gates = false,
            RouterPart::Subsets => settings.subsets = SubsetSettings::undivided(),
            RouterPart::Quarantine => settings.quarantine.enabled = false,
            RouterPart::Learning => settings.learns_costs = false,
        }
    }
    Ok(settings)
}

/// Reads what `cleave serve` would run for a pool of that file.
pub(crate) fn of_file(file: &Path, pool: Option<&str>) -> anyhow::Result<brain::Settings> {
    let config = config::load(Some(file), config::environment(), Flags::default())?;
    let names = || config.pools.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match pool {
        Some(name) => config.pools.iter().find(|it| it.name == name),
        None => config.pools.first(),
    };
    let found = found.with_context(|| {
        format!("{} has no pool {:?}; it has: {}", file.display(), pool.unwrap_or(""), names())
    })?;
    Ok(found.brain.clone())
}

fn line(base: brain::LineSettings, it: LineSection) -> brain::LineSettings {
    let mut line = base;
    line.holds = it.hold.unwrap_or(line.holds);
    line.gates = it.gate.unwrap_or(line.gates);
    line.limits.count_max = it.length_max.unwrap_or(line.limits.count_max);
    line.gate.kv_share = it.kv_share.unwrap_or(line.gate.kv_share);
    line
}

fn subsets(base: SubsetSettings, it: SubsetSection) -> anyhow::Result<SubsetSettings> {
    let (floor, cap) = (it.floor.or(base.floor), it.cap.unwrap_or(base.cap));
    let sound = floor.is_none_or(|floor| 0 < floor && floor <= cap);
    ensure!(sound, "subset: floor must be 1 or more and no more than cap");
    Ok(SubsetSettings {
        floor,
        cap,
        spill_max: it.spill_max.or(base.spill_max),
        spill_after: it.spill_after.map_or(base.spill_after, |it| it.0),
        ..base
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_routers_run_what_serve_runs_without_one() {
        let replicas = vec!["http://127.0.0.1:1".to_owned()];
        let flags = Flags { replicas, ..Flags::default() };
        let served = config::load(None, std::iter::empty(), flags).unwrap();
        let simulated = settle(&Scenario::default(), Slo::default()).unwrap();
        assert_eq!(served.pools[0].brain, simulated);
        assert_eq!(cleave_sim::world::WorldSettings::default().brain, simulated);
    }

    #[test]
    fn routers_promise_what_is_asked_of_them_unless_their_file_says_otherwise() {
        let slo: Slo = "ttft=1s,tpot=30ms".parse().unwrap();
        let classes = settle(&Scenario::default(), slo).unwrap().line.classes;
        let promise = classes.promise(classes.default_id());
        assert_eq!((promise.first_token, promise.token_gap), (Some(slo.ttft), Some(slo.tpot)));
    }

    #[test]
    fn a_part_is_turned_off_by_its_name_and_a_section_wins_over_the_default() {
        let scenario: Scenario = toml::from_str(
            "without = [\"hold\", \"subsets\", \"quarantine\"]\n[line]\ngate = true",
        )
        .unwrap();
        let settings = settle(&scenario, Slo::default()).unwrap();
        assert!(!settings.line.holds && settings.line.gates && !settings.quarantine.enabled);
        assert_eq!(settings.subsets, SubsetSettings::undivided());
    }

    #[test]
    fn a_file_of_the_router_is_played_as_it_stands() {
        let file = std::env::temp_dir().join(format!("cleave-{}.toml", uuid::Uuid::new_v4()));
        let text = "policy = \"session\"\nline.hold = false\nreplicas = [\"http://127.0.0.1:1\"]\n";
        std::fs::write(&file, text).unwrap();
        let scenario = Scenario { config: Some(file.clone()), ..Scenario::default() };
        let settings = settle(&scenario, Slo::default()).unwrap();
        assert_eq!(settings.policy, cleave_core::policy::PolicyKind::SESSION);
        assert!(!settings.line.holds);
        let wrong = Scenario { pool: Some("other".to_owned()), ..scenario };
        let refusal = settle(&wrong, Slo::default()).unwrap_err().to_string();
        std::fs::remove_file(file).unwrap();
        assert!(refusal.contains("has no pool \"other\""), "{refusal}");
    }
}
