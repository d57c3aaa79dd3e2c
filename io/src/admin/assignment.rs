//! The holders of every key, as JSON, and the orders an operator may give about them: freeze, pin,
//! drain.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use bytes::Bytes;
use cleave_core::brain::{AssignmentView, Order, SliceView, WorkloadView};
use cleave_core::domain::Place;
use serde::Serialize;

use crate::proxy::{Given, NotOrdered, Pool, Router, WorkloadNames};

use super::pins::{PinFigures, pins_of};
use super::tokens::Operator;

/// What `/assignment` answers.
#[derive(Clone, Debug, Serialize)]
pub struct Assignments {
    pub pools: Vec<PoolAssignment>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PoolAssignment {
    pub name: String,
    pub generation: String,
    /// Whether workloads have subsets; a small pool or one with a single workload is not divided.
    pub divided: bool,
    pub frozen: bool,
    pub drained: Vec<String>,
    pub pins: Vec<PinFigures>,
    /// Replicas that two of the smallest subsets share on average.
    pub overlap_expected: f64,
    pub balance: BalanceFigures,
    /// As shares of all load, since the start.
    pub churn: ChurnFigures,
    pub rounds: u64,
    pub changes: u64,
    pub spilled: u64,
    pub stood_in: u64,
    pub moved_tokens: u64,
    pub hot_keys: Vec<HotKey>,
    /// Of the replicas that are in one.
    pub zones: BTreeMap<String, String>,
    pub workloads: Vec<WorkloadFigures>,
    pub slices: Vec<SliceFigures>,
}

/// Load by replica, each as a share of its capacity.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BalanceFigures {
    pub mean: f64,
    pub max: f64,
    pub min: f64,
    pub imbalance: f64,
    /// No assignment has less.
    pub imbalance_bound: f64,
    /// The most loaded if the key space were cut in fixed parts.
    pub static_max: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct ChurnFigures {
    pub removal: f64,
    pub addition: f64,
    pub choice: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct HotKey {
    pub key: String,
    pub mu_per_min: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct WorkloadFigures {
    /// The workload half of its keys, by which it can be pinned.
    pub workload: String,
    /// What the configuration calls it, or its tenant and model where both are known.
    pub name: Option<String>,
    pub replicas: Vec<String>,
    /// The zones these are in.
    pub zones: Vec<String>,
    pub mu_per_min: f64,
    pub pinned: bool,
    /// By which token it was pinned, and when.
    pub pinned_by: Option<Given>,
    pub exclusive: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct SliceFigures {
    pub low: String,
    pub high: String,
    pub replicas: Vec<String>,
    pub mu_per_min: f64,
    pub why: &'static str,
    /// Number of the generation since which it is so.
    pub since: u64,
    /// The replica that held the state of these keys before.
    pub previous: Option<String>,
}

/// Addresses by place, and zones by address.
struct Names {
    places: BTreeMap<Place, String>,
    zones: BTreeMap<String, String>,
}

impl Names {
    fn of(pool: &Pool) -> Self {
        let replicas = pool.snapshot().replicas.into_iter();
        let places = replicas.map(|it| (Place::of(&it.name), it.name)).collect();
        Self { places, zones: pool.zones() }
    }

    /// Names a place; one whose replica is gone by its number.
    fn name(&self, place: Place) -> String {
        self.places.get(&place).cloned().unwrap_or_else(|| format!("{:016x}", place.0))
    }

    fn names(&self, places: &[Place]) -> Vec<String> {
        places.iter().map(|it| self.name(*it)).collect()
    }
}

impl PoolAssignment {
    fn of(router: &Router, pool: &Pool) -> Self {
        let (names, known) = (Names::of(pool), router.workload_names(pool));
        let view = pool.assignment();
        let AssignmentView { balance, totals, .. } = view;
        let pins = pins_of(router, pool);
        let workloads = view.workloads.iter().map(|it| workload(it, &names, &known, &pins));
        let workloads = workloads.collect();
        Self {
            name: pool.name.clone(),
            generation: view.generation.to_string(),
            divided: view.divided,
            frozen: view.frozen,
            drained: names.names(&view.drained),
            pins,
            overlap_expected: view.overlap_expected,
            balance: BalanceFigures {
                mean: balance.mean,
                max: balance.max,
                min: balance.min,
                imbalance: balance.imbalance,
                imbalance_bound: balance.imbalance_bound,
                static_max: balance.static_max,
            },
            churn: ChurnFigures {
                removal: totals.removal,
                addition: totals.addition,
                choice: totals.choice,
            },
            rounds: totals.rounds,
            changes: totals.changes,
            spilled: totals.spilled,
            stood_in: totals.stood_in,
            moved_tokens: totals.moved_tokens,
            hot_keys: view
                .hot_keys
                .iter()
                .map(|it| HotKey { key: format!("{:016x}", it.key), mu_per_min: it.load * 60.0 })
                .collect(),
            zones: names.zones.clone(),
            workloads,
            slices: view.slices.iter().map(|it| slice(it, &names)).collect(),
        }
    }
}

fn workload(
    it: &WorkloadView,
    names: &Names,
    known: &WorkloadNames,
    pins: &[PinFigures],
) -> WorkloadFigures {
    let workload = format!("{:08x}", it.workload);
    let pin = pins.iter().find(|pin| it.pinned && pin.workload == workload);
    let replicas = names.names(&it.replicas);
    let mut zones: Vec<String> =
        replicas.iter().filter_map(|it| names.zones.get(it).cloned()).collect();
    zones.sort_unstable();
    zones.dedup();
    WorkloadFigures {
        workload,
        name: it.name.clone().or_else(|| known.find(it.workload).map(str::to_owned)),
        replicas,
        zones,
        mu_per_min: it.mu_per_min,
        pinned: it.pinned,
        pinned_by: pin.map(|it| it.given.clone()),
        exclusive: it.exclusive,
    }
}

fn slice(it: &SliceView, names: &Names) -> SliceFigures {
    SliceFigures {
        low: format!("{:016x}", it.slice.low),
        high: format!("{:016x}", it.slice.high),
        replicas: names.names(&it.holders),
        mu_per_min: it.mu_per_min,
        why: it.why.as_str(),
        since: it.since,
        previous: it.previous.map(|it| names.name(it)),
    }
}

pub(super) async fn show(State(router): State<Arc<Router>>) -> Json<Assignments> {
    Json(Assignments {
        pools: router.pools().iter().map(|it| PoolAssignment::of(&router, it)).collect(),
    })
}

type Said = (StatusCode, String);

pub(super) async fn freeze(State(router): State<Arc<Router>>, by: Extension<Operator>) -> Said {
    for_all(&router, &by, || Order::Freeze, "assignments stay as they are\n")
}

pub(super) async fn unfreeze(State(router): State<Arc<Router>>, by: Extension<Operator>) -> Said {
    for_all(&router, &by, || Order::Unfreeze, "assignments follow the load again\n")
}

pub(super) async fn drain(
    State(router): State<Arc<Router>>,
    by: Extension<Operator>,
    Path(replica): Path<String>,
) -> Said {
    let done = "takes nothing new; its sessions leave at their next turn";
    for_replica(&router, &replica, &by, |it| Order::Drain { replica: it }, done)
}

pub(super) async fn undrain(
    State(router): State<Arc<Router>>,
    by: Extension<Operator>,
    Path(replica): Path<String>,
) -> Said {
    let done = "takes sessions again";
    for_replica(&router, &replica, &by, |it| Order::Undrain { replica: it }, done)
}

fn for_all(router: &Router, by: &Operator, order: impl Fn() -> Order, done: &str) -> Said {
    let (mut given, mut notes) = (Vec::new(), String::new());
    for pool in router.pools().iter() {
        match router.order(pool, order(), &by.name) {
            Ok(unkept) => notes.extend(unkept.map(|it| format!("{it}\n"))),
            Err(error) => return refused(&error, &given),
        }
        given.push(pool.name.clone());
    }
    (StatusCode::OK, format!("{done}{notes}{}", kept_note(router)))
}

/// Says so where an order is not kept over a restart of all routers, though it should be, or of this one.
fn kept_note(router: &Router) -> String {
    let Some(sharing) = router.sharing() else {
        let is_kept = router.state_dir().is_some();
        let note = "kept in memory alone: a restart forgets it (subsets.state_dir)\n";
        return if is_kept { "" } else { note }.to_owned();
    };
    let Some(store) = sharing.store().filter(|it| !it.is_answering) else { return String::new() };
    let trouble = store.trouble.as_deref().unwrap_or("it was not heard of yet");
    format!("kept in memory and written to the store when it answers again: {trouble}\n")
}

/// Says why an order is refused; it was `given` to these pools before.
fn refused(error: &NotOrdered, given: &[String]) -> Said {
    let elsewhere = match given {
        [] => String::new(),
        pools => format!("it is in force in pools {}\n", pools.join(", ")),
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n{elsewhere}"))
}

fn for_replica(
    router: &Router,
    address: &str,
    by: &Operator,
    order: impl Fn(cleave_core::domain::ReplicaId) -> Order,
    done: &str,
) -> Said {
    let (mut given, mut notes) = (Vec::new(), String::new());
    for pool in router.pools().iter() {
        if let Some(replica) = pool.find(address) {
            match router.order(pool, order(replica), &by.name) {
                Ok(unkept) => notes.extend(unkept.map(|it| format!("{it}\n"))),
                Err(error) => return refused(&error, &given),
            }
            given.push(pool.name.clone());
        }
    }
    if given.is_empty() {
        (StatusCode::NOT_FOUND, format!("there is no replica {address}\n"))
    } else {
        (StatusCode::OK, format!("{address} {done}\n{notes}{}", kept_note(router)))
    }
}

/// Gives a workload exactly the replicas in the body, a JSON list of addresses; with none it is given
/// back to the planner.
pub(super) async fn pin(
    State(router): State<Arc<Router>>,
    by: Extension<Operator>,
    Path((pool, workload)): Path<(String, String)>,
    body: Bytes,
) -> Said {
    let Some(id) = read_workload(&workload) else {
        let said = "name the workload by the eight digits that /assignment shows\n";
        return (StatusCode::BAD_REQUEST, said.to_owned());
    };
    let pools = router.pools();
    let Some(pool) = pools.iter().find(|it| it.name == pool) else {
        let known: Vec<&str> = pools.iter().map(|it| it.name.as_str()).collect();
        let said = format!("there is no pool {pool}; name one of {}\n", known.join(", "));
        return (StatusCode::NOT_FOUND, said);
    };
    let Some(addresses) = read_addresses(&body) else {
        let said = "list the replicas as JSON: [\"gpu-0:8000\", \"gpu-1:8000\"]\n";
        return (StatusCode::BAD_REQUEST, said.to_owned());
    };
    let mut replicas = Vec::new();
    for address in &addresses {
        match pool.find(address) {
            Some(replica) if replicas.contains(&replica) => {}
            Some(replica) => replicas.push(replica),
            None => {
                let said = format!(
                    "there is no replica {address} in pool {}; GET /status lists them\n",
                    pool.name
                );
                return (StatusCode::NOT_FOUND, said);
            }
        }
    }
    // One that has been quiet for long is no longer shown, and may still be given back.
    let is_shown = || pool.assignment().workloads.iter().any(|it| it.workload == id);
    if !replicas.is_empty() && !is_shown() {
        let said = format!(
            "pool {} has no workload {workload} at present; GET /assignment lists those it has\n",
            pool.name
        );
        return (StatusCode::NOT_FOUND, said);
    }
    let said = match replicas.len() {
        0 => "the planner decides again\n".to_owned(),
        1 => "pinned to 1 replica\n".to_owned(),
        count => format!("pinned to {count} replicas\n"),
    };
    match router.order(pool, Order::Pin { workload: id, replicas }, &by.name) {
        Ok(unkept) => {
            let note = unkept.map(|it| format!("{it}\n")).unwrap_or_default();
            (StatusCode::OK, format!("{said}{note}{}", kept_note(&router)))
        }
        Err(error) => refused(&error, &[]),
    }
}

/// Reads a list of addresses; nothing at all is an empty one.
fn read_addresses(body: &[u8]) -> Option<Vec<String>> {
    if body.trim_ascii().is_empty() {
        return Some(Vec::new());
    }
    serde_json::from_slice(body).ok()
}

/// Reads a workload as it is shown: eight hexadecimal digits.
fn read_workload(text: &str) -> Option<u32> {
    let is_id = text.len() == 8 && text.bytes().all(|it| it.is_ascii_hexdigit());
    is_id.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}
