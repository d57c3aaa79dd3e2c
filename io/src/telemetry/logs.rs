//! Structured logs on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use super::panics::log_panics;
use super::settings::{LogFormat, Settings};

/// Starts logging for the whole process. A second call changes nothing, so that tests may start
/// several routers in one process.
pub fn start(settings: &Settings) -> Result<(), ParseError> {
    let filter = EnvFilter::builder().parse(&settings.level)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that cannot be written would be reported on standard error, which is where it could
        // not be written, and that report panics: nobody's request, and no signal, may end so.
        .log_internal_errors(false)
        .with_target(false);
    // The only error is that logging has been started already.
    let started = match settings.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if started.is_ok() {
        log_panics();
    }
    Ok(())
}
