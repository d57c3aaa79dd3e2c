//! A changed file is taken on while the router runs: replicas come, change weight and leave, and no
//! stream notices. A broken file changes nothing.

use crate::support::{Exchange, Request, Router, Scripted, Wire, config, eventually, json_answer};

async fn well() -> Scripted {
    Scripted::answering(json_answer(200, "{}")).await
}

async fn finish(mut client: Wire, mut exchange: Exchange) {
    exchange.chunk("data: [DONE]\n\n").await;
    exchange.send("0\r\n\r\n").await;
    assert_eq!(client.body().await.unwrap(), b"data: [DONE]\n\n");
}

#[tokio::test]
async fn a_changed_file_adds_a_replica() {
    let (one, other) = (well().await, well().await);
    let router = Router::start(&[one.url()], "").await;
    router.write(&config(&[(&one.url(), 1.0), (&other.url(), 1.0)], ""));
    router.until("both are up", |it| it.count(|it| it.state == "up") == 2).await;
    for number in 0..40 {
        let request = Request::chat("hi").session(&number.to_string());
        assert_eq!(router.ask(&request).await.status(), 200);
    }
    assert!(0 < one.hits() && 0 < other.hits(), "{} and {}", one.hits(), other.hits());
}

#[tokio::test]
async fn a_replica_that_is_removed_finishes_its_streams_first() {
    let (leaving, mut requests) = Scripted::by_hand().await;
    let staying = well().await;
    let router = Router::start(&[leaving.url()], "").await;
    let (client, exchange) =
        requests.begin(router.address, &Request::stream("hi").session("streaming")).await;
    router.write(&config(&[(&staying.url(), 1.0)], ""));
    router.process.signal("HUP");
    router
        .until("one is leaving and the other up", |it| {
            it.count(|it| it.state == "leaving") == 1 && it.count(|it| it.state == "up") == 1
        })
        .await;
    assert_eq!(router.status().await.replica(leaving.address).in_flight, 1);

    // Its session goes elsewhere, its stream does not.
    let answer = router.ask(&Request::chat("hi").session("streaming")).await;
    assert_eq!((answer.status(), staying.hits(), leaving.hits()), (200, 1, 1));
    finish(client, exchange).await;
    router.until("it is gone", |it| it.replicas().count() == 1).await;
    router.says("configuration reloaded").await;
}

#[tokio::test]
async fn a_replica_of_weight_0_keeps_its_sessions_and_takes_no_new_one() {
    let (kept, other) = (well().await, well().await);
    let urls = [kept.url(), other.url()];
    let router = Router::start(&urls, "").await;
    let turn = async |session: usize| {
        let request = Request::chat("hi").session(&format!("s-{session}"));
        let before = kept.hits();
        assert_eq!(router.ask(&request).await.status(), 200);
        kept.hits() != before
    };
    let mut there = Vec::new();
    for session in 0..40 {
        if turn(session).await {
            there.push(session);
        }
    }
    assert!(!there.is_empty() && there.len() < 40, "{there:?}");
    router.write(&config(&[(&urls[0], 0.0), (&urls[1], 1.0)], ""));
    router.process.signal("HUP");
    router.until("it weighs 0", |it| it.replica(kept.address).weight < 0.5).await;
    for session in 0..80 {
        assert_eq!(turn(session).await, there.contains(&session), "session {session}");
    }
    let status = router.status().await;
    assert_eq!(status.replica(kept.address).sessions, u32::try_from(there.len()).unwrap());
    assert_eq!(status.pools[0].sessions_moved_total, 0);
}

#[tokio::test]
async fn a_heavier_replica_gets_a_larger_share_of_new_sessions() {
    let (light, heavy) = (well().await, well().await);
    let router = Router::start(&[light.url(), heavy.url()], "").await;
    router.write(&config(&[(&light.url(), 1.0), (&heavy.url(), 9.0)], ""));
    router.process.signal("HUP");
    router.until("it weighs 9", |it| 8.0 < it.replica(heavy.address).weight).await;
    for number in 0..200 {
        let request = Request::chat("hi").session(&number.to_string());
        assert_eq!(router.ask(&request).await.status(), 200);
    }
    // 180 are expected of the heavy one, with a standard deviation of 4.2.
    assert!((150..=199).contains(&heavy.hits()), "{}", heavy.hits());
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_logged_with_its_remedy() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let (client, exchange) =
        requests.begin(router.address, &Request::stream("hi").session("streaming")).await;
    for broken in ["replicas = [", "replicas = []", "replcas = [\"http://a:1\"]", ""] {
        let said = router.process.log().matches("configuration not changed").count();
        router.write(broken);
        router.process.signal("HUP");
        eventually("it is logged", async || {
            said < router.process.log().matches("configuration not changed").count()
        })
        .await;
    }
    router.says("did you mean `replicas`?").await;
    let status = router.status().await;
    assert_eq!(status.replica(replica.address).state, "up");
    finish(client, exchange).await;
}

#[tokio::test]
async fn a_change_that_needs_a_restart_is_named() {
    let replica = well().await;
    let router = Router::start(&[replica.url()], "").await;
    router.write(&config(&[(&replica.url(), 1.0)], "timeouts.idle = \"7s\""));
    router.process.signal("HUP");
    router.says("timeouts.idle").await;
    router.says("needs a restart").await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}
