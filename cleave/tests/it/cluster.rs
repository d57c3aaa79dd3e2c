//! Several routers as processes that decide as one.

use std::collections::BTreeMap;

use crate::support::{Answer, Mock, Request, Router, ask, eventually};

/// Starts a router that talks to others; it is up when it has taken on all replicas.
async fn start(urls: &[String], peer: Option<&str>, more: &str) -> Router {
    let peers = peer.map_or(String::new(), |it| format!("cluster.peers = [\"{it}\"]\n"));
    let settings = format!("policy = \"priced\"\ncluster.listen = \"127.0.0.1:0\"\n{peers}{more}");
    Router::start(urls, &settings).await
}

/// Finds where other routers reach this one.
async fn address(router: &Router) -> String {
    router.says("talks to other routers").await;
    let log = router.process.log();
    let line = log.lines().find(|it| it.contains("talks to other routers")).unwrap();
    let address = line.split("address=").nth(1).unwrap();
    address.trim_start_matches('"').split(['"', ' ']).next().unwrap().to_owned()
}

/// Waits until every router talks to all others.
async fn all_talk(routers: &[Router]) {
    for router in routers {
        eventually("all routers talk to each other", async || {
            let page = ask(router.admin, &Request::get("/routers")).await.json();
            let peers = page["peers"].as_array().unwrap();
            let talking = peers.iter().filter(|it| it["state"] == "talking").count();
            talking + 1 == routers.len() && page["joining"] == false
        })
        .await;
    }
}

/// Starts three routers that know each other.
async fn three(urls: &[String]) -> Vec<Router> {
    let first = start(urls, None, "").await;
    let met = address(&first).await;
    let mut routers = vec![first];
    for _ in 0..2 {
        routers.push(start(urls, Some(&met), "").await);
    }
    all_talk(&routers).await;
    routers
}

/// One turn of a chat that has a long beginning of its own.
async fn turn(router: &Router, session: usize, turn: usize) -> String {
    let text = format!("{session} is a number. ").repeat(200) + &"and another turn. ".repeat(turn);
    let answer: Answer = router.ask(&Request::chat(&text).session(&format!("s-{session}"))).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.header("x-mock-replica").unwrap().to_owned()
}

/// Waits until all routers know of that number of sessions.
async fn all_know(routers: &[Router], sessions: u64) {
    for router in routers {
        router.until("all sessions are known", |it| it.pools[0].sessions == sessions).await;
    }
}

#[tokio::test]
async fn a_session_stays_whichever_router_gets_its_turn_and_a_killed_router_loses_none() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "50"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let mut routers = three(&urls).await;
    let mut homes = BTreeMap::new();
    for session in 0..12 {
        let home = turn(&routers[session % 3], session, 0).await;
        all_know(&routers, u64::try_from(session + 1).unwrap()).await;
        for number in 1..4 {
            let at = (session + 2 * number) % 3;
            assert_eq!(turn(&routers[at], session, number).await, home, "{session}, {number}");
        }
        homes.insert(session, home);
    }
    // Killed, not ended: it says nothing to the others.
    drop(routers.remove(0));
    all_talk(&routers).await;
    for (session, home) in &homes {
        assert_eq!(turn(&routers[session % 2], *session, 5).await, *home, "{session}");
    }
    // One that comes later is told what it missed.
    let met = address(&routers[0]).await;
    routers.push(start(&urls, Some(&met), "").await);
    all_talk(&routers).await;
    for (session, home) in &homes {
        assert_eq!(turn(&routers[2], *session, 6).await, *home, "{session}");
    }
    routers[0].process.signal("TERM");
    routers[1].says("router left").await;
}

#[tokio::test]
async fn a_drain_that_one_router_is_told_holds_at_all() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "50"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let mut routers = three(&urls).await;
    let drained = mocks[1].address.to_string();
    let ordered = ask(routers[0].admin, &Request::post(&format!("/drain/{drained}"), "")).await;
    assert!(ordered.status() < 300, "{}", ordered.text());
    let met = address(&routers[0]).await;
    routers.push(start(&urls, Some(&met), "").await);
    all_talk(&routers).await;
    let mut session = 100;
    for router in &routers {
        eventually("nothing new goes to the drained replica", async || {
            let mut homes = Vec::new();
            for _ in 0..12 {
                session += 1;
                homes.push(turn(router, session, 0).await);
            }
            !homes.contains(&drained)
        })
        .await;
    }
}

#[tokio::test]
async fn a_router_that_does_not_know_the_secret_is_not_talked_to() {
    let mock = Mock::start(&["--speed", "50"]);
    let (right, wrong) = ("cluster.secret = \"0123456789abcdef\"\n", "0123456789abcdee");
    let first = start(&[mock.url()], None, right).await;
    let met = address(&first).await;
    let second = start(&[mock.url()], Some(&met), right).await;
    let stranger =
        start(&[mock.url()], Some(&met), &format!("cluster.secret = \"{wrong}\"\n")).await;
    stranger.says("it does not know the secret").await;
    let routers = [first, second];
    all_talk(&routers).await;
    let page = ask(stranger.admin, &Request::get("/routers")).await.json();
    assert_eq!(page["peers"].as_array().unwrap().len(), 0, "{page}");
    // It serves all the same, by itself.
    eventually("it is ready", async || {
        ask(stranger.admin, &Request::get("/readyz")).await.status() == 200
    })
    .await;
    let metrics = ask(routers[0].admin, &Request::get("/metrics")).await;
    assert!(metrics.text().contains("cleave_peers 1"), "{}", metrics.text());
}
