//! The routers that decide as one, as JSON, as this one sees them.

use std::collections::BTreeMap;

use cleave_core::domain::{Moment, RouterId};
use serde::Serialize;

use crate::proxy::{Router, StoreStanding};

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
    /// What says which router leads: `store`, or `majority` where there is none or it does not answer.
    pub leader_by: &'static str,
    /// The store that routers share; left out where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreFigures>,
}

/// The store that routers share.
#[derive(Clone, Debug, Serialize)]
pub struct StoreFigures {
    /// `answering`, or `silent`: then orders and plans are kept in memory.
    pub state: &'static str,
    /// For how long it has not answered; null where it never did.
    pub silent_seconds: Option<f64>,
    /// Why it does not.
    pub trouble: Option<String>,
    pub failures: u64,
    /// Orders and plans that this router wrote there, and times that it was refused because another leads.
    pub writes: u64,
    pub fenced: u64,
}

impl StoreFigures {
    fn of(store: StoreStanding, now: Moment) -> Self {
        Self {
            state: if store.is_answering { "answering" } else { "silent" },
            silent_seconds: store.answered_at.map(|it| now.since(it).as_secs_f64()),
            trouble: store.trouble,
            failures: store.failures,
            writes: store.writes,
            fenced: store.fenced,
        }
    }
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
            leader_by: if it.is_by_store { "store" } else { "majority" },
            store: sharing.store().map(|it| StoreFigures::of(it, router.now())),
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
