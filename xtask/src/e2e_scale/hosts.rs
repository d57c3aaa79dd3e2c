//! The machines that replicas run on: started and stopped as the router's command says. The command only writes down
//! what it was told; the rest is done here, so that all processes end with this program.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::http1::{self, free_address};
use crate::server::Server;

pub(super) struct Hosts {
    binary: PathBuf,
    folder: PathBuf,
    start_delay: String,
    running: BTreeMap<SocketAddr, Server>,
    started: usize,
    stopped: usize,
    stopped_busy: usize,
}

impl Hosts {
    pub(super) fn new(binary: &Path, folder: &Path, start_delay_s: u64) -> Result<Self> {
        let hosts = Self {
            binary: binary.to_owned(),
            folder: folder.to_owned(),
            start_delay: format!("{start_delay_s}s"),
            running: BTreeMap::new(),
            started: 0,
            stopped: 0,
            stopped_busy: 0,
        };
        hosts.write_list()?;
        let order = folder.join("order");
        let script =
            format!("printf '%s\\n' \"$*\" > '{0}.new' && mv '{0}.new' '{0}'\n", order.display());
        fs::write(hosts.script(), script).context("write the command")?;
        Ok(hosts)
    }

    /// Where the router finds replicas.
    pub(super) fn list(&self) -> PathBuf {
        self.folder.join("replicas")
    }

    pub(super) fn script(&self) -> PathBuf {
        self.folder.join("scale.sh")
    }

    /// Does what the command was told last.
    pub(super) fn work(&mut self) -> Result<()> {
        let Ok(order) = fs::read_to_string(self.folder.join("order")) else { return Ok(()) };
        let mut words = order.split_whitespace().skip(1);
        let wanted: usize = words.next().context("a number")?.parse()?;
        for victim in words {
            let address = victim.trim_start_matches("http://").parse()?;
            if let Some(server) = self.running.remove(&address) {
                self.stopped += 1;
                self.stopped_busy += usize::from(has_work(address));
                self.write_list()?;
                drop(server);
            }
        }
        while self.running.len() < wanted {
            self.start()?;
        }
        Ok(())
    }

    /// Starts a replica. It is listed at once, as a pod is there before it is ready.
    fn start(&mut self) -> Result<()> {
        let (address, name) = (free_address()?, format!("replica-{}", self.started));
        let port = address.port().to_string();
        let mut command = Command::new(&self.binary);
        command.args(["mock-replica", "--port", &port, "--model", "m", "--name", &name]);
        command.args(["--start-delay", &self.start_delay, "--batched-tokens", "2048"]);
        let server = Server::start(&name, &mut command, &self.folder)?;
        self.running.insert(address, server);
        self.started += 1;
        self.write_list()
    }

    fn write_list(&self) -> Result<()> {
        let lines: Vec<String> = self.running.keys().map(|it| format!("http://{it}\n")).collect();
        let new = self.folder.join("replicas.new");
        fs::write(&new, lines.concat())?;
        fs::rename(new, self.list()).context("replace the list of replicas")
    }

    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    pub(super) const fn started(&self) -> usize {
        self.started
    }

    pub(super) const fn stopped(&self) -> usize {
        self.stopped
    }

    pub(super) const fn stopped_busy(&self) -> usize {
        self.stopped_busy
    }
}

/// Tells whether an engine still runs or holds requests.
pub(crate) fn has_work(address: SocketAddr) -> bool {
    let Ok((_, body)) = http1::get_as("", address, "/metrics") else { return false };
    let page = String::from_utf8_lossy(&body).into_owned();
    let of_requests = |it: &&str| it.starts_with("vllm:num_requests_");
    let figures = page.lines().filter(of_requests).filter_map(|it| it.rsplit(' ').next());
    figures.filter_map(|it| it.parse::<f64>().ok()).any(|it| 0.0 < it)
}
