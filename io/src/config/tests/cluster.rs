//! What is refused of other routers, and what is made of the rest.

use super::*;

#[test]
fn other_machines_take_part_only_with_a_secret() {
    let file = |section: &str| format!("{ENOUGH}\n[cluster]\n{section}");
    let said = |section: &str| lines(load_text(&file(section))).concat();
    assert!(said("listen = \"10.0.0.1:7400\"").contains("cluster.secret_file: is needed"));
    let away = "listen = \"127.0.0.1:7400\"\npeers = [\"router-2:7400\"]";
    assert!(said(away).contains("cluster.secret_file: is needed"));
    assert!(said("peers = [\"router-2:7400\"]").contains("cluster.listen: is needed"));
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
