//! What the operator may set about other routers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::store::StoreSettings;
use crate::discovery::Source;
use crate::tls::PeerTls;

/// How this router finds the others and knows them.
#[derive(Clone, PartialEq)]
pub struct ClusterSettings {
    /// Where other routers connect.
    pub listen: SocketAddr,
    /// Where they are told to connect, if that is another address.
    pub advertise: Option<String>,
    /// Where others are; those that they know are found by themselves.
    pub peers: Vec<PeerAddress>,
    /// Where more of them are found.
    pub discover: Option<Source>,
    /// What all of them know and no other process does.
    pub secret: Option<Arc<[u8]>>,
    /// Certificates by which they know each other, beside the secret or in its place.
    pub tls: Option<PeerTls>,
    /// What they keep together, if anything.
    pub store: Option<StoreSettings>,
}

/// Where another router is reached: a host or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress(String);

impl PeerAddress {
    /// Reads `HOST:PORT`.
    pub fn read(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let is_host =
            !host.is_empty() && host.bytes().all(|it| it.is_ascii_graphic() && it != b'/');
        let is_port = port.parse::<u16>().is_ok_and(|it| it != 0);
        (is_host && is_port).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether it cannot be on another machine.
    pub fn is_loopback(&self) -> bool {
        let host = self.0.rsplit_once(':').map_or("", |it| it.0);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
    }
}

impl ClusterSettings {
    /// Counts the routers that are named, with this one, which others reach at `own`.
    pub(super) fn routers(&self, own: &str) -> u32 {
        let mut named: Vec<&str> = self.peers.iter().map(PeerAddress::as_str).collect();
        named.sort_unstable();
        named.dedup();
        let others = named.into_iter().filter(|it| *it != own).count();
        u32::try_from(others).unwrap_or(u32::MAX - 1) + 1
    }

    /// Tells whether there may be others to be told by.
    pub(super) const fn expects_others(&self) -> bool {
        !self.peers.is_empty() || self.discover.is_some()
    }

    /// Tells whether no other machine takes part.
    pub fn is_local(&self) -> bool {
        // What is found may be anywhere.
        self.listen.ip().is_loopback()
            && self.discover.is_none()
            && self.peers.iter().all(PeerAddress::is_loopback)
    }
}

impl fmt::Debug for ClusterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterSettings")
            .field("listen", &self.listen)
            .field("advertise", &self.advertise)
            .field("peers", &self.peers)
            .field("discover", &self.discover)
            .field("secret", &self.secret.as_ref().map(|_| "…"))
            .field("tls", &self.tls)
            .field("store", &self.store)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for right in ["10.0.0.1:7400", "gpu-router-1:7400", "[::1]:1", "a.b.svc:65535"] {
            assert_eq!(PeerAddress::read(right).unwrap().as_str(), right);
        }
        for wrong in ["", "a", "a:", ":1", "a:0", "a:65536", "http://a:1", "a b:1"] {
            assert_eq!(PeerAddress::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn routers_are_counted_once_and_this_one_with_them() {
        let peer = |it: &str| PeerAddress::read(it).unwrap();
        let settings = |peers: &[&str]| ClusterSettings {
            listen: "127.0.0.1:7400".parse().unwrap(),
            advertise: None,
            peers: peers.iter().map(|it| peer(it)).collect(),
            discover: None,
            secret: None,
            tls: None,
            store: None,
        };
        assert_eq!(settings(&[]).routers("a:1"), 1);
        assert_eq!(settings(&["b:1", "c:1", "b:1"]).routers("a:1"), 3);
        assert_eq!(settings(&["a:1", "b:1", "c:1"]).routers("a:1"), 3, "it may be in its own list");
    }

    #[test]
    fn only_this_machine_is_local() {
        let is_local = |it: &str| PeerAddress::read(it).unwrap().is_loopback();
        assert!(is_local("127.0.0.1:1") && is_local("localhost:1") && is_local("[::1]:1"));
        assert!(!is_local("10.0.0.1:1") && !is_local("a:1") && !is_local("[::2]:1"));
    }
}
