//! What is to be simulated, as the user says it: a scenario file, with flags laid over it. Every
//! key is optional and unknown keys are refused with their place. Nothing is checked here beyond
//! form; `plan` settles it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Deserializer};

use super::routers::RouterPart;

/// A scenario file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scenario {
    pub(crate) seed: Option<u64>,
    pub(crate) seeds: Option<u64>,
    /// Names, or the one word `all`.
    pub(crate) policies: Vec<String>,
    pub(crate) slo: Option<String>,
    pub(crate) workload: WorkloadSection,
    pub(crate) fleet: Vec<ReplicaClass>,
    pub(crate) routers: RouterSection,
    /// The file that `cleave serve` would be started with.
    pub(crate) config: Option<PathBuf>,
    /// Which of that file's pools is played; the first unless said.
    pub(crate) pool: Option<String>,
    /// A file that `cleave calibrate` wrote, whose classes `fleet` may name.
    pub(crate) costs: Option<PathBuf>,
    /// The hardware that routers take all replicas to have, by its name; what each has unless said.
    pub(crate) believe: Option<String>,
    /// What of the router is turned off.
    pub(crate) without: Vec<RouterPart>,
    pub(crate) subset: SubsetSection,
    pub(crate) line: LineSection,
    pub(crate) contract: Vec<ContractLine>,
    pub(crate) fault: Vec<FaultLine>,
}

/// Whether requests wait at the routers; what is not said is as the router has it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LineSection {
    pub(crate) hold: Option<bool>,
    pub(crate) gate: Option<bool>,
    pub(crate) length_max: Option<usize>,
    pub(crate) kv_share: Option<f64>,
}

/// What a tenant may use.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContractLine {
    pub(crate) tenant: u32,
    pub(crate) mu_per_min: Option<f64>,
    pub(crate) tokens_per_min: Option<u64>,
    pub(crate) requests_per_min: Option<u64>,
    pub(crate) burst: Option<Span>,
}

/// What is played, and how.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WorkloadSection {
    pub(crate) traces: Vec<PathBuf>,
    /// The first trace says which client sends when, the second what.
    pub(crate) compose: bool,
    pub(crate) warmup: Option<PathBuf>,
    pub(crate) synthetic: Option<String>,
    pub(crate) format: Option<String>,
    pub(crate) r#loop: Option<LoopKind>,
    pub(crate) rate_scale: Option<f64>,
    pub(crate) from: Option<Span>,
    pub(crate) until: Option<Span>,
    pub(crate) requests_max: Option<u64>,
    pub(crate) prompt_tokens_max: Option<u32>,
    pub(crate) think_max: Option<Span>,
    pub(crate) sessions_per_second: Option<f64>,
    pub(crate) sessions_at_once: Option<u32>,
    pub(crate) share_tools: bool,
    /// The share of answers that come whole at their end.
    pub(crate) non_streaming: Option<f64>,
    /// A share of the work the fleet can do, in place of a rate.
    pub(crate) load: Option<f64>,
    /// A share of the KV the fleet has, in place of a number of sessions.
    pub(crate) kv_load: Option<f64>,
    pub(crate) class: Vec<ClassLine>,
    /// The class whose requests alone are played, when they would come among the others.
    pub(crate) only: Option<ClassName>,
    pub(crate) tenant: Vec<TenantLine>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LoopKind {
    Open,
    Closed,
}

/// A share of the sessions, or of the tenants of a composed workload, and what they are promised.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClassLine {
    pub(crate) class: ClassName,
    pub(crate) share: f64,
    pub(crate) deadline: Option<Span>,
}

/// A class by its name or its number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ClassName {
    Number(u8),
    Name(String),
}

/// A tenant, and its share of the sessions.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantLine {
    pub(crate) tenant: u32,
    pub(crate) share: f64,
}

/// A number of replicas of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReplicaClass {
    pub(crate) replicas: usize,
    /// A class of the file of costs, or what is built in.
    pub(crate) hardware: Option<String>,
    /// How much faster than the hardware was measured.
    pub(crate) speed: f64,
    pub(crate) kv_tokens: u32,
    pub(crate) block_tokens: u32,
    pub(crate) batched_tokens: u32,
    pub(crate) max_seqs: u32,
    pub(crate) weight: f64,
}

impl Default for ReplicaClass {
    fn default() -> Self {
        Self {
            replicas: 8,
            hardware: None,
            speed: 1.0,
            kv_tokens: 524_288,
            block_tokens: 64,
            batched_tokens: 8192,
            max_seqs: 256,
            weight: 1.0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RouterSection {
    pub(crate) count: Option<usize>,
    pub(crate) scrape_interval: Option<Span>,
    pub(crate) scrape_delay: Option<Span>,
    pub(crate) exchange_delay: Option<Span>,
    pub(crate) coefficients_off: Option<[f64; 4]>,
    pub(crate) tokens_off: Option<f64>,
    pub(crate) first_byte_timeout: Option<Span>,
    pub(crate) idle_timeout: Option<Span>,
}

/// How many replicas a workload may use; what is not said is as the router has it by default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SubsetSection {
    pub(crate) floor: Option<u32>,
    pub(crate) cap: Option<u32>,
    pub(crate) spill_max: Option<u32>,
    pub(crate) spill_after: Option<Span>,
}

/// One line of the script of faults.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultLine {
    pub(crate) at: Span,
    pub(crate) lasts: Option<Span>,
    pub(crate) kind: Kind,
    pub(crate) replica: Option<usize>,
    pub(crate) router: Option<usize>,
    pub(crate) tenant: Option<u32>,
    pub(crate) factor: Option<f64>,
    #[serde(default)]
    pub(crate) hangs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Crash,
    Hang,
    Slow,
    Freeze,
    Drain,
    Join,
    RestartRouter,
    Apart,
    Poison,
}

/// A time as people write it: `90s`, `100ms`, `1h 30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let time = humantime::parse_duration(&text);
        time.map(Self).map_err(|why| {
            serde::de::Error::custom(format!("{text:?} is no time, as \"90s\" is: {why}"))
        })
    }
}

impl Scenario {
    /// Reads a file; paths in it are relative to where it lies.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut scenario: Self =
            toml::from_str(&text).with_context(|| format!("{} is no scenario", path.display()))?;
        let base = path.parent().unwrap_or(Path::new(""));
        let workload = &mut scenario.workload;
        let played = workload.traces.iter_mut().chain(&mut workload.warmup);
        for file in played.chain(&mut scenario.config).chain(&mut scenario.costs) {
            *file = base.join(&*file);
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::*;

    fn refusal(text: &str) -> String {
        toml::from_str::<Scenario>(text).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place_and_the_known_ones() {
        let why = refusal("seed = 1\n[workload]\nrate_scle = 2.0\n");
        assert!(why.contains("line 3") && why.contains("rate_scale"), "{why}");
    }

    #[test]
    fn a_time_without_a_unit_is_refused_with_an_example() {
        let why = refusal("[routers]\nscrape_interval = \"100\"\n");
        assert!(why.contains("90s"), "{why}");
    }

    #[test]
    fn every_scenario_in_the_repository_is_one() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
        let files = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
        let files: Vec<_> =
            files.filter(|it| it.extension().is_some_and(|it| it == "toml")).collect();
        assert!(!files.is_empty());
        for file in files {
            let scenario = Scenario::read(&file).unwrap();
            Plan::settle(scenario).unwrap_or_else(|why| panic!("{}: {why:#}", file.display()));
        }
    }
}
