//! The flags of `cleave simulate`. Each is laid over the scenario file, if one is given; the defaults
//! are the plan's, so that they exist once.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::ensure;

use super::routers::RouterPart;
use super::scenario::{ClassName, LoopKind, ReplicaClass, Scenario, Span};

/// What to simulate.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::doc_markdown,
    reason = "this text is shown on a terminal, where backticks are noise"
)]
pub(crate) struct What {
    /// A scenario file (see docs/guide/simulator.md); flags given beside it win
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// A recorded workload, plain or gzip; its format is told by its first line. Give two with --compose
    #[arg(long = "trace", value_name = "FILE", num_args = 1..)]
    traces: Vec<PathBuf>,
    /// Play the tenants of the first trace (ServeGen) over the content of the second
    #[arg(long)]
    compose: bool,
    /// Play this trace first, unmeasured
    #[arg(long, value_name = "FILE")]
    warmup: Option<PathBuf>,
    /// A generated workload: b2b-saas, smg-600-prefixes, code-generation, multi-turn, agentic, heavy-tail
    #[arg(long, value_name = "PRESET", conflicts_with = "traces")]
    synthetic: Option<String>,
    /// The traces' format, when their first line does not tell
    #[arg(long, value_name = "NAME")]
    format: Option<String>,
    /// Whether requests come when they were recorded, or after the one before has ended
    /// [default: closed for recorded sessions, open otherwise]
    #[arg(long = "loop", value_enum)]
    pace: Option<LoopKind>,
    /// Play this many times as fast; for sessions, start this many times as often
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    rate_scale: Option<f64>,
    /// Bring this share of the work the fleet can do, by the cost model with an endless cache
    #[arg(
        long,
        value_name = "SHARE",
        conflicts_with = "rate_scale",
        allow_negative_numbers = true
    )]
    load: Option<f64>,
    /// Play the trace from here, in trace time
    #[arg(long, value_name = "TIME", value_parser = span)]
    from: Option<Span>,
    /// Play the trace up to here, in trace time
    #[arg(long, value_name = "TIME", value_parser = span)]
    until: Option<Span>,
    /// Stop after this many requests
    #[arg(long, value_name = "COUNT")]
    requests: Option<u64>,
    /// Leave longer prompts out; sessions end where they outgrow it
    #[arg(long, value_name = "TOKENS")]
    prompt_tokens_max: Option<u32>,
    /// Cut longer pauses of sessions to this
    #[arg(long, value_name = "TIME", value_parser = span)]
    think_max: Option<Span>,
    /// Start this many sessions a second, where no start is recorded
    #[arg(long, value_name = "RATE", conflicts_with = "sessions_at_once")]
    sessions_per_second: Option<f64>,
    /// Keep this many sessions going
    #[arg(long, value_name = "COUNT")]
    sessions_at_once: Option<u32>,
    /// Keep as many sessions going as fill this share of the fleet's KV with their longest prompts
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["sessions_at_once", "sessions_per_second"])]
    kv_load: Option<f64>,
    /// Let Claude Code sessions with equal tools share them
    #[arg(long)]
    share_tools: bool,
    /// Play the requests of this class alone, when they would come among the others
    #[arg(long, value_name = "CLASS")]
    only: Option<String>,
    /// Let this share of the answers come whole at their end, as without "stream": true [default: 0]
    #[arg(long, value_name = "SHARE")]
    non_streaming: Option<f64>,
    /// Policies to compare, with commas between them, or all [default: priced,session,round_robin]
    #[arg(long = "policy", value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<String>,
    /// Run what `cleave serve` would run with this file [default: what it runs without one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The pool of that file that is played [default: its first]
    #[arg(long, value_name = "NAME", requires = "config")]
    pool: Option<String>,
    /// Turn parts of the router off, with commas between them
    #[arg(long, value_enum, value_name = "PARTS", value_delimiter = ',')]
    without: Vec<RouterPart>,
    /// Let new sessions wait while the fleet's KV is full, which is off by default
    #[arg(long)]
    gate: bool,
    /// The share of the fleet's KV that sessions may fill before new ones wait [default: 1]
    #[arg(long, value_name = "SHARE")]
    kv_share: Option<f64>,
    /// What a good request keeps [default: ttft=5s,tpot=80ms]
    #[arg(long, value_name = "PROMISES")]
    slo: Option<String>,
    /// Where chance begins; the same seed gives the same bytes [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// Run this many seeds, from --seed on, and give intervals of 95% confidence
    #[arg(long, value_name = "COUNT")]
    seeds: Option<u64>,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// The fleet, when no scenario file describes it.
#[derive(Clone, Debug, clap::Args)]
struct FleetArgs {
    /// Replicas of one kind; for sweep also a range, as in 2..16 [default: 8]
    #[arg(long, value_name = "COUNT")]
    replicas: Option<ReplicaRange>,
    /// The step times they have: llama-8b or llama-70b, or a class of --costs [default: the first
    /// class of --costs, or llama-8b]
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,
    /// How many times as fast as that they are [default: 1]
    #[arg(long, value_name = "FACTOR")]
    speed: Option<f64>,
    /// The step times that routers take all replicas to have [default: those they have]
    #[arg(long, value_name = "NAME")]
    believe: Option<String>,
    /// A file of coefficients, as `cleave calibrate` writes it
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Room in a replica's KV cache [default: 524288]
    #[arg(long, value_name = "TOKENS")]
    kv_tokens: Option<u32>,
    /// Tokens in a block of the KV cache [default: 64]
    #[arg(long, value_name = "TOKENS")]
    block_tokens: Option<u32>,
    /// Tokens computed in one step at most [default: 8192]
    #[arg(long, value_name = "TOKENS")]
    batched_tokens: Option<u32>,
    /// Sequences running at once at most [default: 256]
    #[arg(long, value_name = "COUNT")]
    max_seqs: Option<u32>,
    /// Routers beside each other, each with its own view [default: 1]
    #[arg(long, value_name = "COUNT")]
    routers: Option<usize>,
    /// Time between two readings of a replica's metrics [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = span)]
    scrape_interval: Option<Span>,
    /// Time from a reading to its arrival [default: 20ms]
    #[arg(long, value_name = "TIME", value_parser = span)]
    scrape_delay: Option<Span>,
    /// Let several routers tell each other what they do, which takes this long [default: never]
    #[arg(long, value_name = "TIME", value_parser = span)]
    exchange_delay: Option<Span>,
}

/// A number of replicas, or for `sweep` a range of them, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaRange {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

impl FromStr for ReplicaRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let last = last.strip_prefix('=').unwrap_or(last);
        let wrong =
            || format!("{text:?} is no number of replicas, as 8 is, or a range, as 2..16 is");
        let number = |it: &str| it.trim().parse::<usize>().map_err(|_| wrong());
        let range = Self { first: number(first)?, last: number(last)? };
        let is_range = range.first != range.last;
        let is_sound = !is_range || (0 < range.first && range.first < range.last);
        if is_sound && range.last <= REPLICAS_MAX { Ok(range) } else { Err(wrong()) }
    }
}

/// The largest fleet that is simulated.
const REPLICAS_MAX: usize = 4096;

fn span(text: &str) -> Result<Span, humantime::DurationError> {
    humantime::parse_duration(text).map(Span)
}

impl What {
    /// The range of replicas that is asked for, where it is more than one number.
    pub(crate) fn replica_range(&self) -> Option<ReplicaRange> {
        self.fleet.replicas.filter(|it| it.first < it.last)
    }

    /// Refuses a range of replicas where one number is wanted.
    pub(crate) fn refuse_range(&self) -> anyhow::Result<()> {
        let is_one = self.replica_range().is_none();
        ensure!(is_one, "a range of replicas is for `cleave simulate sweep`; give one number");
        Ok(())
    }

    /// Reads the scenario file, if there is one, and lays the flags over it.
    pub(crate) fn scenario(self) -> anyhow::Result<Scenario> {
        let mut scenario = match &self.scenario {
            Some(path) => Scenario::read(path)?,
            None => Scenario::default(),
        };
        self.fleet.lay_over(&mut scenario);
        let workload = &mut scenario.workload;
        if !self.traces.is_empty() {
            workload.traces = self.traces;
            workload.synthetic = None;
        }
        if self.synthetic.is_some() {
            workload.traces.clear();
        }
        workload.compose |= self.compose;
        workload.share_tools |= self.share_tools;
        lay(&mut workload.warmup, self.warmup);
        lay(&mut workload.synthetic, self.synthetic);
        lay(&mut workload.format, self.format);
        lay(&mut workload.r#loop, self.pace);
        if self.rate_scale.is_some() || self.load.is_some() {
            (workload.rate_scale, workload.load) = (self.rate_scale, self.load);
        }
        lay(&mut workload.from, self.from);
        lay(&mut workload.until, self.until);
        lay(&mut workload.requests_max, self.requests);
        lay(&mut workload.prompt_tokens_max, self.prompt_tokens_max);
        lay(&mut workload.think_max, self.think_max);
        let sessions = self.sessions_per_second.is_some() || self.sessions_at_once.is_some();
        if sessions || self.kv_load.is_some() {
            workload.kv_load = self.kv_load;
            workload.sessions_per_second = self.sessions_per_second;
            workload.sessions_at_once = self.sessions_at_once;
        }
        lay(&mut workload.non_streaming, self.non_streaming);
        lay(&mut workload.only, self.only.map(ClassName::Name));
        if !self.policies.is_empty() {
            scenario.policies = self.policies;
        }
        lay(&mut scenario.config, self.config);
        lay(&mut scenario.pool, self.pool);
        scenario.without.extend(self.without);
        lay(&mut scenario.line.gate, self.gate.then_some(true));
        lay(&mut scenario.line.kv_share, self.kv_share);
        lay(&mut scenario.slo, self.slo);
        lay(&mut scenario.seed, self.seed);
        lay(&mut scenario.seeds, self.seeds);
        Ok(scenario)
    }
}

impl FleetArgs {
    fn lay_over(self, scenario: &mut Scenario) {
        if let Some(replicas) = self.replicas {
            scenario.fleet.truncate(1);
            scenario.fleet.resize(1, ReplicaClass::default());
            scenario.fleet[0].replicas = replicas.first;
        } else if scenario.fleet.is_empty() {
            scenario.fleet.push(ReplicaClass::default());
        }
        for class in &mut scenario.fleet {
            lay(&mut class.hardware, self.hardware.clone());
            class.speed = self.speed.unwrap_or(class.speed);
            class.kv_tokens = self.kv_tokens.unwrap_or(class.kv_tokens);
            class.block_tokens = self.block_tokens.unwrap_or(class.block_tokens);
            class.batched_tokens = self.batched_tokens.unwrap_or(class.batched_tokens);
            class.max_seqs = self.max_seqs.unwrap_or(class.max_seqs);
        }
        lay(&mut scenario.costs, self.costs);
        lay(&mut scenario.routers.count, self.routers);
        lay(&mut scenario.believe, self.believe);
        lay(&mut scenario.routers.scrape_interval, self.scrape_interval);
        lay(&mut scenario.routers.scrape_delay, self.scrape_delay);
        lay(&mut scenario.routers.exchange_delay, self.exchange_delay);
    }
}

fn lay<T>(under: &mut Option<T>, over: Option<T>) {
    if over.is_some() {
        *under = over;
    }
}
