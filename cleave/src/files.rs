//! How many open files the process may have, and so how many connections.

use cleave_io::admin;
use tracing::warn;

/// Files that are open beside connections of clients and to replicas: listeners, logs, probes; and those
/// of the admin port.
const FILES_BESIDE: usize = 192 + admin::SLOTS_MAX;
/// How few of them will do.
const FILES_BESIDE_MIN: usize = 32 + admin::SLOTS_MAX;

/// Asks for as many files as the settings need, a connection on each side of every request, and says
/// how many connections fit what is granted. Out of files, nothing could be served at all.
pub(crate) fn connections_that_fit(connections_max: usize) -> usize {
    let wanted = u64::try_from(2 * connections_max + FILES_BESIDE).unwrap_or(u64::MAX);
    let limit = rlimit::increase_nofile_limit(wanted).unwrap_or_else(|error| {
        warn!(%error, "cannot raise the limit of open files");
        wanted
    });
    if wanted <= limit {
        return connections_max;
    }
    // Idle clients need no file towards a replica, but some must be left for requests.
    let files = usize::try_from(limit).unwrap_or(usize::MAX);
    let fitting = files.saturating_sub(FILES_BESIDE_MIN).max(files / 2) / 4 * 3;
    let fitting = fitting.clamp(1, connections_max);
    warn!(
        files = limit,
        connections = fitting,
        "limits.connections_max needs {wanted} open files; raise the limit (ulimit -n) to have them all"
    );
    fitting
}
