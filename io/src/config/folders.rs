//! Where files go that nothing is said about.

use std::path::PathBuf;

/// Names the folder for what outlives the process: what the service manager gives, else the user's.
/// A router on any free port is a passing one and keeps nothing.
pub(super) fn state_dir(port: u16) -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let of_user = || {
        let state = given("XDG_STATE_HOME");
        let state = state.or_else(|| given("HOME").map(|it| it.join(".local/state")));
        state.map(|it| it.join("cleave"))
    };
    (port != 0).then(|| given("STATE_DIRECTORY").or_else(of_user)).flatten()
}
