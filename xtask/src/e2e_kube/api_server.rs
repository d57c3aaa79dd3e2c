//! A real etcd and a real API server on loopback. The API server can be killed and started again on its port, with
//! what it knew. It is asked with curl, because its certificate is its own.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::http1::free_address;
use crate::process::{must, works};
use crate::rig::signal;
use crate::server::Server;

const START_LIMIT: Duration = Duration::from_secs(120);
const TOKEN: &str = "admin-of-the-test";

pub(super) struct ApiServer {
    pub(super) folder: PathBuf,
    address: SocketAddr,
    store: SocketAddr,
    server: Option<Server>,
    _store: Server,
}

#[derive(Deserialize)]
struct TokenAnswer {
    status: TokenStatus,
}

#[derive(Deserialize)]
struct TokenStatus {
    token: String,
}

impl ApiServer {
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let (address, store, peer) = (free_address()?, free_address()?, free_address()?);
        let data = folder.join("etcd-data");
        _ = fs::remove_dir_all(&data);
        let url = |address: SocketAddr| format!("http://{address}");
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(&data).args(["--listen-client-urls", &url(store)]);
        etcd.args(["--advertise-client-urls", &url(store), "--listen-peer-urls", &url(peer)]);
        let started = Server::start("etcd", &mut etcd, folder)?;
        let key = folder.join("sa.key");
        if !key.exists() {
            let openssl = |arguments: &[&str]| {
                must(Command::new("openssl").args(arguments).current_dir(folder))
            };
            openssl(&["genrsa", "-out", "sa.key", "2048"])?;
            openssl(&["rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"])?;
        }
        fs::write(folder.join("tokens.csv"), format!("{TOKEN},admin,admin,system:masters\n"))?;
        let folder = folder.to_owned();
        let mut api = Self { folder, address, store, server: None, _store: started };
        fs::write(api.folder.join("kubeconfig"), api.kubeconfig("default", TOKEN))?;
        api.serve()?;
        Ok(api)
    }

    /// Starts the API server on its port, with what is in the store.
    pub(super) fn serve(&mut self) -> Result<()> {
        let mut command = Command::new(self.folder.join("kube-apiserver"));
        command.current_dir(&self.folder).args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--cert-dir=certs",
            "--service-account-key-file=sa.pub",
            "--service-account-signing-key-file=sa.key",
            "--service-account-issuer=https://127.0.0.1",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
        ]);
        command.arg(format!("--secure-port={}", self.address.port()));
        command.arg(format!("--etcd-servers=http://{}", self.store));
        let mut server = Server::start("apiserver", &mut command, &self.folder)?;
        let url = format!("{}/readyz", self.url());
        let is_ready = || works(curl(&[&url]).arg("--fail"));
        server.wait_for(START_LIMIT, |_| is_ready().then_some(()))?;
        self.server = Some(server);
        Ok(())
    }

    /// Kills the API server without a word.
    pub(super) fn kill(&mut self) -> Result<()> {
        let server = self.server.take().context("it runs")?;
        signal(server.pid(), "KILL")
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.folder.join("kubeconfig")).args(arguments);
        command
    }

    /// Writes the file with which a service account logs in, by a token that the API server makes for it.
    pub(super) fn kubeconfig_of(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["https://127.0.0.1"]}}"#;
        let answer: TokenAnswer = serde_json::from_slice(&self.call("POST", &path, body)?)?;
        let file = self.folder.join(format!("kubeconfig-{namespace}-{account}"));
        fs::write(&file, self.kubeconfig(namespace, &answer.status.token))?;
        Ok(file)
    }

    fn kubeconfig(&self, namespace: &str, token: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\n\
             clusters: [{{name: c, cluster: {{server: \"{}\", insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: u, user: {{token: \"{token}\"}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u, namespace: {namespace}}}}}]\n\
             current-context: x\n",
            self.url()
        )
    }

    /// Asks the API server for something, as its administrator.
    pub(super) fn call(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let kind = if method == "PATCH" { "merge-patch+json" } else { "json" };
        let url = format!("{}{path}", self.url());
        let header = format!("Content-Type: application/{kind}");
        let mut command = curl(&[&url, "--request", method, "--header", &header]);
        command.args(["--fail-with-body", "--data-binary", "@-"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start curl")?;
        child.stdin.take().context("a pipe")?.write_all(body.as_bytes())?;
        let answer = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&answer.stdout);
        ensure!(answer.status.success(), "{method} {path}: {said}");
        Ok(answer.stdout)
    }

    /// Sends many requests over few connections; each is a method, a path and a body.
    pub(super) fn call_all(
        &self,
        calls: impl Iterator<Item = (&'static str, String, String)>,
    ) -> Result<()> {
        let mut text = String::new();
        for (method, path, body) in calls {
            let kind = if method == "PATCH" { "merge-patch+json" } else { "json" };
            let body = body.replace('\\', "\\\\").replace('"', "\\\"");
            write!(
                text,
                "url = \"{}{path}\"\nrequest = {method}\ninsecure\nsilent\nfail\noutput = /dev/null\n\
                 header = \"Authorization: Bearer {TOKEN}\"\nheader = \"Content-Type: application/{kind}\"\n\
                 data = \"{body}\"\nnext\n",
                self.url()
            )?;
        }
        let file = self.folder.join("calls");
        fs::write(&file, text.trim_end_matches("next\n"))?;
        must(
            Command::new("curl")
                .args(["--no-progress-meter", "--parallel", "--parallel-max", "16", "--config"])
                .arg(file),
        )
    }
}

fn curl(arguments: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--insecure", "--header", &format!("Authorization: Bearer {TOKEN}")]);
    command.args(arguments);
    command
}
