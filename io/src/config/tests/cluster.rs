//! What is refused of other routers, and what is made of the rest.

use super::*;
use crate::coordination::StoreSettings;
use crate::discovery::{EnginePort, Source};

#[test]
fn other_machines_take_part_only_with_a_secret() {
    let file = |section: &str| format!("{ENOUGH}\n[cluster]\n{section}");
    let said = |section: &str| lines(load_text(&file(section))).concat();
    assert!(said("listen = \"10.0.0.1:7400\"").contains("cluster.secret_file: is needed"));
    let away = "listen = \"127.0.0.1:7400\"\npeers = [\"router-2:7400\"]";
    assert!(said(away).contains("cluster.secret_file: is needed"));
    assert!(said("peers = [\"router-2:7400\"]").contains("cluster.listen: is needed"));
    assert!(said("discover = \"dns:routers:7400\"").contains("cluster.listen: is needed"));
    let found = "listen = \"127.0.0.1:7400\"\ndiscover = \"dns:routers:7400\"";
    assert!(said(found).contains("cluster.secret_file: is needed"), "they may be anywhere");
    let open = "listen = \"0.0.0.0:7400\"\nsecret = \"0123456789abcdef\"";
    assert!(said(open).contains("cluster.advertise: is needed"));
    let short = "listen = \"127.0.0.1:7400\"\nsecret = \"hunter2\"";
    assert!(said(short).contains("shorter than 16") && !said(short).contains("hunter2"));
    assert!(said("peers = [\"http://a:1\"]").contains("is not the address of a router"));
}

#[test]
fn a_router_that_joins_on_this_machine_needs_no_more_than_that() {
    let flags = Flags { join: vec!["127.0.0.1:7400".to_owned()], ..Flags::default() };
    let cluster = load_all(ENOUGH, &[], flags).unwrap().cluster.unwrap();
    assert!(cluster.listen.ip().is_loopback() && cluster.listen.port() == 0);
    assert_eq!(cluster.peers[0].as_str(), "127.0.0.1:7400");
    assert!(load_text(ENOUGH).unwrap().cluster.is_none());
}

#[test]
fn a_store_is_said_whole_or_not_at_all() {
    let file =
        |section: &str| format!("{ENOUGH}\n[cluster]\nlisten = \"127.0.0.1:7400\"\n{section}");
    let said = |section: &str| lines(load_text(&file(section))).concat();
    assert!(said("store = \"etcd\"").contains("cluster.etcd.endpoints: is needed"));
    assert!(said("store = \"redis\"").contains("give one of \"none\", \"etcd\", \"kubernetes\""));
    let etcd = "store = \"etcd\"\n[cluster.etcd]\nendpoints = [\"http://127.0.0.1:2379\"]\n";
    let with = |more: &str| said(&format!("{etcd}{more}"));
    assert!(with("lease = \"1s\"").contains("cluster.etcd.lease: is not a time"));
    assert!(with("user = \"cleave\"").contains("cluster.etcd.user: has no password"));
    assert!(with("password = \"swordfish-9\"").contains("cluster.etcd.password: has no user"));
    assert!(said("[cluster.etcd]\nendpoints = [\"http://a:1\"]").contains("a store that is off"));
    assert!(said("store = \"etcd\"\netcd.endpoints = [\"a:1\"]").contains("is not the address"));
    let settings = load_text(&file(etcd)).unwrap().cluster.unwrap().store.unwrap();
    let StoreSettings::Etcd(settings) = settings else { panic!("another store") };
    assert_eq!((settings.prefix.as_str(), settings.lease.as_secs()), ("/cleave/", 5));
    assert!(load_text(&file("")).unwrap().cluster.unwrap().store.is_none());
}

#[test]
fn routers_are_found_by_dns_a_file_or_their_pods() {
    let file = |source: &str| {
        let secret = "secret = \"0123456789abcdef\"";
        let listen = "listen = \"10.0.0.1:7400\"";
        format!("{ENOUGH}\n[cluster]\n{listen}\n{secret}\ndiscover = \"{source}\"")
    };
    for source in ["dns:routers.internal:7400", "srv:_cleave._tcp.internal", "file:/tmp/routers"] {
        assert!(load_text(&file(source)).unwrap().cluster.unwrap().discover.is_some());
    }
    let said = lines(load_text(&file("dns+https:routers.internal:7400"))).concat();
    assert!(said.contains("cluster.discover: finds no routers"), "{said}");
    let said = |more: &str| lines(load_text(&format!("{}\n{more}", file("kubernetes")))).concat();
    assert!(said("").contains("cluster.kubernetes.selector: is missing"));
    let pods = "kubernetes.selector = \"app=cleave\"\nkubernetes.port = \"7400\"";
    let cluster = load_text(&format!("{}\n{pods}", file("kubernetes"))).unwrap().cluster.unwrap();
    let Some(Source::Kubernetes(found)) = cluster.discover else { panic!("another source") };
    assert_eq!((found.selector.as_str(), &found.port), ("app=cleave", &EnginePort::Numbered(7400)));
    assert!(found.is_early, "a router is ready when others have told it what they know");
}

#[test]
fn objects_of_kubernetes_are_shared_by_their_name() {
    let file = |section: &str| {
        format!(
            "{ENOUGH}\n[cluster]\nlisten = \"127.0.0.1:7400\"\nstore = \"kubernetes\"\n\
             [cluster.kubernetes]\n{section}"
        )
    };
    let said = |section: &str| lines(load_text(&file(section))).concat();
    assert!(said("lease = \"2s\"").contains("cluster.kubernetes.lease: is not a time"));
    assert!(said("name = \"../secrets\"").contains("cluster.kubernetes.name: is no name"));
    assert!(said("namespace = \"a/b\"").contains("cluster.kubernetes.namespace: is not a"));
    assert!(said("selector = \"app=a\"").contains("selector: is given, but not used"));
    let settings = load_text(&file("namespace = \"llm\"")).unwrap().cluster.unwrap().store;
    let Some(StoreSettings::Kubernetes(it)) = settings else { panic!("another store") };
    assert_eq!((it.name.as_str(), it.lease.as_secs()), ("cleave-cluster", 8));
    assert_eq!((it.namespace.as_deref(), it.kubeconfig), (Some("llm"), None));
}

#[test]
fn certificates_are_said_whole_and_stand_in_the_place_of_a_secret() {
    let away = "listen = \"10.0.0.1:7400\"\n";
    let file = |section: &str| format!("{ENOUGH}\n[cluster]\n{away}[cluster.tls]\n{section}");
    let said = |section: &str| lines(load_text(&file(section))).concat();
    let none = said("");
    assert!(none.contains("cluster.secret_file: is needed") && none.contains("cluster.tls"));
    let nameless = said("server_name = \"routers.internal\"");
    assert!(nameless.contains("cluster.tls.server_name: is said of certificates"), "{nameless}");
    let half = said("cert = \"/dev/null\"");
    assert!(half.contains("cluster.tls.ca: is missing"), "{half}");
    assert!(half.contains("cluster.tls.key: is missing"), "{half}");
    assert!(!half.contains("cluster.secret_file"), "{half}");
    let all = |ca: &str| format!("ca = \"{ca}\"\ncert = \"/dev/null\"\nkey = \"/dev/null\"");
    let unread = said(&all("/nowhere/ca.pem"));
    assert!(unread.contains("cluster.tls.ca: cannot be read"), "{unread}");
    let empty = said(&all("/dev/null"));
    assert!(empty.contains("cluster.tls.ca: no usable PEM in /dev/null"), "{empty}");
}
