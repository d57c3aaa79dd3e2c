//! Structured logs on standard error.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::panic::PanicHookInfo;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use super::settings::{LogFormat, LogSettings};
use super::writer::LogWriter;

/// How long the last lines may take at the end of the process.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);
/// How long the log line of a panic may take before the thread goes on. The process may be about to abort.
const PANIC_FLUSH_LIMIT: Duration = Duration::from_millis(50);

/// Starts logging for the whole process. A second call changes nothing, so that tests may start
/// several routers in one process.
pub fn start(settings: &LogSettings) -> Result<(), ParseError> {
    let filter = EnvFilter::builder().parse(&settings.level)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Queued)
        // A line that cannot be written would be reported on standard error, which is where it
        // could not be written, and that report panics: no request, and no signal, may end like
        // that.
        .log_internal_errors(false)
        .with_target(false);
    let started = match settings.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // The only error is that logging has been started already.
    if started.is_ok() {
        LogWriter::stderr().set_format(settings.format);
        std::panic::set_hook(Box::new(log_panic));
    }
    Ok(())
}

/// Has the last lines written before the process ends; a pipe that is not read does not keep it.
pub fn finish() {
    LogWriter::stderr().flush(FLUSH_LIMIT);
}

/// Says why the process ends.
pub fn last_words(words: &str) {
    LogWriter::stderr().put(format!("{words}\n").as_bytes());
    finish();
}

/// Logs a panic. The standard hook writes to standard error itself, and waits there.
fn log_panic(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let words = text.unwrap_or("no words");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(thread, location, words, "panicked");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        LogWriter::stderr().put(format!("{backtrace}\n").as_bytes());
    }
    LogWriter::stderr().flush(PANIC_FLUSH_LIMIT);
}

/// Takes each line as it is written: the formatter writes whole ones.
struct Queued;

impl io::Write for Queued {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LogWriter::stderr().put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
