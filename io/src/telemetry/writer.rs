//! Log lines on their way to standard error. A thread of their own writes them: the reader of the
//! pipe may stand still, and then only that thread does. The others put lines into a queue that is
//! bounded in bytes and never wait for more than a copy. What does not fit, or cannot be written,
//! is dropped and counted, and the log says how much was dropped as soon as it goes on.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use super::settings::LogFormat;

/// Bytes that may wait; about as many may be in the thread's hands.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// What a buffer keeps of its memory when it is empty.
const BUFFER_BYTES_KEPT: usize = 64 << 10;
/// Time between two tries where writing would block instead of waiting.
const BLOCKED_PAUSE: Duration = Duration::from_millis(10);

/// The way to one sink; clones share it.
#[derive(Clone, Debug)]
pub(super) struct LogWriter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_max: usize,
    queue: Mutex<Queue>,
    filled: Condvar,
    written: Condvar,
    dropped_total: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    /// Whole lines.
    lines: Vec<u8>,
    /// Lines that came after those and did not fit.
    dropped: u64,
    is_writing: bool,
    /// How the writer speaks of what it dropped.
    format: LogFormat,
}

impl LogWriter {
    /// The one way to standard error.
    pub(super) fn stderr() -> &'static Self {
        static STDERR: OnceLock<LogWriter> = OnceLock::new();
        STDERR.get_or_init(|| Self::new(io::stderr(), QUEUE_BYTES_MAX))
    }

    pub(super) fn new(sink: impl Write + Send + 'static, bytes_max: usize) -> Self {
        let format = LogFormat::Text;
        let queue = Queue { lines: Vec::new(), dropped: 0, is_writing: false, format };
        let shared = Arc::new(Shared {
            bytes_max,
            queue: Mutex::new(queue),
            filled: Condvar::new(),
            written: Condvar::new(),
            dropped_total: AtomicU64::new(0),
        });
        let own = Arc::clone(&shared);
        // Without a thread every line is dropped in the end, and counted; the router goes on.
        _ = thread::Builder::new().name("log".to_owned()).spawn(move || own.write_on(sink));
        Self(shared)
    }

    pub(super) fn set_format(&self, format: LogFormat) {
        self.0.lock().format = format;
    }

    /// Takes whole lines, or drops all of them. Never waits for the sink.
    pub(super) fn put(&self, lines: &[u8]) {
        let mut queue = self.0.lock();
        // Once something was dropped, the rest is too, until the log says so: order is kept.
        if queue.dropped == 0 && lines.len() <= self.0.bytes_max - queue.lines.len() {
            queue.lines.extend_from_slice(lines);
        } else {
            let count = count_lines(lines);
            queue.dropped = queue.dropped.saturating_add(count);
            self.0.dropped_total.fetch_add(count, Relaxed);
        }
        drop(queue);
        self.0.filled.notify_one();
    }

    /// Waits until all lines are written, but no longer than `limit`. Tells whether they are.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let busy = |it: &mut Queue| it.is_writing || !it.lines.is_empty() || 0 < it.dropped;
        let waited = self.0.written.wait_timeout_while(self.0.lock(), limit, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Counts the lines that were dropped since the start.
    pub(super) fn dropped_total(&self) -> u64 {
        self.0.dropped_total.load(Relaxed)
    }
}

impl Shared {
    /// Writes for as long as the process lives. Only here is the sink touched, and never under the lock.
    fn write_on(&self, mut sink: impl Write) {
        let mut batch = Vec::new();
        // Dropped, and not said yet.
        let mut unsaid: u64 = 0;
        loop {
            let (dropped, format) = self.take(&mut batch);
            unsaid = unsaid.saturating_add(dropped);
            if 0 < unsaid {
                batch.extend_from_slice(lines_dropped(unsaid, format).as_bytes());
            }
            let written = write_all(&mut sink, &batch);
            let lost = count_lines(&batch[written..]);
            // The line that says so is none of those it speaks of.
            let lost_of_others = lost.saturating_sub(u64::from(0 < unsaid));
            self.dropped_total.fetch_add(lost_of_others, Relaxed);
            unsaid = if lost == 0 { 0 } else { unsaid.saturating_add(lost_of_others) };
        }
    }

    /// Waits for lines and takes them all; says how many were dropped after them.
    fn take(&self, batch: &mut Vec<u8>) -> (u64, LogFormat) {
        batch.clear();
        batch.shrink_to(BUFFER_BYTES_KEPT);
        let mut queue = self.lock();
        queue.is_writing = false;
        self.written.notify_all();
        let idle = |it: &mut Queue| it.lines.is_empty() && it.dropped == 0;
        queue = self.filled.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(batch, &mut queue.lines);
        queue.is_writing = true;
        (std::mem::take(&mut queue.dropped), queue.format)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that is done under the lock can fail half-way.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes as much as can be written, and says how much that was. Waits for a sink that does not wait
/// by itself.
fn write_all(sink: &mut impl Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match sink.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(BLOCKED_PAUSE),
            // A closed pipe, a full disk: these lines are lost, later ones may not be.
            Err(_) => break,
        }
    }
    written
}

fn count_lines(bytes: &[u8]) -> u64 {
    let parts = bytes.split(|it| *it == b'\n').count();
    u64::try_from(parts - 1).unwrap_or(u64::MAX)
}

fn lines_dropped(count: u64, format: LogFormat) -> String {
    let now = humantime::format_rfc3339_micros(SystemTime::now());
    match format {
        LogFormat::Text => format!("{now}  WARN {count} log lines dropped\n"),
        LogFormat::Json => format!(
            "{{\"timestamp\":\"{now}\",\"level\":\"WARN\",\"message\":\"{count} log lines dropped\"}}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// Long enough for anything here, unless it never comes.
    const WAIT_MAX: Duration = Duration::from_secs(30);

    /// A sink that takes a piece only when the test does.
    struct Sluggish(SyncSender<Vec<u8>>);

    impl Write for Sluggish {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn sluggish(bytes_max: usize) -> (LogWriter, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(0);
        (LogWriter::new(Sluggish(sender), bytes_max), receiver)
    }

    fn next(lines: &Receiver<Vec<u8>>) -> String {
        String::from_utf8(lines.recv_timeout(WAIT_MAX).unwrap()).unwrap()
    }

    #[test]
    fn a_reader_that_stands_still_stops_no_writer_and_is_told_what_it_missed() {
        let (log, lines) = sluggish(100);
        log.put(b"first\n");
        // The thread holds it now, and stands still.
        while !log.0.lock().is_writing {
            thread::yield_now();
        }
        log.put(&[b'a'; 99]);
        (0..1000).for_each(|_| log.put(b"bc\n"));
        assert_eq!(log.dropped_total(), 1000);
        assert!(log.0.lock().lines.len() <= 100);
        assert!(!log.flush(Duration::from_millis(1)), "it waits no longer than it may");
        assert_eq!(next(&lines), "first\n");
        let rest = next(&lines);
        assert!(
            rest.starts_with("aaa") && rest.ends_with("  WARN 1000 log lines dropped\n"),
            "{rest}"
        );
        log.put(b"last\n");
        assert_eq!(next(&lines), "last\n");
        assert!(log.flush(WAIT_MAX));
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_said_when_it_goes_on() {
        /// A disk that is full, until it is not.
        struct Full(Arc<AtomicU64>, SyncSender<Vec<u8>>);

        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if 0 < self.0.load(Relaxed) {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                _ = self.1.send(bytes.to_vec());
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let (full, (sender, lines)) = (Arc::new(AtomicU64::new(1)), sync_channel(8));
        let log = LogWriter::new(Full(Arc::clone(&full), sender), 1000);
        log.set_format(LogFormat::Json);
        for number in 1..=3 {
            log.put(b"lost\n");
            assert!(log.flush(WAIT_MAX));
            assert_eq!(log.dropped_total(), number);
        }
        full.store(0, Relaxed);
        log.put(b"kept\n");
        let said = next(&lines);
        assert!(
            said.starts_with("kept\n{\"timestamp\":") && said.contains("\"3 log lines dropped\""),
            "{said}"
        );
        log.put(b"more\n");
        assert_eq!(next(&lines), "more\n", "it is said once");
        assert_eq!(log.dropped_total(), 3);
    }
}
