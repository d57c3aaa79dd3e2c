//! `cargo xtask fuzz`: libFuzzer on the targets in `core/fuzz`, for a bounded time. The coverage it
//! steers by needs code generation flags only, all of them stable; so this runs on the toolchain that
//! builds everything else. Without `unsafe` there is nothing for the sanitizers of a nightly to find.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};

use crate::process::must;
use crate::repo;

const TARGETS: [&str; 4] = ["peek", "meter", "brain", "cluster"];

/// What makes a program tell libFuzzer which branches an input took.
const FLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 --cfg fuzzing";

/// Larger bodies take the same branches and take longer.
const INPUT_BYTES_MAX: u32 = 4096;
const INPUT_SECONDS_MAX: u32 = 2;
const MEMORY_MB_MAX: u32 = 512;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this target
    #[arg(value_parser = TARGETS)]
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: u32,
}

impl Args {
    /// Asks for every target.
    pub(crate) fn all(seconds: u32) -> Self {
        Self { target: None, seconds }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let host = host()?;
    let build = repo::target_dir().join("fuzz");
    let crate_folder = repo::root().join("core/fuzz");
    must(
        Command::new("cargo")
            // Naming the target keeps the flags away from build scripts and macros.
            .args(["build", "--release", "--locked", "--target", &host, "--target-dir"])
            .arg(&build)
            .current_dir(&crate_folder)
            .env("RUSTFLAGS", FLAGS),
    )?;
    let wanted = |it: &&str| args.target.as_deref().is_none_or(|only| only == *it);
    let targets: Vec<&str> = TARGETS.into_iter().filter(wanted).collect();
    // Each uses one core.
    let at_once = thread::available_parallelism().map_or(1, NonZero::get);
    for targets in targets.chunks(at_once) {
        println!("fuzzing {} for {} s", targets.join(", "), args.seconds);
        let started: Vec<Fuzzer> = targets
            .iter()
            .map(|it| Fuzzer::start(it, &build, &host, args.seconds))
            .collect::<Result<_>>()?;
        for it in started {
            it.finish()?;
        }
    }
    Ok(())
}

/// One target that runs.
struct Fuzzer {
    target: String,
    artifacts: PathBuf,
    process: Child,
}

impl Fuzzer {
    fn start(target: &str, build: &Path, host: &str, seconds: u32) -> Result<Self> {
        let crate_folder = repo::root().join("core/fuzz");
        let corpus = folder(build.join("corpus").join(target))?;
        let artifacts = folder(build.join("artifacts").join(target))?;
        let process = Command::new(build.join(host).join("release").join(target))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
            .arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"))
            .arg(format!("-dict={}", crate_folder.join("json.dict").display()))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args(["-print_final_stats=1", "-verbosity=0"])
            // New inputs go to the first folder; the seeds are ours and stay as they are.
            .arg(corpus)
            .arg(crate_folder.join("seeds").join(target))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("run {target}"))?;
        Ok(Self { target: target.to_owned(), artifacts, process })
    }

    fn finish(self) -> Result<()> {
        let Self { target, artifacts, process } = self;
        let output = process.wait_with_output().with_context(|| format!("run {target}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("{said}\n{target} fell over; the input is in {}", artifacts.display());
        }
        println!("{target}");
        for figure in said.lines().filter_map(|it| it.strip_prefix("stat::")) {
            println!("  {figure}");
        }
        Ok(())
    }
}

fn folder(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
    Ok(path)
}

/// Asks the compiler what it builds for by default.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("run rustc")?;
    ensure!(output.status.success(), "rustc does not say what its host is");
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|it| it.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say what its host is")
}
