//! A rolling update of all pods under load, and an API server that is killed under load. Nothing may be lost, a pod must
//! be drained before it is removed, and only sessions of pods that leave may move without need.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::api_server::ApiServer;
use super::fleet::{PodFleet, REPLICAS};
use crate::chaos::client::{ChaosLoad, Fate, Record};
use crate::watch::Watch;

/// How long the load runs before and after.
const MARGIN: Duration = Duration::from_secs(3);

pub(super) fn run(api: &ApiServer, fleet: &mut PodFleet, clients: u32) -> Result<()> {
    // Before the first request: what moves early is among the records too.
    let before = fleet.pool()?.sessions_moved;
    let load = ChaosLoad::start(fleet.address, fleet.reference, clients, 1);
    thread::sleep(MARGIN);
    let mut ended = BTreeMap::new();
    for number in 0..REPLICAS {
        fleet.add(api)?;
        let url = format!("http://{}", fleet.pods[&number].address);
        ended.insert(fleet.pods[&number].name.clone(), Instant::now());
        fleet.order_end(api, number)?;
        let noticed = fleet.wait("its end is noticed", |all| {
            all.iter().all(|it| it.url != url || it.state == "leaving")
        })?;
        let drained = fleet.wait("it is drained", |all| all.iter().all(|it| it.url != url))?;
        println!("r{number}: noticed after {noticed:.0?}, drained {drained:.1?} later");
        fleet.remove(api, number)?;
    }
    thread::sleep(MARGIN);
    let records = load.stop();
    let after = fleet.pool()?.sessions_moved;
    let since = |cause: &str| after.get(cause).unwrap_or(&0) - before.get(cause).unwrap_or(&0);
    let causes: Vec<String> = after.keys().map(|it| format!("{it} {}", since(it))).collect();
    let (explained, others) = moves(&records, &ended);
    println!(
        "rolling update: {} requests, {explained} moves of sessions from pods that left, {others} others; the router \
         says: {}",
        records.len(),
        causes.join(", ")
    );
    judge(&records)?;
    // A session may leave a replica that is busy, or that its workload gave up for a new one; the router counts those.
    let needed = since("overloaded") + since("spilled") + since("rebalanced");
    ensure!(others <= needed, "{others} sessions moved without need, {needed} by need");
    Ok(())
}

/// Kills the API server for a while under load, and sees that nothing changes and that all goes on afterwards.
pub(super) fn without_api_server(
    api: &mut ApiServer,
    fleet: &mut PodFleet,
    clients: u32,
    away: Duration,
) -> Result<()> {
    let load = ChaosLoad::start(fleet.address, fleet.reference, clients, 2);
    thread::sleep(MARGIN);
    let watch = Watch::start(fleet.admin);
    thread::sleep(MARGIN);
    api.kill()?;
    let killed = Instant::now();
    thread::sleep(away);
    api.serve()?;
    println!("the API server was away for {:.0?}", killed.elapsed());
    let records = load.stop();
    // Each replica is seen once; anything more is a change.
    let changes = watch.stop();
    ensure!(changes.len() == REPLICAS, "replicas changed: {changes:?}");
    judge(&records)?;
    println!("API server away: {} requests, nothing lost, no replica changed", records.len());
    fleet.add(api)?;
    Ok(())
}

/// Counts sessions that went on at another replica than before: from pods whose end was ordered, and others. One that
/// comes back to where it was has moved once, as the router sees it: its home was there all the time.
fn moves(records: &[Record], ended: &BTreeMap<String, Instant>) -> (u64, u64) {
    let mut sessions = BTreeMap::<u64, Vec<&Record>>::new();
    for it in records {
        sessions.entry(it.session).or_default().push(it);
    }
    let (mut explained, mut others) = (0, 0);
    for turns in sessions.values_mut() {
        turns.sort_by_key(|it| it.ended);
        let mut before = None;
        for pair in turns.windows(2) {
            let (Some(from), Some(to)) = (&pair[0].replica, &pair[1].replica) else { continue };
            if from == to {
                continue;
            }
            let is_return = before.replace(from) == Some(to);
            if ended.get(from).is_some_and(|at| *at <= pair[1].ended) {
                explained += 1;
            } else if !is_return {
                others += 1;
            }
        }
    }
    (explained, others)
}

fn judge(records: &[Record]) -> Result<()> {
    let failed: Vec<String> = records
        .iter()
        .filter(|it| it.fate != Fate::Answered)
        .map(|it| format!("{:?} {}", it.fate, it.why))
        .collect();
    ensure!(!records.is_empty() && failed.is_empty(), "{} lost: {failed:?}", failed.len());
    Ok(())
}
