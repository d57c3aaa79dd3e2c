//! `cargo xtask bench mock-agreement`: `cleave mock-replica` behind HTTP in real time, against
//! `cleave simulate` in virtual time, on one list of arrivals. Both run one engine; what can differ is
//! what lies around it: timers, sockets, the machine's scheduler. So it belongs on a quiet machine, and
//! in no test; a test of the two drivers without a clock is in `cleave/src/mock/agreement.rs`.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::http1::Connection;
use crate::process::shown;
use crate::repo;
use crate::server::Server;

const TOKEN_BYTES: usize = 4;
const BLOCK_TOKENS: usize = 16;
const GROUPS: u64 = 30;
const PREFIX_TOKENS: usize = 2_000;
const PROMPT_TOKENS: usize = 5_000;
const OUTPUT_TOKENS: u32 = 120;
/// A timer of the runtime ticks once a millisecond, and the loopback takes some time too.
const ALLOWED_S: f64 = 0.002;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary, built with --release
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// How many requests to send
    #[arg(long, default_value_t = 360)]
    requests: u32,
    /// How many of them come in a second
    #[arg(long, default_value_t = 6.0)]
    per_second: f64,
    /// How far apart a quantile may be, as a share of the simulated one
    #[arg(long, default_value_t = 0.05)]
    within: f64,
    /// Where chance begins
    #[arg(long, default_value_t = 9)]
    seed: u64,
}

/// One request of the list.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: Duration,
    group: u64,
    number: u64,
}

#[derive(Deserialize)]
struct AgreementDocument {
    runs: Vec<SimulatedRun>,
}

#[derive(Deserialize)]
struct SimulatedRun {
    ttft_s: Quantiles,
}

/// Times to the first token, in seconds.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Quantiles {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = repo::target_dir().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let cleave = args.cleave.clone().unwrap_or_else(|| repo::debug_binary("cleave"));
    let arrivals = draw(args);
    let simulated = simulate(&cleave, &folder, &arrivals)?;
    let real = play(&cleave, &folder, &arrivals)?;
    println!("| time to first token, s | mean | p50 | p90 | p99 |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for (name, it) in [("simulated", simulated), ("over HTTP, in real time", real)] {
        println!("| {name} | {:.4} | {:.4} | {:.4} | {:.4} |", it.mean, it.p50, it.p90, it.p99);
    }
    let pairs = [
        ("mean", simulated.mean, real.mean),
        ("p50", simulated.p50, real.p50),
        ("p90", simulated.p90, real.p90),
        ("p99", simulated.p99, real.p99),
    ];
    for (name, simulated, real) in pairs {
        let off = real - simulated;
        println!("{name}: {:+.1} % ({:+.1} ms)", off / simulated * 100.0, off * 1e3);
        ensure!(
            off.abs() <= args.within * simulated + ALLOWED_S,
            "the {name} differs by more than {} of the simulated one",
            args.within
        );
    }
    Ok(())
}

/// Draws the arrivals: at random in time, each in one of several groups that share a prefix.
fn draw(args: &Args) -> Vec<Arrival> {
    let mut state = args.seed ^ 0x9E37_79B9_7F4A_7C15;
    let mut next = || {
        // SplitMix64: small, good enough for this, and no dependency.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    };
    let mut at = Duration::ZERO;
    let draws = (0..u64::from(args.requests)).map(|number| {
        let high = u32::try_from(next() >> 32).unwrap_or(u32::MAX);
        let uniform = (f64::from(high) + 1.0) / (f64::from(u32::MAX) + 2.0);
        at += Duration::from_secs_f64(-uniform.ln() / args.per_second);
        Arrival { at, group: next() % GROUPS, number }
    });
    draws.collect()
}

/// Writes the arrivals as a trace of 16-token blocks and replays it.
fn simulate(cleave: &Path, folder: &Path, arrivals: &[Arrival]) -> Result<Quantiles> {
    let file = folder.join("agreement.jsonl");
    let mut text = String::new();
    for it in arrivals {
        let shared = PREFIX_TOKENS / BLOCK_TOKENS;
        let blocks = (0..PROMPT_TOKENS / BLOCK_TOKENS).map(|block| {
            let own = if block < shared { it.group } else { GROUPS + it.number };
            (own * 1_000 + u64::try_from(block).unwrap_or(0)).to_string()
        });
        writeln!(
            text,
            r#"{{"chat_id":{},"parent_chat_id":-1,"timestamp":{:.6},"input_length":{PROMPT_TOKENS},"output_length":{OUTPUT_TOKENS},"type":"text","turn":1,"hash_ids":[{}]}}"#,
            it.number,
            it.at.as_secs_f64(),
            blocks.collect::<Vec<_>>().join(","),
        )?;
    }
    fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    let mut command = Command::new(cleave);
    command.args(["simulate", "--replicas", "1", "--block-tokens", "16"]);
    command.args(["--policy", "round_robin", "--json", "--trace"]).arg(&file);
    let output = command.output().with_context(|| format!("start {}", shown(&command)))?;
    ensure!(
        output.status.success(),
        "{}: {}",
        shown(&command),
        String::from_utf8_lossy(&output.stderr)
    );
    let document: AgreementDocument = serde_json::from_slice(&output.stdout)?;
    let run = document.runs.first().context("the simulator says what came of the run")?;
    Ok(run.ttft_s)
}

/// Sends the arrivals to a mock replica when they are due, and times their first tokens.
fn play(cleave: &Path, folder: &Path, arrivals: &[Arrival]) -> Result<Quantiles> {
    let mut command = Command::new(cleave);
    command.args(["mock-replica", "--port", "0"]);
    let mut mock = Server::start("agreement-mock", &mut command, folder)?;
    let address: SocketAddr = mock.wait_for(Duration::from_secs(60), |lines| {
        lines.iter().find_map(|it| it.split_once("http://")?.1.parse().ok())
    })?;
    // What takes time to make is made before the clock runs.
    let bodies: Vec<Vec<u8>> = arrivals.iter().map(|it| request(*it, address)).collect();
    let (tell, times) = mpsc::sync_channel(arrivals.len());
    let zero = Instant::now() + Duration::from_millis(200);
    thread::scope(|scope| {
        for (it, body) in arrivals.iter().zip(&bodies) {
            let due = zero + it.at;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let tell = tell.clone();
            scope.spawn(move || tell.send(first_token(address, body, due)));
        }
    });
    drop(tell);
    let mut all = times.iter().collect::<Result<Vec<f64>>>()?;
    all.sort_by(f64::total_cmp);
    ensure!(all.len() == arrivals.len(), "a request was lost");
    let count = u32::try_from(all.len())?;
    let rank = |per_mille: usize| all[(all.len() * per_mille).div_ceil(1000).max(1) - 1];
    let mean = all.iter().sum::<f64>() / f64::from(count);
    Ok(Quantiles { mean, p50: rank(500), p90: rank(900), p99: rank(990) })
}

/// Sends one request and reads its answer to the end; returns when its first token came, in seconds
/// from when it was due.
fn first_token(address: SocketAddr, request: &[u8], due: Instant) -> Result<f64> {
    let mut connection = Connection::to(address)?;
    connection.write(request)?;
    let head = connection.read_head()?.context("the mock answers")?;
    ensure!(head.is_success(), "the mock said {}", head.first_line);
    let mut first = None;
    connection.read_body(head.length, |_| {
        first.get_or_insert_with(|| due.elapsed());
        Ok(())
    })?;
    Ok(first.context("an answer has a token")?.as_secs_f64())
}

/// Writes a request whose text has exactly the tokens and the shared prefix of its arrival.
fn request(it: Arrival, address: SocketAddr) -> Vec<u8> {
    let fill = |name: String, tokens: usize| {
        let text = name.repeat(tokens * TOKEN_BYTES / name.len() + 1);
        text[..tokens * TOKEN_BYTES].to_owned()
    };
    let prompt = fill(format!("group {} ", it.group), PREFIX_TOKENS)
        + &fill(format!("request {} ", it.number), PROMPT_TOKENS - PREFIX_TOKENS);
    let body = format!(
        r#"{{"model":"mock-8b","prompt":"{prompt}","max_tokens":{OUTPUT_TOKENS},"ignore_eos":true,"stream":true}}"#
    );
    let length = body.len();
    format!(
        "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
