//! What the page, the admin port and the tests may see of a brain.

use crate::domain::ReplicaId;
use crate::policy::PolicyName;

use super::Brain;

/// One pool at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub policy: PolicyName,
    pub requests_in_flight: usize,
    /// Sessions that changed replica since the start.
    pub sessions_moved_total: u64,
    pub replicas: Vec<ReplicaSnapshot>,
}

/// One replica at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSnapshot {
    pub id: ReplicaId,
    pub name: String,
    pub weight: f64,
    /// `joining`, `up`, `out`, `trial`, or `leaving`.
    pub state: &'static str,
    pub reason: Option<&'static str>,
    pub in_flight: u32,
    pub sessions: u32,
    pub sent_total: u64,
    pub failed_total: u64,
}

impl Brain {
    pub fn snapshot(&self) -> Snapshot {
        let replicas = self.fleet.iter().map(|it| {
            let standing = it.breaker.standing();
            ReplicaSnapshot {
                id: it.id,
                name: it.name.clone(),
                weight: it.weight,
                state: if it.leaving { "leaving" } else { standing.as_str() },
                reason: standing.reason().map(crate::fleet::Reason::as_str),
                in_flight: it.in_flight,
                sessions: self.sessions.count(it.id),
                sent_total: it.sent_total,
                failed_total: it.failed_total,
            }
        });
        Snapshot {
            policy: self.settings.policy,
            requests_in_flight: self.requests.len(),
            sessions_moved_total: self.sessions_moved_total,
            replicas: replicas.collect(),
        }
    }
}
