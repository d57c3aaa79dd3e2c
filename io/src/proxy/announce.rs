//! The brain's notices in operators' words: plain values for the log and for `/events`.

use cleave_core::brain::Notice;
use cleave_core::fleet::{Reason, State};

use crate::telemetry::Incident;

/// Makes of a notice what is told; `replica` is the address of the one it speaks of.
pub(super) fn incident(pool: &str, replica: Option<String>, notice: &Notice) -> Incident {
    let told =
        Incident { kind: "replica", pool: Some(pool.to_owned()), replica, ..Incident::default() };
    match notice {
        Notice::Joined { .. } => Incident { state: "joining", ..told },
        Notice::Left { .. } => Incident { state: "left", ..told },
        Notice::Changed { before, now, .. } => Incident {
            state: now.name,
            before: Some(before.name),
            reason: now.reason.map(Reason::as_str),
            alert: is_alert(*now),
            ..told
        },
    }
}

/// Tells whether somebody should look at a replica in this state.
fn is_alert(state: State) -> bool {
    state.name == "out"
}
