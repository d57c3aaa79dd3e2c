//! How each proxy is started: one event loop, pinned to one core, no access log, connections to the
//! replica kept. Settings are what a careful operator would choose for token streams, so that the
//! comparison is with each program at its best.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::load;
use crate::http1::free_address;
use crate::server::Server;

/// The core that proxies have for themselves; the load and the replica share the other one.
pub(super) const PROXY_CORE: &str = "0";
pub(super) const LOAD_CORE: &str = "1";

const START_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Proxy {
    /// No proxy at all: what every figure is compared with.
    Direct,
    Nginx,
    Haproxy,
    Cleave(PathBuf),
    /// A router from the Python index, in its virtual environment.
    Peer(&'static Peer, PathBuf),
}

/// A router that the Python index has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    command: &'static [&'static str],
}

pub(super) const PEERS: [Peer; 3] = [
    Peer { name: "smg", package: "smg==1.13.0", command: &["smg", "launch"] },
    Peer {
        name: "sglang-router",
        package: "sglang-router==0.3.2",
        command: &["sglang-router", "launch"],
    },
    Peer { name: "vllm-router", package: "vllm-router==0.1.16", command: &["vllm-router"] },
];

/// A proxy that answers.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) address: SocketAddr,
    server: Option<Server>,
}

impl Running {
    /// Gives the process to measure; there is none without a proxy.
    pub(super) fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }
}

impl Proxy {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Cleave(_) => "cleave",
            Self::Peer(peer, _) => peer.name,
        }
    }

    /// Starts the proxy in front of `replica` and waits until a request passes through it.
    pub(super) fn start(&self, replica: SocketAddr, folder: &Path) -> Result<Running> {
        let mut command = match self {
            Self::Direct => return Ok(Running { address: replica, server: None }),
            Self::Nginx => nginx(replica, free_address()?, folder)?,
            Self::Haproxy => haproxy(replica, free_address()?, folder)?,
            Self::Cleave(binary) => (cleave(binary, replica), None),
            Self::Peer(peer, venv) => peer.command(venv, replica, free_address()?)?,
        };
        let mut server = Server::start(self.name(), &mut command.0, folder)?;
        let address = server.wait_for(START_LIMIT, |lines| {
            let address = command.1.or_else(|| announced(lines))?;
            load::probe(address).unwrap_or(false).then_some(address)
        })?;
        Ok(Running { address, server: Some(server) })
    }
}

/// Finds where Cleave says it listens.
pub(super) fn announced(lines: &[&str]) -> Option<SocketAddr> {
    let line = lines.iter().find_map(|it| it.split_once("cleave listening on http://"))?.1;
    line.split([',', ' ']).next()?.parse().ok()
}

fn pinned(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", PROXY_CORE]).arg(program.as_ref());
    command
}

fn cleave(binary: &Path, replica: SocketAddr) -> Command {
    let mut command = pinned(binary);
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.args(["--policy", "session", "--replica", &format!("http://{replica}")]);
    command
}

/// A command, and its address where we chose it.
type Start = (Command, Option<SocketAddr>);

fn nginx(replica: SocketAddr, address: SocketAddr, folder: &Path) -> Result<Start> {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|it| format!("{it}_temp_path {}/nginx-{it};", folder.display()))
        .join("\n    ");
    let text = format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
worker_rlimit_nofile 65536;
events {{ worker_connections 32768; }}
http {{
    {temporary}
    access_log off;
    tcp_nodelay on;
    client_max_body_size 64m;
    client_body_buffer_size 2m;
    keepalive_requests 100000000;
    upstream replicas {{
        server {replica};
        keepalive 64;
        keepalive_requests 100000000;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
        }}
    }}
}}
",
        folder = folder.display()
    );
    let file = write(folder, "nginx.conf", &text)?;
    let mut command = pinned(installed(&["/usr/sbin/nginx", "/usr/bin/nginx"])?);
    command.arg("-p").arg(folder).arg("-e").arg("stderr").arg("-c").arg(file);
    Ok((command, Some(address)))
}

fn haproxy(replica: SocketAddr, address: SocketAddr, folder: &Path) -> Result<Start> {
    let text = format!(
        "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend clients
    bind {address}
    default_backend replicas
backend replicas
    server replica {replica}
"
    );
    let file = write(folder, "haproxy.cfg", &text)?;
    let mut command = pinned(installed(&["/usr/sbin/haproxy", "/usr/bin/haproxy"])?);
    command.arg("-db").arg("-f").arg(file);
    Ok((command, Some(address)))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let file = folder.join(name);
    fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}

/// Finds a program that is not always on the path of users other than root.
fn installed(places: &[&'static str]) -> Result<&'static str> {
    match places.iter().find(|it| Path::new(it).exists()) {
        Some(place) => Ok(place),
        None => bail!("none of {} is there", places.join(", ")),
    }
}

impl Peer {
    fn command(&self, venv: &Path, replica: SocketAddr, address: SocketAddr) -> Result<Start> {
        let (program, rest) = self.command.split_first().context("a peer has a command")?;
        let mut command = pinned(venv.join("bin").join(program));
        command
            .args(rest)
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--worker-urls", &format!("http://{replica}")])
            .args(["--policy", "round_robin", "--log-level", "error"])
            .args(["--prometheus-port", &free_address()?.port().to_string()]);
        Ok((command, Some(address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaves_address_is_read_off_its_first_line() {
        let lines = [
            "starting",
            "cleave listening on http://127.0.0.1:4000, admin on http://127.0.0.1:4001",
        ];
        assert_eq!(announced(&lines), Some("127.0.0.1:4000".parse().unwrap()));
        assert_eq!(announced(&["starting"]), None);
    }
}
