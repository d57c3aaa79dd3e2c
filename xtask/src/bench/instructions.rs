//! `cargo xtask bench instructions`: how many instructions a request and a streamed event take, counted by
//! callgrind. A count is the same however busy the machine is, so it tells one binary from another
//! where times cannot. The kernel's share is not in it. What the router does by the clock (probes, sweeps, samples)
//! is left out: the shorter of two runs waits until it has lasted as long as the longer, so that both do the
//! same of it, and only their requests differ.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::load;
use super::mock::{BenchMock, STREAM_CHUNKS};
use super::proxies::announced;
use crate::process::works;
use crate::repo;
use crate::server::Server;

/// Callgrind is some fifty times slower than the program alone.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Requests of the shorter run; the longer one has three times as many, and the difference counts.
const REQUESTS: u32 = 1000;
const STREAMS: u32 = 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A binary, built with --release; several are held against the first
    #[arg(long, value_name = "FILE", required = true)]
    cleave: Vec<PathBuf>,
    /// Count with these settings too: a file as `cleave serve --config` takes it, without pools
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

/// What is counted.
struct Case<'a> {
    name: &'static str,
    binary: &'a Path,
    config: Option<&'a Path>,
    streams: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let valgrind = works(Command::new("valgrind").arg("--version"));
    ensure!(valgrind, "valgrind is not installed; `apt-get install valgrind` brings it");
    let folder = repo::target_dir().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    println!("| binary | settings | thousand instructions a request of 1 KB | an event |");
    println!("| --- | --- | ---: | ---: |");
    let mut first = None;
    for binary in &args.cleave {
        let settings = std::iter::once(None).chain(args.config.iter().map(|it| Some(it.as_path())));
        for config in settings {
            let case = |name, streams| Case { name, binary, config, streams };
            let request = case("request", false).count(&folder)?;
            let event = case("event", true).count(&folder)?;
            let (to_request, to_event) = *first.get_or_insert((request, event));
            println!(
                "| {} | {} | {} | {} |",
                binary.display(),
                config.map_or("defaults".into(), |it| it.display().to_string()),
                beside(request, to_request),
                beside(event, to_event)
            );
        }
    }
    Ok(())
}

/// Writes a count in thousands, and how it compares.
fn beside(count: u64, first: u64) -> String {
    let thousands = |it: u64| f64::from(u32::try_from(it).unwrap_or(u32::MAX)) / 1e3;
    let (count, first) = (thousands(count), thousands(first));
    let change = (count / first - 1.0) * 100.0;
    if change.abs() < 0.05 { format!("{count:.2}") } else { format!("{count:.2} ({change:+.1} %)") }
}

impl Case<'_> {
    /// Counts the instructions of one request, or of one event of a stream.
    fn count(&self, folder: &Path) -> Result<u64> {
        let asked = if self.streams { STREAMS } else { REQUESTS };
        let (longer, lasted) = self.run(folder, 3 * asked, Duration::ZERO)?;
        let (shorter, _) = self.run(folder, asked, lasted)?;
        let more = longer.saturating_sub(shorter);
        let events = if self.streams { STREAM_CHUNKS } else { 1 };
        Ok(more / u64::from(2 * asked * events))
    }

    /// Counts the instructions of a whole run with `asked` requests that lasts as long as `lasts` at least; says how
    /// long it did.
    fn run(&self, folder: &Path, asked: u32, lasts: Duration) -> Result<(u64, Duration)> {
        let replica = BenchMock::start()?;
        let mut server = Server::start(self.name, &mut self.command(replica.address), folder)?;
        let address = server.wait_for(START_LIMIT, |lines| {
            announced(lines).filter(|&it| load::probe(it).unwrap_or(false))
        })?;
        let began = Instant::now();
        load::ask_one_by_one(address, self.streams, asked)?;
        thread::sleep(lasts.saturating_sub(began.elapsed()));
        let lasted = began.elapsed();
        let said = server.end()?;
        let line = said.lines().find(|it| it.contains("Collected :"));
        let line = line.with_context(|| format!("callgrind counted nothing:\n{said}"))?;
        Ok((line.rsplit(' ').next().unwrap_or_default().parse()?, lasted))
    }

    fn command(&self, replica: SocketAddr) -> Command {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(self.binary).arg("serve");
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.arg("--replica").arg(format!("http://{replica}"));
        if let Some(config) = self.config {
            command.arg("--config").arg(config);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_shown_beside_the_first() {
        assert_eq!(beside(81_600, 81_600), "81.60");
        assert_eq!(beside(81_600, 79_000), "81.60 (+3.3 %)");
        assert_eq!(beside(2_600, 2_640), "2.60 (-1.5 %)");
    }
}
