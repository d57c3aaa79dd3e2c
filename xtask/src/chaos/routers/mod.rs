//! `cargo xtask chaos --routers 3`: several routers that decide as one, in front of eight mock replicas, with chats whose
//! turns go to any of them; routers are killed, stopped, cut off, restarted and replaced, and the etcd that they share is
//! killed and wiped. Replicas are left alone, so that whatever moves or is lost is the routers' doing.

mod hits;
mod load;
mod metered;
mod report;
mod scene;
mod script;
mod shim;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{repo, rig};
use load::TurnLoad;
use metered::MeteredLoad;
use report::RoutersRun;
use scene::{EtcdServer, RouterScene};

/// How long the load runs before the first fault: a minute in which a contract can be looked at, and its beginning.
const CALM: Duration = Duration::from_secs(67);
/// And after the last.
const MARGIN: Duration = Duration::from_secs(10);
/// How long routers may take to agree at their start.
pub(super) const START_MAX: Duration = Duration::from_secs(30);
/// How long after the load a router may believe that another one has something in flight: one that was killed said
/// nothing of its ends.
const EMPTY_MAX: Duration = Duration::from_secs(30);
pub(super) const CHATS: u32 = 200;

/// What is asked of a run.
pub(super) struct Wanted {
    pub(super) routers: usize,
    pub(super) cleave: Option<PathBuf>,
    pub(super) seed: u64,
    pub(super) rounds: u32,
    pub(super) clients: u32,
    pub(super) json: Option<PathBuf>,
    /// What the routers are until they are upgraded.
    pub(super) older: Option<PathBuf>,
}

pub(super) fn run(wanted: &Wanted) -> Result<()> {
    let binary = rig::binary(wanted.cleave.as_ref())?;
    let folder = repo::target_dir().join("chaos-routers");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let has_etcd = EtcdServer::is_installed();
    if !has_etcd {
        println!("no etcd is installed (Debian: etcd-server); the majority elects the leader");
    }
    let hits = hits::compare(&binary, &folder, wanted.routers, wanted.seed)?;
    hits.print(wanted.routers);
    let mut scene =
        RouterScene::start((&binary, wanted.older.as_deref()), &folder, wanted.routers, has_etcd)?;
    ensure!(scene.agree_after(START_MAX).is_some(), "the routers do not come to agree");
    let addresses: Vec<SocketAddr> = scene.routers.iter().map(|it| it.address).collect();
    let admins: Vec<SocketAddr> = scene.routers.iter().map(|it| it.admin).collect();
    let size = (wanted.clients, CHATS);
    let load = TurnLoad::start(&addresses, scene.reference, size, wanted.seed);
    println!("seed {}: {} routers, {CHATS} chats", wanted.seed, wanted.routers);
    let began = Instant::now();
    let metered = MeteredLoad::start(&addresses, &admins, wanted.seed);
    thread::sleep(CALM);
    let struck = script::run(&mut scene, wanted.seed, wanted.rounds);
    thread::sleep(MARGIN);
    let metered = metered.stop(began);
    let records = load.stop();
    let empty = scene.empty_after(EMPTY_MAX);
    let run = RoutersRun {
        seed: wanted.seed,
        seconds: began.elapsed().as_secs(),
        routers: wanted.routers,
        has_etcd,
        records: &records,
        metered: &metered,
        hits,
        struck: &struck?,
        bytes_told: scene.bytes_told(),
        empty,
    };
    let report = run.report();
    report.print();
    if let Some(file) = &wanted.json {
        let text = serde_json::to_string_pretty(&report)?;
        fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    match report.missed().as_slice() {
        [] => Ok(()),
        missed => bail!("missed: {}", missed.join("; ")),
    }
}
