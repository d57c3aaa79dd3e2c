//! What is said of a panic: one line in the log with its place and its message. The standard library's
//! own way is to write to standard error at once, past the log, and to look up a backtrace, which takes
//! tens of milliseconds; a panic may happen under a lock that others wait for.

use std::panic::set_hook;
use std::thread;

use tracing::error;

/// Has panics written to the log from now on.
pub(super) fn log_panics() {
    set_hook(Box::new(|info| {
        let current = thread::current();
        let thread = current.name().unwrap_or("-");
        error!(thread, %info, "a panic, which is a mistake in the router");
    }));
}
