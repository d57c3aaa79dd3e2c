//! Recordings: what requests came and what became of them, without any text, for `cleave replay` and
//! `cleave simulate`. A request hands over plain figures, into a queue that is bounded; a task of its own makes
//! lines of them, packs them and writes them. What does not fit is dropped and counted, so a slow disk costs
//! requests nothing. The form of the lines is `core/recording`.

mod codes;
mod files;
mod settings;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use cleave_core::recording::{BlockNumbers, PoolLine, RequestLine};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};

use codes::Codes;
use files::RecordingFiles;

pub use settings::RecordSettings;

/// Requests that may wait to be written. Each keeps its list of blocks, which is bounded too.
const QUEUE_MAX: usize = 8_192;
/// Blocks of prompts in the queue: eight bytes each.
const QUEUED_BLOCKS_MAX: usize = 4 << 20;
/// Blocks that are remembered, some twenty megabytes while it records.
const BLOCKS_MAX: usize = 1 << 19;
/// How long requests wait to be written, at most.
const PAUSE: Duration = Duration::from_secs(1);
/// What is packed together; the more, the smaller.
const PACK_BYTES: usize = 256 << 10;
/// How long lines wait for others to be packed with.
const PACK_AFTER: Duration = Duration::from_secs(5);

/// What came of requests that were to be recorded.
#[derive(Clone, Debug, Default)]
pub struct RecordCounters {
    pub written: Counter,
    /// Because too many waited.
    pub dropped_full: Counter,
    /// Because the files could not be written.
    pub dropped_failed: Counter,
    pub is_on: Gauge,
}

/// A request that is over, in figures.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub arrived: Instant,
    /// The pool's name to other routers.
    pub pool: u64,
    pub tenant: u64,
    pub session: u64,
    /// Hashes of the blocks of its prompt.
    pub blocks: Arc<[u64]>,
    /// The rest, but for what is made of the above.
    pub line: RequestLine,
}

/// Where recording stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordStatus {
    pub on: bool,
    /// When it ends by itself, in seconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Where files go; nothing where recording cannot be turned on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    pub written_total: u64,
    pub dropped_total: u64,
    pub bytes_max: u64,
    /// Why the last lines could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Recording has no folder to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("recordings have no folder: set record.dir, or subsets.state_dir, and restart")]
pub struct NoFolder;

#[derive(Debug, Default)]
struct RecordQueue {
    requests: Vec<RecordedRequest>,
    blocks: usize,
    /// When recording ends by itself.
    until: Option<Instant>,
    problem: Option<String>,
}

/// What only the task that writes touches.
#[derive(Debug, Default)]
struct Writing {
    run: Option<WritingRun>,
}

/// From when recording is turned on until it is turned off.
#[derive(Debug)]
struct WritingRun {
    began: Instant,
    codes: Codes,
    numbers: BlockNumbers,
    /// Pools by their number.
    pools: Vec<u64>,
    told: Vec<PoolLine>,
    lines: Vec<u8>,
    requests: u64,
    packed: Instant,
    files: RecordingFiles,
}

/// Records requests while it is on.
#[derive(Debug)]
pub struct Recorder {
    settings: RecordSettings,
    is_on: AtomicBool,
    queue: Mutex<RecordQueue>,
    writing: Mutex<Writing>,
    /// Told when many requests wait, and when it is turned off.
    filled: Notify,
    counters: RecordCounters,
}

impl Recorder {
    pub fn new(settings: RecordSettings, counters: RecordCounters) -> Self {
        let is_on = settings.starts_on && settings.dir.is_some();
        counters.is_on.set(i64::from(is_on));
        Self {
            settings,
            is_on: AtomicBool::new(is_on),
            queue: Mutex::default(),
            writing: Mutex::default(),
            filled: Notify::new(),
            counters,
        }
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Turns recording on, for a time if one is given, or off.
    pub fn switch(&self, on: bool, lasts: Option<Duration>) -> Result<(), NoFolder> {
        if on && self.settings.dir.is_none() {
            return Err(NoFolder);
        }
        let mut queue = self.lock();
        queue.until = lasts.filter(|_| on).and_then(|it| Instant::now().checked_add(it));
        queue.problem = None;
        drop(queue);
        self.set_on(on);
        Ok(())
    }

    fn set_on(&self, on: bool) {
        self.is_on.store(on, Relaxed);
        self.counters.is_on.set(i64::from(on));
        self.filled.notify_one();
    }

    pub fn status(&self) -> RecordStatus {
        let queue = self.lock();
        let left = queue.until.map(|it| it.saturating_duration_since(Instant::now()));
        let counters = &self.counters;
        RecordStatus {
            on: self.is_on(),
            seconds_left: left.filter(|_| self.is_on()).map(|it| it.as_secs()),
            dir: self.settings.dir.as_ref().map(|it| it.display().to_string()),
            written_total: counters.written.get(),
            dropped_total: counters.dropped_full.get() + counters.dropped_failed.get(),
            bytes_max: self.settings.bytes_max,
            problem: queue.problem.clone(),
        }
    }

    /// Takes a request that is over, or drops it.
    pub fn note(&self, request: RecordedRequest) {
        let mut queue = self.lock();
        let blocks = queue.blocks + request.blocks.len();
        if QUEUE_MAX <= queue.requests.len() || QUEUED_BLOCKS_MAX < blocks {
            self.counters.dropped_full.inc();
            return;
        }
        queue.blocks = blocks;
        queue.requests.push(request);
        if queue.requests.len() == QUEUE_MAX / 2 {
            self.filled.notify_one();
        }
    }

    /// Runs until dropped: writes what has come, with the pools as they are then.
    pub async fn run(self: Arc<Self>, pools: impl Fn() -> Vec<(u64, PoolLine)>) {
        loop {
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = self.filled.notified() => {}
            }
            let is_over = self.lock().until.is_some_and(|it| it <= Instant::now());
            if is_over && self.is_on() {
                self.set_on(false);
                info!("recording ends");
            }
            let (recorder, pools) = (Arc::clone(&self), pools());
            // A disk may take long, and this thread has replicas to probe.
            if tokio::task::spawn_blocking(move || recorder.write_out(pools)).await.is_err() {
                warn!("a recording was given up");
            }
        }
    }

    /// Writes what has come, for the last time.
    pub fn finish(&self) {
        self.is_on.store(false, Relaxed);
        self.write_out(Vec::new());
    }

    fn write_out(&self, pools: Vec<(u64, PoolLine)>) {
        let requests = {
            let mut queue = self.lock();
            queue.blocks = 0;
            std::mem::take(&mut queue.requests)
        };
        let taken = u64::try_from(requests.len()).unwrap_or(u64::MAX);
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_on = self.is_on();
        if let Err(error) = self.go_on(&mut writing, requests, pools, is_on) {
            warn!(%error, "the recording could not be written, and is off");
            let lost = writing.run.take().map_or(0, |it| it.requests);
            self.counters.dropped_failed.inc_by(lost.max(taken));
            self.lock().problem = Some(error.to_string());
            self.set_on(false);
        }
        if !is_on {
            writing.run = None;
        }
    }

    fn go_on(
        &self,
        writing: &mut Writing,
        requests: Vec<RecordedRequest>,
        pools: Vec<(u64, PoolLine)>,
        is_on: bool,
    ) -> io::Result<()> {
        let Some(dir) = &self.settings.dir else { return Ok(()) };
        if writing.run.is_none() && is_on {
            let files = RecordingFiles::new(dir, &self.settings, SystemTime::now())?;
            writing.run = Some(WritingRun::new(files));
            info!(dir = %dir.display(), "recording");
        }
        let Some(run) = &mut writing.run else { return Ok(()) };
        run.take_pools(pools)?;
        for request in requests {
            run.take(request)?;
            if PACK_BYTES <= run.lines.len() {
                self.counters.written.inc_by(run.pack()?);
            }
        }
        if !is_on || PACK_AFTER <= run.packed.elapsed() {
            self.counters.written.inc_by(run.pack()?);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, RecordQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WritingRun {
    fn new(files: RecordingFiles) -> Self {
        Self {
            began: files.began,
            codes: Codes::fresh(),
            numbers: BlockNumbers::new(BLOCKS_MAX),
            pools: Vec::new(),
            told: Vec::new(),
            lines: Vec::new(),
            requests: 0,
            packed: Instant::now(),
            files,
        }
    }

    /// Notes how the pools stand, where that has changed, and at the beginning of each file.
    fn take_pools(&mut self, pools: Vec<(u64, PoolLine)>) -> io::Result<()> {
        if pools.is_empty() {
            return Ok(());
        }
        let at_us = micros(self.began.elapsed());
        let numbered = pools.into_iter().map(|(key, line)| {
            let pool = self.number_of(key);
            PoolLine { pool, at_us, ..line }
        });
        let numbered: Vec<PoolLine> = numbered.collect();
        let same =
            |new: &PoolLine| self.told.iter().any(|old| PoolLine { at_us, ..old.clone() } == *new);
        let changed: Vec<&PoolLine> = numbered.iter().filter(|it| !same(it)).collect();
        for line in changed {
            write_line(&mut self.lines, line)?;
        }
        self.told = numbered;
        Ok(())
    }

    fn number_of(&mut self, key: u64) -> u32 {
        let place = self.pools.iter().position(|it| *it == key).unwrap_or_else(|| {
            self.pools.push(key);
            self.pools.len() - 1
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    fn take(&mut self, request: RecordedRequest) -> io::Result<()> {
        // It came before recording began: its place in time is not known.
        let Some(at) = request.arrived.checked_duration_since(self.began) else { return Ok(()) };
        let line = RequestLine {
            t: micros(at),
            pool: self.number_of(request.pool),
            tenant: self.codes.tenant(request.tenant),
            session: self.codes.session(request.tenant, request.session),
            blocks: self.numbers.number(&request.blocks),
            ..request.line
        };
        self.requests += 1;
        write_line(&mut self.lines, &line)
    }

    /// Packs the lines and writes them; says how many requests that were.
    fn pack(&mut self) -> io::Result<u64> {
        self.packed = Instant::now();
        if self.lines.is_empty() {
            return Ok(0);
        }
        self.files.append(&self.lines)?;
        self.lines.clear();
        if self.files.rotate_if_full()? {
            for line in &self.told {
                write_line(&mut self.lines, line)?;
            }
        }
        Ok(std::mem::take(&mut self.requests))
    }
}

fn write_line(lines: &mut Vec<u8>, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *lines, line)?;
    lines.push(b'\n');
    Ok(())
}

/// Makes whole microseconds of a span.
pub fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
