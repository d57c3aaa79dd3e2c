//! The program under test as processes: started, asked, told by signals, and killed when the test
//! ends, however it ends.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use serde::Deserialize;

use super::client::{Answer, Request, ask};
use super::{POLL, WAIT_MAX, eventually};

/// One running `cleave`, killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
    /// What it writes from the next line on is not read.
    deaf: Arc<AtomicBool>,
    /// What it writes is not read for now.
    stalled: Arc<AtomicBool>,
    /// The line that says where it listens.
    announced: String,
}

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars().filter(|it| it.0.starts_with("CLEAVE__")) {
            command.env_remove(name);
        }
        let mut child = command.spawn().expect("the program starts");
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let deaf = Arc::new(AtomicBool::new(false));
        let (written, hangs_up) = (Arc::clone(&log), Arc::clone(&deaf));
        let stalled = Arc::new(AtomicBool::new(false));
        let stands_still = Arc::clone(&stalled);
        let listener = thread::spawn(move || {
            let mut err = BufReader::new(err);
            let mut line = Vec::new();
            while !hangs_up.load(Relaxed) && matches!(err.read_until(b'\n', &mut line), Ok(1..)) {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                line.clear();
                while stands_still.load(Relaxed) {
                    thread::park_timeout(POLL);
                }
            }
        });
        let (said, announced) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let mut line = String::new();
            _ = BufReader::new(out).read_line(&mut line);
            _ = said.send(line);
        });
        let (listener, announcement) = (Some(listener), String::new());
        let mut process = Self { child, log, listener, deaf, stalled, announced: announcement };
        process.announced = announced.recv_timeout(WAIT_MAX).expect("it says where it listens");
        let came_up = process.announced.contains("listening on");
        assert!(came_up, "{arguments:?} did not come up:\n{}", process.log());
        process
    }

    /// What it has written to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Hangs up on its standard error, once it has written a line more.
    pub(crate) async fn hang_up_on_log(&self) {
        self.deaf.store(true, Relaxed);
        let listener = self.listener.as_ref().expect("it runs");
        eventually("a last line is read", async || listener.is_finished()).await;
    }

    /// Lets its standard error fill up, unread but for a line more, or has it read again.
    pub(crate) fn stall_log(&self, stalls: bool) {
        self.stalled.store(stalls, Relaxed);
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, as in TERM.
    pub(crate) fn signal(&self, name: &str) {
        // The shell has a `kill` of its own everywhere, and tests may use no unsafe code.
        let script = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    }

    /// Waits until it ends by itself; all of its log is there then.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        eventually("the process ends", async || self.child.try_wait().unwrap().is_some()).await;
        self.listener.take().unwrap().join().unwrap();
        self.child.wait().unwrap()
    }

    /// Waits until it ends by itself, though another process may go on writing to its log.
    pub(crate) async fn gone(&mut self) -> ExitStatus {
        eventually("the process ends", async || self.child.try_wait().unwrap().is_some()).await;
        self.child.wait().unwrap()
    }

    /// Files that it has open.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Memory of the process that is in use now, in bytes.
    pub(crate) fn rss_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
        1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    }

    /// Addresses in the order they were announced.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let words = self.announced.split([' ', ',', '\n']);
        words.filter_map(|it| it.split_once("://")?.1.parse().ok()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stall_log(false);
        _ = self.child.kill();
        _ = self.child.wait();
        if thread::panicking() {
            println!("--- {}{}", self.announced, self.log());
        }
    }
}

/// A mock replica. Dropping it is SIGKILL, as for every process here.
#[derive(Debug)]
pub(crate) struct Mock {
    pub(crate) address: SocketAddr,
    process: Process,
}

impl Mock {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_on(0, options)
    }

    pub(crate) fn start_on(port: u16, options: &[&str]) -> Self {
        Self::start_with("m", port, options)
    }

    /// Starts one that serves another model than the rest.
    pub(crate) fn start_for(model: &str, options: &[&str]) -> Self {
        Self::start_with(model, 0, options)
    }

    fn start_with(model: &str, port: u16, options: &[&str]) -> Self {
        let port = port.to_string();
        let mut arguments = vec!["mock-replica", "--port", &port, "--model", model];
        arguments.extend_from_slice(options);
        let process = Process::start(&arguments);
        Self { address: process.addresses()[0], process }
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A router with its file.
#[derive(Debug)]
pub(crate) struct Router {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    file: PathBuf,
}

impl Router {
    /// Starts a router in front of `replicas`, and waits until it has taken all of them on.
    pub(crate) async fn start(replicas: &[String], settings: &str) -> Self {
        let weighed: Vec<_> = replicas.iter().map(|it| (it.as_str(), 1.0)).collect();
        let router = Self::start_with(&config(&weighed, settings));
        let count = weighed.len();
        router.until("all replicas are up", |it| it.count(|it| it.state == "up") == count).await;
        router
    }

    /// Starts a router with this configuration, whatever it has taken on.
    pub(crate) fn start_with(config: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("cleave-{}-{number}.toml", std::process::id());
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&file, config).unwrap();
        let process = Process::start(&["serve", "--config", file.to_str().unwrap()]);
        let addresses = process.addresses();
        Self { process, address: addresses[0], admin: addresses[1], file }
    }

    /// Replaces the file, at once and whole.
    pub(crate) fn write(&self, config: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, config).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    pub(crate) async fn ask(&self, request: &Request) -> Answer {
        ask(self.address, request).await
    }

    /// Sums a counter over all its labels.
    pub(crate) async fn counter(&self, name: &str) -> u64 {
        let metrics = ask(self.admin, &Request::get("/metrics")).await;
        let lines = metrics.text().lines().filter(|it| it.split(['{', ' ']).next() == Some(name));
        lines.filter_map(|it| it.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    pub(crate) async fn status(&self) -> Status {
        let answer = ask(self.admin, &Request::get("/status")).await;
        serde_json::from_slice(&answer.body).expect("the status is as documented")
    }

    /// Waits until the status is as wanted.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut(&Status) -> bool) {
        eventually(what, async || holds(&self.status().await)).await;
    }

    /// Waits until orchestrators are told to send nothing more.
    pub(crate) async fn until_not_ready(&self) {
        let not_ready = async || ask(self.admin, &Request::get("/readyz")).await.status() == 503;
        eventually("it is not ready", not_ready).await;
    }

    /// Waits until the log says `what`.
    pub(crate) async fn says(&self, what: &str) {
        eventually(what, async || self.process.log().contains(what)).await;
    }
}

/// A router that another one has started, killed when dropped.
#[derive(Debug)]
pub(crate) struct Successor(String);

impl Router {
    /// Finds the process that has taken over.
    pub(crate) fn successor(&self) -> Successor {
        let log = self.process.log();
        let after = log.split("pid=").nth(1).expect("the log names it");
        Successor(after.split(|it: char| !it.is_ascii_digit()).next().unwrap().to_owned())
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        _ = Command::new("sh").args(["-c", &format!("kill -KILL {}", self.0)]).status();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.file);
    }
}

/// What `/status` says, as far as tests look.
#[derive(Debug, Deserialize)]
pub(crate) struct Status {
    pub(crate) connections: i64,
    pub(crate) pools: Vec<PoolStatus>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PoolStatus {
    pub(crate) requests_in_flight: usize,
    pub(crate) sessions: u64,
    pub(crate) sessions_moved_total: u64,
    pub(crate) queue: QueueStatus,
    pub(crate) replicas: Vec<ReplicaStatus>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct QueueStatus {
    pub(crate) waiting: usize,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReplicaStatus {
    pub(crate) url: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) detail: Option<String>,
    pub(crate) weight: f64,
    pub(crate) in_flight: u32,
    pub(crate) sessions: u32,
}

impl Status {
    pub(crate) fn replicas(&self) -> impl Iterator<Item = &ReplicaStatus> {
        self.pools.iter().flat_map(|it| &it.replicas)
    }

    pub(crate) fn count(&self, holds: impl Fn(&ReplicaStatus) -> bool) -> usize {
        self.replicas().filter(|it| holds(it)).count()
    }

    pub(crate) fn replica(&self, address: SocketAddr) -> &ReplicaStatus {
        let url = format!("http://{address}");
        self.replicas().find(|it| it.url == url).expect("the replica is known")
    }
}

/// Writes a configuration for one pool; `settings` are lines of dotted keys.
pub(crate) fn config(replicas: &[(&str, f64)], settings: &str) -> String {
    let mut text =
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nthreads = 2\n".to_owned();
    if !settings.contains("health.interval") {
        text.push_str("health.interval = \"100ms\"\n");
    }
    // Where a request goes is then told by its session alone, whatever is in flight.
    if !settings.contains("policy") {
        text.push_str("policy = \"session\"\n");
    }
    text.push_str("replicas = [\n");
    for (url, weight) in replicas {
        writeln!(text, "    {{ url = \"{url}\", weight = {weight:?} }},").unwrap();
    }
    text + "]\n" + settings + "\n"
}
