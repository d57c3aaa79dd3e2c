//! Pods that are mock replicas, and the router in front of them. What a kubelet would say of a pod is written here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::api_server::ApiServer;
use crate::http1::{self, free_address};
use crate::rig::{self, POLL, TOKEN};
use crate::server::Server;

pub(super) const REPLICAS: usize = 8;
const LIMIT: Duration = Duration::from_secs(60);
/// All replicas say the same to the same prompt.
const SEED: &str = "7";

pub(super) struct PodFleet {
    binary: PathBuf,
    folder: PathBuf,
    /// By name, in the order they were started.
    pub(super) pods: BTreeMap<usize, RunningPod>,
    started: usize,
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) reference: SocketAddr,
    _reference: Server,
    _router: Server,
}

pub(super) struct RunningPod {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    _server: Server,
}

#[derive(Deserialize)]
pub(super) struct StatusPage {
    pub(super) pools: Vec<PoolPage>,
}

#[derive(Deserialize)]
pub(super) struct PoolPage {
    pub(super) replicas: Vec<ReplicaPage>,
    pub(super) sessions_moved: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
pub(super) struct ReplicaPage {
    pub(super) url: String,
    pub(super) state: String,
}

/// A pod as the API server takes it.
pub(super) fn pod_json(name: &str, app: &str, port: u16) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app":"{app}"}}}},"spec":{{"nodeName":"node-1","containers":[{{"name":"vllm","image":"mock","ports":[{{"name":"http","containerPort":{port}}}]}}]}}}}"#
    )
}

/// What a kubelet says of a pod that runs at an address.
pub(super) fn status_json(ip: &str, is_ready: bool) -> String {
    let ready = if is_ready { "True" } else { "False" };
    format!(
        r#"{{"status":{{"phase":"Running","podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],"conditions":[{{"type":"Ready","status":"{ready}"}}],"containerStatuses":[{{"name":"vllm","image":"mock","imageID":"mock","ready":{is_ready},"restartCount":0,"containerID":"mock://1"}}]}}}}"#
    )
}

impl PodFleet {
    pub(super) fn start(api: &ApiServer, binary: &Path, folder: &Path) -> Result<Self> {
        let (address, admin, reference) = (free_address()?, free_address()?, free_address()?);
        let arguments = ["--seed", SEED, "--speed", "inf"];
        let standard = rig::start_mock(binary, folder, "reference", reference, &arguments)?;
        // The account of the manifests, so that their role is what is tried.
        let account = api.kubeconfig_of("llm", "cleave")?;
        let config = format!(
            "listen = \"{address}\"\nadmin.listen = \"{admin}\"\nadmin.token = \"{TOKEN}\"\nthreads = 2\n\
             health.interval = \"500ms\"\nlog.access = false\n[[pools]]\nname = \"chat\"\n\
             discover = \"kubernetes\"\nkubernetes = {{ selector = \"app=mock\", kubeconfigs = [\"{}\"] }}\n",
            account.display()
        );
        let router = Server::start("router", &mut rig::router(binary, folder, &config)?, folder)?;
        let (binary, folder) = (binary.to_owned(), folder.to_owned());
        let (pods, started) = (BTreeMap::new(), 0);
        let mut fleet = Self {
            binary,
            folder,
            pods,
            started,
            address,
            admin,
            reference,
            _reference: standard,
            _router: router,
        };
        for _ in 0..REPLICAS {
            fleet.add(api)?;
        }
        rig::wait_until_ready(admin, &fleet.folder)?;
        Ok(fleet)
    }

    /// Starts a replica, makes a pod of it and waits until the router sends there; returns its number.
    pub(super) fn add(&mut self, api: &ApiServer) -> Result<usize> {
        let number = self.started;
        self.started += 1;
        let (name, address) = (format!("r{number}"), free_address()?);
        let arguments = ["--seed", SEED, "--speed", "1", "--batched-tokens", "2048"];
        let server = rig::start_mock(&self.binary, &self.folder, &name, address, &arguments)?;
        api.call("POST", "/api/v1/namespaces/llm/pods", &pod_json(&name, "mock", address.port()))?;
        let path = format!("/api/v1/namespaces/llm/pods/{name}/status");
        api.call("PATCH", &path, &status_json("127.0.0.1", true))?;
        self.pods.insert(number, RunningPod { name, address, _server: server });
        self.wait(&format!("r{number} is up"), |it| {
            it.iter().any(|it| it.url == format!("http://{address}") && it.state == "up")
        })?;
        Ok(number)
    }

    /// Orders the end of a pod, as `kubectl delete` does.
    pub(super) fn order_end(&self, api: &ApiServer, number: usize) -> Result<()> {
        let name = &self.pods[&number].name;
        let path = format!("/api/v1/namespaces/llm/pods/{name}?gracePeriodSeconds=60");
        api.call("DELETE", &path, "").map(drop)
    }

    /// Ends the replica, and says to the API server that it is gone, as a kubelet does.
    pub(super) fn remove(&mut self, api: &ApiServer, number: usize) -> Result<()> {
        let gone = self.pods.remove(&number).context("it is there")?;
        let path = format!("/api/v1/namespaces/llm/pods/{}?gracePeriodSeconds=0", gone.name);
        drop(gone);
        api.call("DELETE", &path, "").map(drop)
    }

    pub(super) fn pool(&self) -> Result<PoolPage> {
        let (_, body) = http1::get_as(TOKEN, self.admin, "/status")?;
        let page: StatusPage = serde_json::from_slice(&body)?;
        page.pools.into_iter().next().context("there is one pool")
    }

    /// Waits until the replicas are as wanted; returns how long that took.
    pub(super) fn wait(
        &self,
        what: &str,
        holds: impl Fn(&[ReplicaPage]) -> bool,
    ) -> Result<Duration> {
        let began = Instant::now();
        // The router may not answer yet.
        while !self.pool().is_ok_and(|it| holds(&it.replicas)) {
            ensure!(began.elapsed() < LIMIT, "waited in vain: {what}");
            thread::sleep(POLL);
        }
        Ok(began.elapsed())
    }
}
