//! A real etcd on loopback, with a data folder of its own, killed when the test ends.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::eventually;

#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) address: SocketAddr,
    peers: SocketAddr,
    folder: PathBuf,
    /// Of a server under TLS.
    tls: Vec<String>,
    child: Option<Child>,
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Etcd {
    pub(crate) async fn start() -> Self {
        Self::start_with(Vec::new()).await
    }

    /// Starts one with more options, as those of TLS.
    pub(crate) async fn start_with(tls: Vec<String>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("etcd-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let (address, peers) = (free_address(), free_address());
        let mut it = Self { address, peers, folder, tls, child: None };
        it.revive().await;
        it
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_empty() { "http" } else { "https" };
        format!("{scheme}://{}", self.address)
    }

    /// Starts it again after [`Etcd::kill`].
    pub(crate) async fn revive(&mut self) {
        let (url, peer) = (self.url(), format!("http://{}", self.peers));
        let child = Command::new("etcd")
            .args(["--name", "one", "--data-dir", self.folder.to_str().unwrap()])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .args(&self.tls)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is there; `cargo xtask test --only install` installs it");
        self.child = Some(child);
        let address = self.address;
        eventually("etcd listens", async || TcpStream::connect(address).is_ok()).await;
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Forgets everything; it must not run.
    pub(crate) fn wipe(&self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }

    /// Calls `etcdctl`; returns what it prints.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.url()])
            .args(arguments)
            .output()
            .expect("etcdctl is there; `cargo xtask test --only install` installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}
