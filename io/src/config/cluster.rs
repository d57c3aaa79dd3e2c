//! Other routers, from what the user said to what coordination relies on.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::problem::{Findings, Wrong, join};
use super::raw::{
    ClusterKubernetesSection, ClusterSection, EtcdSection, PeerTlsSection, StoreKind, Text,
};
use super::{access, kubernetes, read_bytes, trust};
use crate::admin::Secret;
use crate::coordination::{
    ClusterSettings, EtcdSettings, EtcdUser, KubernetesStoreSettings, PeerAddress, StoreSettings,
};
use crate::discovery::{KubernetesSettings, Source};
use crate::tls::{PeerTls, PeerTlsFiles, ShownTo, TlsError};

/// A shorter secret can be guessed.
const SECRET_CHARS_MIN: usize = 16;
/// etcd gives no shorter lease.
const LEASE_MIN: Duration = Duration::from_secs(2);
/// An API server is asked five times in this.
const KUBERNETES_LEASE_MIN: Duration = Duration::from_secs(3);

/// Settles how this router takes part among others; `None` for one that is alone.
pub(super) fn settle(raw: ClusterSection, findings: &mut Findings) -> Option<ClusterSettings> {
    let ClusterSection { listen, advertise, peers, secret, secret_file, tls, .. } = raw;
    let ClusterSection { discover, store, etcd, kubernetes, .. } = raw;
    let discover = settle_discovery(discover, &kubernetes, findings);
    let store = settle_store(store.0, etcd, kubernetes, findings);
    let tls_count = [&tls.ca, &tls.cert, &tls.key].into_iter().flatten().count();
    let tls = settle_tls(tls, findings);
    let peers: Vec<PeerAddress> = peers.into_iter().flatten().map(|it| it.0).collect();
    let path = if secret_file.is_some() { "cluster.secret_file" } else { "cluster.secret" };
    let secret = trust::settle_secret("cluster.secret", secret, secret_file, findings);
    // A router that joins on this machine needs no port that others know before.
    let is_near = !peers.is_empty() && peers.iter().all(PeerAddress::is_loopback);
    let listen = listen.map(|it| it.0).or_else(|| is_near.then(|| (Ipv4Addr::LOCALHOST, 0).into()));
    let Some(listen) = listen else {
        if !peers.is_empty() || discover.is_some() || store.is_some() {
            let remedy = "give the address where they reach this router: 0.0.0.0:7400";
            let what = "is needed for this router to take part among others";
            findings.report("cluster.listen", Wrong::new(what, remedy));
        }
        return None;
    };
    if secret.as_ref().is_some_and(|Secret(it)| it.len() < SECRET_CHARS_MIN) {
        let what = format!("is shorter than {SECRET_CHARS_MIN} characters");
        findings.report(path, Wrong::new(what, "make one: openssl rand -hex 32"));
    }
    let secret = secret.map(|Secret(it)| it.into_bytes().into());
    let advertise = advertise.map(|it| it.0.as_str().to_owned());
    let settings = ClusterSettings { listen, advertise, peers, discover, secret, tls, store };
    // What is wrong with certificates is said of them.
    if settings.secret.is_none() && tls_count == 0 && !settings.is_local() {
        let what = "is needed where other machines take part";
        let remedy =
            "make one (openssl rand -hex 32) and give it to all routers, or give cluster.tls";
        findings.report("cluster.secret_file", Wrong::new(what, remedy));
    }
    if settings.listen.ip().is_unspecified() && settings.advertise.is_none() {
        let what = "is needed where cluster.listen names no address";
        let remedy = "give the HOST:PORT where other routers reach this one";
        findings.report("cluster.advertise", Wrong::new(what, remedy));
    }
    Some(settings)
}

/// Settles the certificates by which routers know each other.
fn settle_tls(raw: PeerTlsSection, findings: &mut Findings) -> Option<PeerTls> {
    const PATH: &str = "cluster.tls";
    let PeerTlsSection { ca, cert, key, server_name } = raw;
    let given = [("ca", ca), ("cert", cert), ("key", key)];
    if given.iter().all(|it| it.1.is_none()) {
        if server_name.is_some() {
            let remedy = "add ca, cert and key";
            let wrong = Wrong::new("is said of certificates that are not given", remedy);
            findings.report("cluster.tls.server_name", wrong);
        }
        return None;
    }
    let mut is_whole = true;
    for (name, file) in &given {
        let wrong = match file {
            None => {
                let remedy = "give ca, cert and key: routers show each other their certificates";
                Some(Wrong::new("is missing", remedy))
            }
            Some(file) => {
                findings.watch(file);
                read_bytes(file).err()
            }
        };
        if let Some(wrong) = wrong {
            findings.report(&join(PATH, name), wrong);
            is_whole = false;
        }
    }
    let [(_, Some(ca)), (_, Some(cert)), (_, Some(key))] = given else { return None };
    let files = PeerTlsFiles { ca, cert, key, server_name: server_name.map(|it| it.0.0) };
    if !is_whole {
        return None;
    }
    findings.show(ShownTo::Routers, &files.cert);
    let report = |error: TlsError| {
        let named = [("ca", &files.ca), ("cert", &files.cert), ("key", &files.key)];
        let at = named.iter().find(|it| error.concerns(it.1)).map_or("cert", |it| it.0);
        let remedy = "give PEM files: the CA of the routers, this router's certificate and its key";
        findings.report(&join(PATH, at), Wrong::new(error, remedy));
    };
    PeerTls::read(&files).map_err(report).ok()
}

/// Settles where other routers are found.
fn settle_discovery(
    raw: Option<Text<Source>>,
    pods: &ClusterKubernetesSection,
    findings: &mut Findings,
) -> Option<Source> {
    let is_found_by_pods = matches!(raw, Some(Text(Source::Kubernetes(_))));
    if !is_found_by_pods && !pods.selector.is_empty() {
        let remedy = "set cluster.discover = \"kubernetes\", or leave it out";
        let what = "is given, but not used";
        findings.report("cluster.kubernetes.selector", Wrong::new(what, remedy));
    }
    let source = raw?.0;
    let is_plain = match &source {
        Source::File(_) => true,
        Source::Addresses { is_secure, .. } | Source::Services { is_secure, .. } => !is_secure,
        Source::Kubernetes(_) => return Some(settle_pods(pods, findings)),
    };
    if !is_plain {
        let remedy = "write it as dns:HOST:PORT, srv:NAME, file:PATH or kubernetes";
        findings.report("cluster.discover", Wrong::new("finds no routers", remedy));
    }
    is_plain.then_some(source)
}

/// Settles which pods are routers.
fn settle_pods(raw: &ClusterKubernetesSection, findings: &mut Findings) -> Source {
    let selector = raw.selector.trim().to_owned();
    if selector.is_empty() {
        let remedy = "give the label of the routers: selector = \"app.kubernetes.io/name=cleave\"";
        let what = "is missing: every pod of the namespace would be a router";
        findings.report("cluster.kubernetes.selector", Wrong::new(what, remedy));
    }
    Source::Kubernetes(Box::new(KubernetesSettings {
        kubeconfigs: raw.kubeconfig.iter().cloned().collect(),
        namespace: raw.namespace.clone(),
        selector,
        port: raw.port.0.clone(),
        is_early: true,
        ..KubernetesSettings::default()
    }))
}

/// Settles what routers keep together.
fn settle_store(
    kind: StoreKind,
    etcd: EtcdSection,
    kubernetes: ClusterKubernetesSection,
    findings: &mut Findings,
) -> Option<StoreSettings> {
    if !kubernetes.namespace.as_ref().is_none_or(|it| kubernetes::is_name(it)) {
        let remedy = "use lower-case letters, digits and hyphens";
        let wrong = Wrong::new("is not a namespace", remedy);
        findings.report("cluster.kubernetes.namespace", wrong);
    }
    let is_etcd = kind == StoreKind::Etcd;
    let settled = settle_etcd(is_etcd, etcd, findings);
    match kind {
        StoreKind::None => None,
        StoreKind::Etcd => settled.map(StoreSettings::Etcd),
        StoreKind::Kubernetes => {
            Some(StoreSettings::Kubernetes(settle_objects(kubernetes, findings)))
        }
    }
}

/// Settles which objects of Kubernetes routers share.
fn settle_objects(
    raw: ClusterKubernetesSection,
    findings: &mut Findings,
) -> KubernetesStoreSettings {
    let ClusterKubernetesSection { namespace, kubeconfig, name, lease, .. } = raw;
    if !name.split('.').all(|it| !it.is_empty() && kubernetes::is_name(it)) {
        let remedy = "use lower-case letters, digits, hyphens and dots";
        let wrong = Wrong::new("is no name of an object", remedy);
        findings.report("cluster.kubernetes.name", wrong);
    }
    if lease.0 < KUBERNETES_LEASE_MIN || lease.0.subsec_nanos() != 0 {
        let what = "is not a time of whole seconds that routers can keep";
        findings.report("cluster.kubernetes.lease", Wrong::new(what, "give 3s or more: 8s"));
    }
    KubernetesStoreSettings { kubeconfig, namespace, name, lease: lease.0 }
}

/// Settles how etcd is reached, where it is the store.
fn settle_etcd(is_store: bool, raw: EtcdSection, findings: &mut Findings) -> Option<EtcdSettings> {
    let EtcdSection { endpoints, user, password, password_file, prefix, lease, tls } = raw;
    let endpoints: Vec<http::Uri> = endpoints.into_iter().flatten().map(|it| it.0.0).collect();
    if !is_store {
        if !endpoints.is_empty() {
            let remedy = "set cluster.store = \"etcd\", or leave the section out";
            findings.report("cluster.etcd", Wrong::new("is said of a store that is off", remedy));
        }
        return None;
    }
    if endpoints.is_empty() {
        let remedy = "list the members of etcd: endpoints = [\"http://127.0.0.1:2379\"]";
        findings.report("cluster.etcd.endpoints", Wrong::new("is needed", remedy));
    }
    if lease.0 < LEASE_MIN || lease.0.subsec_nanos() != 0 {
        let what = "is not a time of whole seconds that etcd gives";
        findings.report("cluster.etcd.lease", Wrong::new(what, "give 2s or more: 5s"));
    }
    let secret = trust::settle_secret("cluster.etcd.password", password, password_file, findings);
    let user = match (user, secret) {
        (Some(name), Some(Secret(password))) => Some(EtcdUser { name, password }),
        (None, None) => None,
        (Some(_), None) => {
            let remedy = "give cluster.etcd.password_file";
            findings.report("cluster.etcd.user", Wrong::new("has no password", remedy));
            None
        }
        (None, Some(_)) => {
            let remedy = "give cluster.etcd.user";
            findings.report("cluster.etcd.password", Wrong::new("has no user", remedy));
            None
        }
    };
    let is_secure = endpoints.iter().any(|it| it.scheme_str() == Some("https"));
    let tls = is_secure
        .then(|| access::read_engine_tls("cluster.etcd.tls", tls, ShownTo::Store, findings))
        .flatten();
    Some(EtcdSettings { endpoints, tls, user, prefix, lease: lease.0 })
}
