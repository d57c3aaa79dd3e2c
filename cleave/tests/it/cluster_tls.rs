//! Routers that know each other by certificates.

use std::path::Path;

use crate::cluster::{address, all_talk};
use crate::support::{Authority, Mock, News, Request, Router, ask, eventually};

/// Says by which certificates a router goes.
fn certificates(ca: &Path, [cert, key]: [&Path; 2]) -> String {
    let [ca, cert, key] = [ca, cert, key].map(Path::display);
    format!(
        "cluster.tls.ca = \"{ca}\"\ncluster.tls.cert = \"{cert}\"\ncluster.tls.key = \"{key}\"\n"
    )
}

/// Makes a certificate for a name, and says that a router goes by it.
fn identity(authority: &Authority, name: &str) -> String {
    let [cert, key] = authority.sign(name, 2100).files;
    certificates(&authority.file, [&cert, &key])
}

async fn start(mock: &Mock, peer: Option<&str>, more: &str) -> Router {
    let peers = peer.map_or(String::new(), |it| format!("cluster.peers = [\"{it}\"]\n"));
    let settings = format!("policy = \"priced\"\ncluster.listen = \"127.0.0.1:0\"\n{peers}{more}");
    Router::start(&[mock.url()], &settings).await
}

/// Waits until a router counts a connection that was refused for this reason.
async fn refuses(router: &Router, reason: &str) {
    let line = format!("cleave_cluster_refused_total{{reason=\"{reason}\"}}");
    eventually(&format!("a connection is refused: {reason}"), async || {
        ask(router.admin, &Request::get("/metrics")).await.text().contains(&line)
    })
    .await;
}

/// Asks that a router talks to no other.
async fn is_alone(router: &Router) {
    let page = ask(router.admin, &Request::get("/routers")).await.json();
    assert_eq!(page["peers"].as_array().unwrap().len(), 0, "{page}");
}

#[tokio::test]
async fn routers_of_one_authority_talk_and_one_of_another_does_once_its_files_are_mended() {
    let (own, other) = (Authority::new(), Authority::new());
    let mock = Mock::start(&["--speed", "50"]);
    let first = start(&mock, None, &identity(&own, "127.0.0.1")).await;
    let met = address(&first).await;
    let second = start(&mock, Some(&met), &identity(&own, "127.0.0.1")).await;
    let wrong = other.sign("127.0.0.1", 2100).files;
    let files = certificates(&other.file, [&wrong[0], &wrong[1]]);
    let stranger = start(&mock, Some(&met), &files).await;
    let mut routers = vec![first, second];
    all_talk(&routers).await;
    // What one books the other knows.
    let chat = Request::chat("hi").session("s-1");
    assert_eq!(routers[0].ask(&chat).await.status(), 200);
    routers[1].until("the session is known", |it| it.pools[0].sessions == 1).await;
    // The other authority's router trusts neither of them, and is told why.
    refuses(&stranger, "certificate").await;
    stranger.says("its certificate is refused").await;
    refuses(&routers[0], "certificate").await;
    let mut events = News::after(routers[0].admin, 0).await;
    while events.next().await.state != "refused" {}
    is_alone(&stranger).await;
    // Files that change are taken up without a restart.
    let right = own.sign("127.0.0.1", 2100).files;
    std::fs::copy(&own.file, &other.file).unwrap();
    std::fs::copy(&right[0], &wrong[0]).unwrap();
    std::fs::copy(&right[1], &wrong[1]).unwrap();
    routers.push(stranger);
    all_talk(&routers).await;
}

#[tokio::test]
async fn a_router_without_certificates_or_with_another_name_is_refused() {
    let own = Authority::new();
    let mock = Mock::start(&["--speed", "50"]);
    let named = format!(
        "cluster.tls.server_name = \"routers.internal\"\n{}",
        identity(&own, "routers.internal")
    );
    let first = start(&mock, None, &named).await;
    let met = address(&first).await;
    let plain = start(&mock, Some(&met), "").await;
    plain.says("it speaks TLS and this router does not").await;
    refuses(&first, "plain").await;
    first.says("it does not speak TLS and this router does").await;
    is_alone(&first).await;
    // The other way round: one with certificates dials one without.
    let met_plain = address(&plain).await;
    let second = start(&mock, Some(&met_plain), &named).await;
    refuses(&second, "plain").await;
    is_alone(&second).await;
    // A certificate of the same authority, made for something else.
    let misnamed = format!(
        "cluster.tls.server_name = \"routers.internal\"\n{}",
        identity(&own, "gpu-0.internal")
    );
    let engine = start(&mock, Some(&met), &misnamed).await;
    refuses(&first, "certificate").await;
    is_alone(&engine).await;
    is_alone(&first).await;
}
