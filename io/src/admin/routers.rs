//! The routers that decide as one, as JSON, as this one sees them.

use std::collections::BTreeMap;

use cleave_core::domain::RouterId;
use serde::Serialize;

use crate::proxy::Router;

/// What `/routers` answers.
#[derive(Clone, Debug, Serialize)]
pub struct RouterList {
    /// The id of this router; null for one that is alone.
    pub own: Option<String>,
    /// Whether it waits to be told what the others know.
    pub joining: bool,
    #[serde(flatten)]
    pub standing: Option<StandingFigures>,
    pub peers: Vec<RouterFigures>,
}

/// Where this router stands among the others.
#[derive(Clone, Debug, Serialize)]
pub struct StandingFigures {
    /// `whole`, `majority` (some are missing) or `minority`: too few are there to have a leader.
    pub state: &'static str,
    /// How many routers there should be, and how many are there, this one included.
    pub routers: u32,
    pub present: u32,
    /// The router that plans for all, if there is one.
    pub leader: Option<String>,
    /// Whether that is this one.
    pub leads: bool,
    pub leader_changes: u64,
}

impl StandingFigures {
    /// Nothing for a router that is alone.
    pub(super) fn of(router: &Router) -> Option<Self> {
        let sharing = router.sharing()?;
        let it = sharing.standing();
        Some(Self {
            state: it.as_str(),
            routers: it.routers,
            present: it.present,
            leader: it.leader.map(|it| it.to_string()),
            leads: sharing.leads(),
            leader_changes: it.leader_changes,
        })
    }
}

/// Another router.
#[derive(Clone, Debug, Serialize)]
pub struct RouterFigures {
    pub id: String,
    /// Empty for one that is lost.
    pub address: String,
    /// `talking`, or `lost`: then its requests count for as long as they should take.
    pub state: &'static str,
    pub lag_seconds: f64,
    pub bytes_told: u64,
    pub bytes_heard: u64,
    pub gaps: u64,
    pub snapshots_told: u64,
    pub snapshots_heard: u64,
    pub overruns: u64,
    /// Requests that it has in flight, as far as this router heard.
    pub in_flight: usize,
}

impl RouterList {
    pub(super) fn of(router: &Router) -> Self {
        let Some(sharing) = router.sharing() else {
            return Self { own: None, joining: false, standing: None, peers: Vec::new() };
        };
        let mut in_flight: BTreeMap<RouterId, usize> = router.heard_in_flight();
        let talking = sharing.peers().into_iter().map(|(id, it)| RouterFigures {
            id: id.to_string(),
            address: it.address,
            state: "talking",
            lag_seconds: it.lag.as_secs_f64(),
            bytes_told: it.totals.bytes_told,
            bytes_heard: it.totals.bytes_heard,
            gaps: it.totals.gaps,
            snapshots_told: it.totals.wholes_told,
            snapshots_heard: it.totals.wholes_heard,
            overruns: it.totals.overruns,
            in_flight: in_flight.remove(&id).unwrap_or(0),
        });
        let mut peers: Vec<RouterFigures> = talking.collect();
        peers.extend(in_flight.into_iter().map(|(id, in_flight)| RouterFigures {
            id: id.to_string(),
            address: String::new(),
            state: "lost",
            lag_seconds: 0.0,
            bytes_told: 0,
            bytes_heard: 0,
            gaps: 0,
            snapshots_told: 0,
            snapshots_heard: 0,
            overruns: 0,
            in_flight,
        }));
        let own = Some(sharing.router().to_string());
        let standing = StandingFigures::of(router);
        Self { own, joining: sharing.is_joining(), standing, peers }
    }
}
