//! `cargo xtask test`: everything that must hold before a change lands, in order of speed, by one
//! command that also installs what is missing. Every stage runs even after one has failed, so that
//! one run shows all that is wrong. One build profile serves them all.

mod counts;
mod install;

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;

use self::counts::{Runner, TestCounts};
use crate::{debian, dependencies, fuzz, layers, page, process, python, repo, tidy};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these stages, in their usual order
    #[arg(long, value_enum, value_name = "STAGE", value_delimiter = ',')]
    only: Vec<Stage>,
    /// Leave these stages out
    #[arg(long, value_enum, value_name = "STAGE", value_delimiter = ',')]
    skip: Vec<Stage>,
    /// How long each fuzz target runs
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    fuzz_seconds: u32,
}

/// The stages in the order they run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stage {
    Install,
    Format,
    Tidy,
    Layers,
    Dependencies,
    Clippy,
    Docs,
    Tests,
    Traces,
    Promtool,
    Doctests,
    Fuzz,
    Python,
    Page,
}

/// The search path, with Debian's promtool at its end for machines that have none.
fn with_promtool() -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    if process::works(Command::new("promtool").arg("--version")) {
        return Ok(path);
    }
    let folder = debian::unpack("prometheus")?.join("usr/bin");
    Ok(env::join_paths(env::split_paths(&path).chain([folder]))?)
}

/// Runs the stages that `args` leaves and closes with their counts.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut done: Vec<(Stage, TestCounts, Duration)> = Vec::new();
    for &stage in Stage::value_variants() {
        let wanted = args.only.is_empty() || args.only.contains(&stage);
        if wanted && !args.skip.contains(&stage) {
            println!("\n=== {} ===", stage.name());
            let began = Instant::now();
            let counts = stage.run(args).unwrap_or_else(|error| {
                println!("{error:#}");
                TestCounts::FAILED
            });
            done.push((stage, counts, began.elapsed()));
        }
    }
    close(&done)
}

impl Stage {
    fn name(self) -> String {
        self.to_possible_value().map(|it| it.get_name().to_owned()).unwrap_or_default()
    }

    fn run(self, args: &Args) -> Result<TestCounts> {
        match self {
            Self::Install => one(install::run()),
            Self::Format => command(cargo(&["fmt", "--all", "--check"])),
            Self::Tidy => one(tidy::run()),
            Self::Layers => one(layers::run()),
            Self::Dependencies => one(dependencies::run()),
            Self::Clippy => {
                // With what a default build leaves out; all other stages build the default.
                let what =
                    ["clippy", "--workspace", "--all-targets", "--features", "cleave/tokenizer"];
                process::must(&mut cargo(&[&what[..], &["--", "-D", "warnings"]].concat()))?;
                // And without what it has by default.
                let less = ["clippy", "--package", "cleave-io", "--no-default-features"];
                command(cargo(&[&less[..], &["--", "-D", "warnings"]].concat()))
            }
            Self::Docs => {
                let mut docs = cargo(&["doc", "--workspace", "--no-deps"]);
                docs.env("RUSTDOCFLAGS", "-D warnings");
                command(docs)
            }
            Self::Tests => counted(
                cargo(&["nextest", "run", "--workspace", "--no-fail-fast"]),
                Runner::Nextest,
            ),
            // Ignored elsewhere, because the full traces are no part of the repository.
            Self::Traces => {
                let flags = ["nextest", "run", "--workspace", "--no-fail-fast"];
                let only = ["--run-ignored", "only", "--filterset", "package(cleave-sim)"];
                println!("reads ../shared/traces; sim/data/README.md says where they are from");
                counted(cargo(&[flags, only].concat()), Runner::Nextest)
            }
            // Ignored elsewhere, because Prometheus' own checks need its tool.
            Self::Promtool => {
                let flags = ["nextest", "run", "--workspace", "--no-fail-fast"];
                let only = ["--run-ignored", "only", "--filterset", "test(promtool)"];
                let mut tests = cargo(&[flags, only].concat());
                tests.env("PATH", with_promtool()?);
                counted(tests, Runner::Nextest)
            }
            Self::Doctests => counted(cargo(&["test", "--workspace", "--doc"]), Runner::Doctest),
            Self::Fuzz => one(fuzz::run(&fuzz::Args::all(args.fuzz_seconds))),
            Self::Python => {
                process::must(&mut built_for_tests())?;
                let pytest = python::pytest(&python::tests(), &repo::debug_binary("cleave"))?;
                counted(pytest, Runner::Pytest)
            }
            // The types of its scripts, then all of it in a real browser.
            Self::Page => {
                page::check_types()?;
                process::must(&mut built_for_tests())?;
                counted(page::pytest(&repo::debug_binary("cleave"))?, Runner::Pytest)
            }
        }
    }
}

fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).current_dir(repo::root());
    cargo
}

/// Builds the binary as the tests do. A build for itself would have other features of the same crates, and
/// compile most of them again.
fn built_for_tests() -> Command {
    cargo(&["test", "--workspace", "--test", "it", "--no-run"])
}

/// Counts a check that passes or fails as a whole.
fn one(outcome: Result<()>) -> Result<TestCounts> {
    outcome.map(|()| TestCounts::PASSED)
}

fn command(mut command: Command) -> Result<TestCounts> {
    one(process::must(&mut command))
}

/// Runs a test runner and reads its counts off its closing lines.
fn counted(mut command: Command, runner: Runner) -> Result<TestCounts> {
    let (status, lines) = process::watch(&mut command)?;
    Ok(TestCounts::read(runner, &lines, status.success()))
}

/// Prints what each stage counted, and the totals as the last line.
fn close(done: &[(Stage, TestCounts, Duration)]) -> ExitCode {
    println!();
    let mut total = TestCounts::default();
    for (stage, counts, time) in done {
        let name = stage.name();
        println!(
            "{name:<12} {:>5} passed {:>3} failed {:>7.1} s",
            counts.passed,
            counts.failed,
            time.as_secs_f64()
        );
        total.add(*counts);
    }
    println!("\n{} passed, {} failed", total.passed, total.failed);
    if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
