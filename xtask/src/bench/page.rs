//! `cargo xtask bench page`: what a page that is looked at takes of the router, with hundreds of replicas and a
//! thousand tenants. The same router is measured while no page looks and while one does, in turns; the
//! difference is what the page takes.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::meter;
use super::mock::{BenchMock, MODEL};
use crate::repo;
use crate::server::Server;

const START_LIMIT: Duration = Duration::from_secs(60);
/// For replicas to come up, and for the first frames, which say more than later ones.
const SETTLE: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary, built with --release
    #[arg(long, value_name = "FILE")]
    cleave: PathBuf,
    #[arg(long, default_value_t = 512)]
    replicas: u32,
    #[arg(long, default_value_t = 1_000)]
    tenants: u32,
    /// How long each turn is measured, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How often no page looks and then one does
    #[arg(long, default_value_t = 5)]
    turns: u32,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.cleave.exists(), "{} is not there: build it", args.cleave.display());
    ensure!(0 < args.seconds && 0 < args.turns, "--seconds and --turns must be 1 or more");
    _ = rlimit::increase_nofile_limit(u64::MAX);
    let folder = repo::target_dir().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let mocks: Vec<BenchMock> =
        (0..args.replicas).map(|_| BenchMock::start()).collect::<Result<_, _>>()?;
    let config = folder.join("page.toml");
    fs::write(&config, settings(&mocks, args.tenants))?;
    let mut command = Command::new(&args.cleave);
    command.arg("serve").arg("--config").arg(&config);
    let mut server = Server::start("page", &mut command, &folder)?;
    let admin = server.wait_for(START_LIMIT, admin_of)?;
    thread::sleep(SETTLE);
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..args.turns {
        alone.push(core_percent(&server, args.seconds)?);
        let page = PageReader::open(admin)?;
        thread::sleep(SETTLE);
        page.bytes.store(0, Relaxed);
        watched.push(core_percent(&server, args.seconds)?);
        bytes = page.close()?;
    }
    let (alone, watched) = (median(&mut alone), median(&mut watched));
    let kb_per_s = f64::from(bytes) / 1e3 / Duration::from_secs(args.seconds).as_secs_f64();
    println!("| replicas | tenants | router alone | with a page | the page takes | it is told |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    println!(
        "| {} | {} | {alone:.2} % of a core | {watched:.2} % | {:.2} % | {kb_per_s:.0} KB/s |",
        args.replicas,
        args.tenants,
        watched - alone,
    );
    Ok(())
}

/// Writes the configuration. Replicas are probed seldom: what is measured is the page, and probes come in bursts.
fn settings(mocks: &[BenchMock], tenants: u32) -> String {
    let mut text = String::from(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[health]\ninterval = \"5s\"\nreport_interval = \"60s\"\n",
    );
    for it in 0..tenants {
        _ = write!(
            text,
            "[[tenants]]\nname = \"tenant-{it}\"\nkey_sha256 = [\"{it:064x}\"]\ncontract = {{ mu_per_min = 100.0 }}\n"
        );
    }
    _ = write!(text, "[[pools]]\nname = \"chat\"\nmodels = [\"{MODEL}\"]\nreplicas = [\n");
    for it in mocks {
        _ = writeln!(text, "  {{ url = \"http://{}\" }},", it.address);
    }
    text.push_str("]\n");
    text
}

fn admin_of(lines: &[&str]) -> Option<SocketAddr> {
    let line = lines.iter().find_map(|it| it.split_once("admin on http://"))?.1;
    line.split([',', ' ']).next()?.parse().ok()
}

/// Measures which share of a core the router takes.
fn core_percent(server: &Server, seconds: u64) -> Result<f64> {
    let before = meter::cpu_time(server.pid())?;
    let span = Duration::from_secs(seconds);
    thread::sleep(span);
    let spent = meter::cpu_time(server.pid())?.saturating_sub(before);
    Ok(spent.as_secs_f64() / span.as_secs_f64() * 100.0)
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// Reads the feed as a page does, and counts its bytes.
struct PageReader {
    stream: TcpStream,
    bytes: Arc<AtomicU32>,
    thread: JoinHandle<()>,
}

impl PageReader {
    fn open(admin: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(admin)?;
        write!(stream, "GET /live HTTP/1.1\r\nhost: {admin}\r\n\r\n")?;
        let bytes = Arc::new(AtomicU32::new(0));
        let (mut reader, counted) = (stream.try_clone()?, Arc::clone(&bytes));
        let thread = thread::spawn(move || {
            let mut piece = vec![0; 1 << 16];
            while let Ok(read) = reader.read(&mut piece) {
                if read == 0 {
                    break;
                }
                counted.fetch_add(u32::try_from(read).unwrap_or(u32::MAX), Relaxed);
            }
        });
        Ok(Self { stream, bytes, thread })
    }

    /// Stops and says how much was told.
    fn close(self) -> Result<u32> {
        let bytes = self.bytes.load(Relaxed);
        self.stream.shutdown(Shutdown::Both)?;
        ensure!(self.thread.join().is_ok(), "the reader of the feed ended badly");
        ensure!(0 < bytes, "the router told the page nothing");
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_port_is_read_off_what_the_router_says() {
        let line = "cleave listening on http://127.0.0.1:1, admin on http://127.0.0.1:2";
        assert_eq!(admin_of(&["", line]), Some("127.0.0.1:2".parse().unwrap()));
        assert_eq!(admin_of(&["nothing"]), None);
    }

    #[test]
    fn a_median_is_the_middle_one() {
        assert!((median(&mut [3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
    }
}
