//! The part of Kubernetes that turns a scale into pods. The API server of this test has no controllers, so this
//! program starts and ends mock replicas until there are as many as the object says, and chooses as Kubernetes does:
//! of a Deployment the pod with the lowest deletion cost goes first, of a `StatefulSet` the highest number.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::api_server::ApiServer;
use super::fleet::{pod_json, status_json};
use crate::e2e_scale::hosts::has_work;
use crate::http1::free_address;
use crate::rig;
use crate::server::Server;

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Deployment,
    StatefulSet,
}

pub(super) struct Controller {
    binary: PathBuf,
    folder: PathBuf,
    kind: Kind,
    /// Of the object, and the label of its pods.
    pub(super) name: &'static str,
    /// By number, which is the end of the pod's name.
    pods: BTreeMap<u32, (SocketAddr, Server)>,
    started: u32,
    /// Numbers of pods that were ended, in order.
    pub(super) ended: Vec<u32>,
    /// How many of them still had work.
    pub(super) ended_busy: usize,
}

#[derive(Deserialize)]
struct ScaledObject {
    spec: ScaledSpec,
}

#[derive(Deserialize)]
struct ScaledSpec {
    replicas: usize,
}

#[derive(Deserialize)]
struct MarkedPod {
    metadata: MarkedMetadata,
}

#[derive(Deserialize)]
struct MarkedMetadata {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Kind {
    /// As paths name it.
    const fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }
}

impl Controller {
    /// Makes an object that wants one replica.
    pub(super) fn create(
        api: &ApiServer,
        binary: &Path,
        folder: &Path,
        kind: Kind,
        name: &'static str,
    ) -> Result<Self> {
        let service = match kind {
            Kind::Deployment => "",
            Kind::StatefulSet => r#""serviceName":"none","#,
        };
        let object = format!(
            r#"{{"apiVersion":"apps/v1","kind":"{}","metadata":{{"name":"{name}"}},"spec":{{{service}"replicas":1,"selector":{{"matchLabels":{{"app":"{name}"}}}},"template":{{"metadata":{{"labels":{{"app":"{name}"}}}},"spec":{{"containers":[{{"name":"vllm","image":"mock"}}]}}}}}}}}"#,
            kind.word()
        );
        api.call("POST", &format!("/apis/apps/v1/namespaces/llm/{}", kind.plural()), &object)?;
        let (binary, folder) = (binary.to_owned(), folder.to_owned());
        let (pods, ended) = Default::default();
        Ok(Self { binary, folder, kind, name, pods, started: 0, ended, ended_busy: 0 })
    }

    pub(super) fn path(&self) -> String {
        format!("/apis/apps/v1/namespaces/llm/{}/{}", self.kind.plural(), self.name)
    }

    /// Starts and ends pods as the scale says; returns how many it wants.
    pub(super) fn work(&mut self, api: &ApiServer) -> Result<usize> {
        let object: ScaledObject = serde_json::from_slice(&api.call("GET", &self.path(), "")?)?;
        let wanted = object.spec.replicas;
        while self.pods.len() < wanted {
            self.start(api)?;
        }
        while wanted < self.pods.len() {
            let number = self.next_to_go(api)?;
            self.end(api, number)?;
        }
        Ok(wanted)
    }

    fn start(&mut self, api: &ApiServer) -> Result<()> {
        let number = match self.kind {
            Kind::Deployment => self.started,
            Kind::StatefulSet => u32::try_from(self.pods.len())?,
        };
        self.started += 1;
        let (name, address) = (format!("{}-{number}", self.name), free_address()?);
        let arguments = ["--batched-tokens", "2048"];
        let server = rig::start_mock(&self.binary, &self.folder, &name, address, &arguments)?;
        let pod = pod_json(&name, self.name, address.port());
        api.call("POST", "/api/v1/namespaces/llm/pods", &pod)?;
        let path = format!("/api/v1/namespaces/llm/pods/{name}/status");
        api.call("PATCH", &path, &status_json("127.0.0.1", true))?;
        self.pods.insert(number, (address, server));
        Ok(())
    }

    fn next_to_go(&self, api: &ApiServer) -> Result<u32> {
        let newest = *self.pods.keys().next_back().context("one is there")?;
        if self.kind == Kind::StatefulSet {
            return Ok(newest);
        }
        let mut marked = Vec::new();
        for number in self.pods.keys() {
            let path = format!("/api/v1/namespaces/llm/pods/{}-{number}", self.name);
            let pod: MarkedPod = serde_json::from_slice(&api.call("GET", &path, "")?)?;
            if let Some(cost) = pod.metadata.annotations.get(COST) {
                marked.push((cost.parse::<i32>()?, *number));
            }
        }
        ensure!(!marked.is_empty(), "the Deployment shrinks, and no pod is marked to go first");
        marked.sort_unstable();
        Ok(marked[0].1)
    }

    fn end(&mut self, api: &ApiServer, number: u32) -> Result<()> {
        let path = format!("/api/v1/namespaces/llm/pods/{}-{number}", self.name);
        api.call("DELETE", &format!("{path}?gracePeriodSeconds=60"), "")?;
        if let Some((address, server)) = self.pods.remove(&number) {
            self.ended_busy += usize::from(has_work(address));
            drop(server);
        }
        self.ended.push(number);
        api.call("DELETE", &format!("{path}?gracePeriodSeconds=0"), "").map(drop)
    }
}
