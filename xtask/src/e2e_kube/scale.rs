//! A router that scales by itself: it writes the scale of a Deployment and of a `StatefulSet` of the real API server, with
//! the role of the manifests, while another writer changes the Deployment all the time; and it says so when the role
//! is taken away.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;

use super::api_server::ApiServer;
use super::controller::{Controller, Kind};
use crate::e2e_scale::clients::{Clients, Sums};
use crate::http1::{self, free_address};
use crate::process::must;
use crate::repo;
use crate::rig::{self, TOKEN};
use crate::server::Server;

const MAX: usize = 3;
/// Clients of a burst; more than two replicas can keep up with.
const CLIENTS: usize = 24;
const POLL: Duration = Duration::from_millis(200);
const PHASE_LIMIT: Duration = Duration::from_secs(240);
/// Changes that the other writer makes at a time.
const CHANGES: u32 = 64;

#[derive(Deserialize)]
struct KubeScalePage {
    pools: Vec<KubeScaledPool>,
}

#[derive(Deserialize)]
struct KubeScaledPool {
    steps_done: u64,
    steps_failed: u64,
    terms: Option<ReadyTerms>,
}

#[derive(Deserialize)]
struct ReadyTerms {
    ready: usize,
}

struct ScaleRig<'a> {
    api: &'a ApiServer,
    controller: Controller,
    address: SocketAddr,
    admin: SocketAddr,
    router: Server,
    asked: Vec<(&'static str, Sums)>,
}

pub(super) fn run(api: &ApiServer, binary: &Path, folder: &Path) -> Result<()> {
    must(&mut role(api, "apply"))?;
    deployment(api, binary, folder)?;
    stateful_set(api, binary, folder)
}

fn deployment(api: &ApiServer, binary: &Path, folder: &Path) -> Result<()> {
    let mut rig = ScaleRig::start(api, binary, folder, Kind::Deployment, "scaled")?;
    let before = conflicts(api)?;
    let burst = Clients::start(rig.address, CLIENTS, Duration::ZERO);
    let grown = rig.until_beside_another_writer("all replicas are there", MAX)?;
    let conflicts = conflicts(api)? - before;
    let steps = rig.page()?;
    println!(
        "Deployment: 1 to {MAX} replicas in {:.1} s beside another writer; {conflicts} conflicts, {} steps done, {} \
         failed",
        grown.as_secs_f64(),
        steps.steps_done,
        steps.steps_failed
    );
    ensure!(0 < conflicts, "no write met the other writer's: nothing is shown");
    rig.note("burst", burst)?;
    let shrunk = rig.until_quiet("one replica is left", 1)?;
    println!("down to one in {:.1} s, marked pods first", shrunk.as_secs_f64());

    must(&mut role(api, "delete"))?;
    let burst = Clients::start(rig.address, CLIENTS, Duration::ZERO);
    let said = rig.router.wait_for(PHASE_LIMIT, |lines| {
        let is_it = |it: &&&str| it.contains("scaling") && it.contains("forbidden");
        lines.iter().find(is_it).map(|it| (*it).to_owned())
    })?;
    println!("denied: {said}");
    ensure!(said.contains("deploy/kubernetes/scaling/rbac.yaml"), "it does not say what to grant");
    must(&mut role(api, "apply"))?;
    let granted = rig.until("it is tried again", MAX)?;
    println!("{MAX} replicas {:.1} s after the role was granted", granted.as_secs_f64());
    rig.note("burst without the role", burst)?;
    rig.report()
}

fn stateful_set(api: &ApiServer, binary: &Path, folder: &Path) -> Result<()> {
    let mut rig = ScaleRig::start(api, binary, folder, Kind::StatefulSet, "ordered")?;
    let burst = Clients::start(rig.address, CLIENTS, Duration::ZERO);
    let grown = rig.until("all replicas are there", MAX)?;
    rig.note("burst", burst)?;
    let shrunk = rig.until_quiet("one replica is left", 1)?;
    let (grown, shrunk) = (grown.as_secs_f64(), shrunk.as_secs_f64());
    println!("StatefulSet: 1 to {MAX} replicas in {grown:.1} s, down to one in {shrunk:.1} s");
    ensure!(rig.controller.ended == [2, 1], "ended {:?}", rig.controller.ended);
    ensure!(rig.page()?.steps_failed == 0, "a step failed");
    rig.report()
}

impl<'a> ScaleRig<'a> {
    fn start(
        api: &'a ApiServer,
        binary: &Path,
        folder: &Path,
        kind: Kind,
        name: &'static str,
    ) -> Result<Self> {
        let mut controller = Controller::create(api, binary, folder, kind, name)?;
        controller.work(api)?;
        let (address, admin) = (free_address()?, free_address()?);
        let account = api.kubeconfig_of("llm", "cleave")?;
        let object = match kind {
            Kind::Deployment => "deployment",
            Kind::StatefulSet => "statefulset",
        };
        let config = format!(
            "listen = \"{address}\"\nadmin.listen = \"{admin}\"\nadmin.token = \"{TOKEN}\"\nthreads = 2\n\
             health.interval = \"500ms\"\nlog.access = false\n[[pools]]\nname = \"chat\"\nmodels = [\"m\"]\n\
             discover = \"kubernetes\"\nkubernetes = {{ selector = \"app={name}\", kubeconfigs = [\"{}\"] }}\n\
             scaling = {{ mode = \"kubernetes\", target = \"{object}/{name}\", min = 1, max = {MAX} }}\n",
            account.display()
        );
        let mut command = rig::router(binary, folder, &config)?;
        let router = Server::start(&format!("{name}-router"), &mut command, folder)?;
        rig::wait_until_ready(admin, folder)?;
        let mut rig = Self { api, controller, address, admin, router, asked: Vec::new() };
        rig.until("one replica is up", 1)?;
        Ok(rig)
    }

    fn page(&self) -> Result<KubeScaledPool> {
        let (head, body) = http1::get_as(TOKEN, self.admin, "/scale")?;
        ensure!(head.is_success(), "no page: {}", head.first_line);
        let page: KubeScalePage = serde_json::from_slice(&body)?;
        page.pools.into_iter().next().context("one pool is scaled")
    }

    /// Lets the controller work until this number of replicas is wanted and ready; returns how long that took.
    fn until(&mut self, what: &str, replicas: usize) -> Result<Duration> {
        let began = Instant::now();
        loop {
            let wanted = self.controller.work(self.api)?;
            let ready = self.page()?.terms.map_or(0, |it| it.ready);
            if (wanted, ready) == (replicas, replicas) {
                return Ok(began.elapsed());
            }
            ensure!(began.elapsed() < PHASE_LIMIT, "waited in vain: {what}");
            thread::sleep(POLL);
        }
    }

    /// The same, while another writer changes the object as fast as it can.
    fn until_beside_another_writer(&mut self, what: &str, replicas: usize) -> Result<Duration> {
        let (api, path, is_over) = (self.api, self.controller.path(), AtomicBool::new(false));
        let write = || -> Result<()> {
            for round in 0.. {
                if is_over.load(Relaxed) {
                    break;
                }
                let change = |it: u32| {
                    let text =
                        format!(r#"{{"metadata":{{"annotations":{{"it":"{round}-{it}"}}}}}}"#);
                    ("PATCH", path.clone(), text)
                };
                api.call_all((0..CHANGES).map(change))?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let writer = scope.spawn(write);
            let took = self.until(what, replicas);
            is_over.store(true, Relaxed);
            writer.join().map_err(|_| anyhow!("the other writer panicked"))??;
            took
        })
    }

    /// The same, with one client that asks now and then.
    fn until_quiet(&mut self, what: &str, replicas: usize) -> Result<Duration> {
        let quiet = Clients::start(self.address, 1, Duration::from_secs(2));
        let took = self.until(what, replicas)?;
        self.note("quiet", quiet)?;
        Ok(took)
    }

    fn note(&mut self, what: &'static str, clients: Clients) -> Result<()> {
        self.asked.push((what, clients.stop()?.sums()));
        Ok(())
    }

    fn report(&self) -> Result<()> {
        for (what, it) in &self.asked {
            let Sums { answered, refused, lost, longest } = it;
            println!("  {what}: {answered} answered, {refused} refused, longest {longest:.1?}");
            ensure!(lost.is_empty() && *refused == 0, "lost or refused: {refused}, {lost:?}");
        }
        let Controller { ended, ended_busy, .. } = &self.controller;
        println!("  {} pods ended, {ended_busy} of them with work left", ended.len());
        ensure!(*ended_busy == 0, "a pod was ended that still had work");
        Ok(())
    }
}

/// Gives the router the role to scale, or takes it away.
fn role(api: &ApiServer, verb: &str) -> std::process::Command {
    let role = repo::root().join("deploy/kubernetes/scaling/rbac.yaml");
    let mut command = api.kubectl(&["--namespace", "llm", verb, "-f"]);
    command.arg(role);
    command
}

/// Counts the writes of a Deployment's scale that the API server refused because another writer was faster.
fn conflicts(api: &ApiServer) -> Result<u64> {
    let page = api.call("GET", "/metrics", "")?;
    let page = String::from_utf8_lossy(&page);
    let is_it = |it: &&str| {
        it.starts_with("apiserver_request_total{")
            && [r#"code="409""#, r#"resource="deployments""#, r#"subresource="scale""#]
                .iter()
                .all(|part| it.contains(part))
    };
    let counts = page.lines().filter(is_it).filter_map(|it| it.rsplit(' ').next());
    Ok(counts.filter_map(|it| it.parse::<u64>().ok()).sum())
}
