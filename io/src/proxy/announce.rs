//! The brain's notices in operators' words: plain values for the log and for `/events`.

use cleave_core::brain::{Inherit, LeaveCause, MoveTotals, Notice, Order, Remedy};
use cleave_core::domain::{ReplicaId, float};
use cleave_core::fleet::{Reason, Silence, State};

use crate::replicas::Trouble;
use crate::telemetry::Incident;

/// Makes of a notice what is told; `replica` is the address of the one it speaks of, and `trouble` what was last found
/// wrong with it.
pub(super) fn incident(
    pool: &str,
    replica: Option<String>,
    trouble: Option<&Trouble>,
    notice: &Notice,
) -> Incident {
    let told =
        Incident { kind: "replica", pool: Some(pool.to_owned()), replica, ..Incident::default() };
    match notice {
        Notice::Joined { .. } => Incident { state: "joining", ..told },
        Notice::Left { .. } => Incident { state: "left", ..told },
        Notice::Changed { before, now, silence, .. } => Incident {
            state: now.name,
            before: Some(before.name),
            reason: now.reason.map(Reason::as_str),
            detail: silence.map(describe).or_else(|| cause(*now, trouble?)),
            alert: is_alert(*now),
            ..told
        },
        Notice::Restarted { .. } => {
            let detail = "another process answers there; its cache is taken to be empty";
            Incident { state: "restarted", detail: Some(detail.to_owned()), ..told }
        }
        Notice::Quarantined { key, fingerprint, scope, .. } => Incident {
            kind: "quarantine",
            state: "quarantined",
            reason: Some(scope.as_str()),
            detail: Some(format!("request {:016x} of session {key}", fingerprint.0)),
            alert: true,
            ..told
        },
        Notice::Acquitted { key, fingerprint, .. } => {
            let whose = format!("request {:016x} of session {key}", fingerprint.0);
            let detail = format!("{whose} was answered whole there and is held no more");
            Incident { kind: "quarantine", state: "acquitted", detail: Some(detail), ..told }
        }
    }
}

/// Tells how many sessions moved between two looks, and why; nothing if none did.
pub(super) fn moved(pool: &str, before: &MoveTotals, now: &MoveTotals) -> Option<Incident> {
    // A pool that was rebuilt counts from 0 again.
    let since = |cause| now.of(cause).saturating_sub(before.of(cause));
    let mut parts = Vec::new();
    for cause in LeaveCause::ALL.into_iter().filter(|it| 0 < since(*it)) {
        let by = if cause == LeaveCause::Overloaded {
            let over_ms = (now.over_ms - before.over_ms).max(0.0) / float(since(cause));
            format!(" (by {over_ms:.0} ms on average)")
        } else {
            String::new()
        };
        parts.push(format!("{} {}{by}", cause.as_str(), since(cause)));
    }
    let detail = (!parts.is_empty()).then(|| parts.join(", "))?;
    let (kind, pool, detail) = ("sessions", Some(pool.to_owned()), Some(detail));
    Some(Incident { kind, pool, state: "moved", detail, ..Incident::default() })
}

/// Makes of an order what is told; nothing of what the router orders by itself.
pub(super) fn ordered<'a>(
    pool: &str,
    order: &Order,
    address: impl Fn(ReplicaId) -> Option<&'a str>,
) -> Option<Incident> {
    let told = Incident { kind: "order", pool: Some(pool.to_owned()), ..Incident::default() };
    let of = |replica: ReplicaId| address(replica).map(str::to_owned);
    Some(match order {
        Order::Freeze => Incident { state: "frozen", ..told },
        Order::Unfreeze => Incident { state: "unfrozen", ..told },
        Order::Drain { replica } => Incident { state: "draining", replica: of(*replica), ..told },
        Order::Undrain { replica } => {
            Incident { state: "undrained", replica: of(*replica), ..told }
        }
        Order::Pin { workload, replicas } => {
            let to: Vec<&str> = replicas.iter().filter_map(|it| address(*it)).collect();
            let state = if to.is_empty() { "unpinned" } else { "pinned" };
            let detail =
                Some(format!("workload {workload:08x} {}", to.join(", ")).trim().to_owned());
            Incident { state, detail, ..told }
        }
        Order::Forget { .. } | Order::Zone { .. } | Order::Restore { .. } => return None,
    })
}

/// Makes of a pool that was rebuilt after a panic what is told; `kept` is what its new brain took over,
/// `refused` the number of requests that waited.
pub(super) fn rebuilt(
    pool: &str,
    remedy: Remedy,
    kept: Option<Inherit>,
    refused: usize,
) -> Incident {
    let kept = match kept {
        Some(Inherit::All) => "the health of replicas, contracts, sessions and the assignment",
        Some(Inherit::Books) => "the health of replicas and contracts",
        Some(Inherit::Nothing) => "replicas and orders only",
        None => "nothing: it cannot be rebuilt yet",
    };
    let Remedy { in_row, pause, .. } = remedy;
    let rests = pause.map(|it| format!(", rests for {} ms", it.as_millis())).unwrap_or_default();
    let detail =
        format!("panic {in_row} in a row; {refused} that waited were refused; kept {kept}{rests}");
    Incident {
        kind: "pool",
        pool: Some(pool.to_owned()),
        state: "restarted",
        reason: Some("panic"),
        detail: Some(detail),
        alert: true,
        ..Incident::default()
    }
}

/// Makes of a replica that refuses the router's key what is told.
pub(super) fn denied(pool: &str, replica: &str, has_key: bool) -> Incident {
    let detail = if has_key {
        "it refuses the key that is configured for it (api_key, api_key_file)"
    } else {
        "it asks for a key, and none is configured for it (api_key, api_key_file, forward_credentials)"
    };
    Incident {
        kind: "replica",
        pool: Some(pool.to_owned()),
        replica: Some(replica.to_owned()),
        state: "unauthorized",
        detail: Some(detail.to_owned()),
        alert: true,
        ..Incident::default()
    }
}

/// Makes of a replica that never came up what is told.
pub(super) fn never_up(pool: &str, replica: &str, trouble: &Trouble) -> Incident {
    Incident {
        kind: "replica",
        pool: Some(pool.to_owned()),
        replica: Some(replica.to_owned()),
        state: "joining",
        reason: Some(trouble.word),
        detail: Some(trouble.detail.clone()),
        alert: true,
        ..Incident::default()
    }
}

fn describe(silence: Silence) -> String {
    let (lasted, expected) = (silence.lasted.as_secs_f64(), silence.expected.as_secs_f64());
    format!("nothing came from it for {lasted:.1} s, with work that explains {expected:.1} s")
}

/// Says why a replica is in this state, where that is what asking it or sending to it finds out.
fn cause(now: State, trouble: &Trouble) -> Option<String> {
    let is_found = match now.reason? {
        Reason::Unreachable | Reason::Unhealthy | Reason::WrongModel | Reason::Unauthorized => true,
        Reason::Failing | Reason::Hung | Reason::Slow | Reason::NotReady => false,
    };
    is_found.then(|| trouble.beside(now.reason.map(Reason::as_str)))
}

/// Tells whether an operator should look at a replica in this state.
fn is_alert(state: State) -> bool {
    matches!(state.name, "suspect" | "out")
}

#[cfg(test)]
mod tests {
    use cleave_core::brain::Move;

    use super::*;

    #[test]
    fn moves_are_told_by_cause_and_only_those_since_the_last_time() {
        let mut before = MoveTotals::default();
        assert_eq!(moved("p", &before, &before), None);
        before.add(Move { cause: LeaveCause::Lost, over_ms: 0.0 });
        let mut now = before;
        for over_ms in [60.0, 100.0] {
            now.add(Move { cause: LeaveCause::Overloaded, over_ms });
        }
        now.add(Move { cause: LeaveCause::Spilled, over_ms: 0.0 });
        let told = moved("p", &before, &now).unwrap();
        assert_eq!(told.detail.unwrap(), "overloaded 2 (by 80 ms on average), spilled 1");
        assert_eq!(moved("p", &now, &before), None, "after a pool was rebuilt");
    }
}
