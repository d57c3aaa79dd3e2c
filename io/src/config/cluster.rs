//! Other routers, from what the user said to what coordination relies on.

use std::net::Ipv4Addr;

use super::problem::{Findings, Wrong};
use super::raw::ClusterSection;
use super::trust;
use crate::admin::Secret;
use crate::coordination::{ClusterSettings, PeerAddress};

/// A shorter secret can be guessed.
const SECRET_CHARS_MIN: usize = 16;

/// Settles how this router takes part among others; `None` for one that is alone.
pub(super) fn settle(raw: ClusterSection, findings: &mut Findings) -> Option<ClusterSettings> {
    let ClusterSection { listen, advertise, peers, secret, secret_file } = raw;
    let peers: Vec<PeerAddress> = peers.into_iter().flatten().map(|it| it.0).collect();
    let path = if secret_file.is_some() { "cluster.secret_file" } else { "cluster.secret" };
    let secret = trust::settle_secret("cluster.secret", secret, secret_file, findings);
    // A router that joins on this machine needs no port that others know before.
    let is_near = !peers.is_empty() && peers.iter().all(PeerAddress::is_loopback);
    let listen = listen.map(|it| it.0).or_else(|| is_near.then(|| (Ipv4Addr::LOCALHOST, 0).into()));
    let Some(listen) = listen else {
        if !peers.is_empty() {
            let remedy = "give the address where they reach this router: 0.0.0.0:7400";
            findings.report("cluster.listen", Wrong::new("is needed beside cluster.peers", remedy));
        }
        return None;
    };
    if secret.as_ref().is_some_and(|Secret(it)| it.len() < SECRET_CHARS_MIN) {
        let what = format!("is shorter than {SECRET_CHARS_MIN} characters");
        findings.report(path, Wrong::new(what, "make one: openssl rand -hex 32"));
    }
    let secret = secret.map(|Secret(it)| it.into_bytes().into());
    let advertise = advertise.map(|it| it.0.as_str().to_owned());
    let settings = ClusterSettings { listen, advertise, peers, secret };
    if settings.secret.is_none() && !settings.is_local() {
        let what = "is needed where other machines take part";
        let remedy = "make one (openssl rand -hex 32) and give it to all routers";
        findings.report("cluster.secret_file", Wrong::new(what, remedy));
    }
    if settings.listen.ip().is_unspecified() && settings.advertise.is_none() {
        let what = "is needed where cluster.listen names no address";
        let remedy = "give the HOST:PORT where other routers reach this one";
        findings.report("cluster.advertise", Wrong::new(what, remedy));
    }
    Some(settings)
}
