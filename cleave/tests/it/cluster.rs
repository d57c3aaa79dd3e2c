//! Several routers as processes that decide as one.

use std::collections::BTreeMap;

use crate::support::{
    Answer, Json, Mock, Request, Router, Scripted, ask, config, eventually, json_answer,
};

/// Starts a router that talks to others; it is up when it has taken on all replicas.
async fn start(urls: &[String], peer: Option<&str>, more: &str) -> Router {
    let peers = peer.map_or(String::new(), |it| format!("cluster.peers = [\"{it}\"]\n"));
    let settings = format!("policy = \"priced\"\ncluster.listen = \"127.0.0.1:0\"\n{peers}{more}");
    Router::start(urls, &settings).await
}

/// Finds where other routers reach this one.
pub(crate) async fn address(router: &Router) -> String {
    router.says("talks to other routers").await;
    let log = router.process.log();
    let line = log.lines().find(|it| it.contains("talks to other routers")).unwrap();
    let address = line.split("address=").nth(1).unwrap();
    address.trim_start_matches('"').split(['"', ' ']).next().unwrap().to_owned()
}

/// Waits until every router talks to all others.
pub(crate) async fn all_talk(routers: &[Router]) {
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
    // Also at one that starts later, which may hear of it before it has seen the replica.
    let met = address(&routers[0]).await;
    let replicas: Vec<_> = urls.iter().map(|it| (it.as_str(), 1.0)).collect();
    let settings = format!(
        "policy = \"priced\"\ncluster.listen = \"127.0.0.1:0\"\ncluster.peers = [\"{met}\"]"
    );
    let late = Router::start_with(&config(&replicas, &settings));
    late.until("others are up", |it| 2 <= it.count(|it| it.state == "up")).await;
    routers.push(late);
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

/// What `/routers` says at each of them.
pub(crate) async fn pages(routers: &[Router]) -> Vec<Json> {
    let mut pages = Vec::new();
    for router in routers {
        pages.push(ask(router.admin, &Request::get("/routers")).await.json());
    }
    pages
}

/// Waits until all of them have the same leader, which is one of them; returns which.
pub(crate) async fn leader(routers: &[Router]) -> usize {
    let mut found = None;
    eventually("they have one leader", async || {
        let pages = pages(routers).await;
        let leading: Vec<usize> =
            (0..pages.len()).filter(|it| pages[*it]["leads"] == true).collect();
        found = leading.first().copied();
        let same = |it: &Json| it["leader"] == pages[leading[0]]["own"];
        leading.len() == 1 && pages.iter().all(same)
    })
    .await;
    found.unwrap()
}

/// Waits until all go by one plan that divides the pool; returns its generation.
pub(crate) async fn plan(routers: &[Router]) -> String {
    let mut found = String::new();
    eventually("all go by one plan", async || {
        let mut pools = Vec::new();
        for router in routers {
            let page = ask(router.admin, &Request::get("/assignment")).await.json();
            pools.push(page["pools"][0].clone());
        }
        let holders = |pool: &Json| -> Vec<Json> {
            let slices = pool["slices"].as_array().unwrap();
            slices.iter().map(|it| it["replicas"].clone()).collect()
        };
        let first = &pools[0];
        found = first["generation"].as_str().unwrap().to_owned();
        let same =
            |it: &Json| it["generation"] == first["generation"] && holders(it) == holders(first);
        first["divided"] == true && pools.iter().all(same)
    })
    .await;
    found
}

#[tokio::test]
async fn one_router_plans_for_all_and_another_one_does_when_it_is_gone() {
    let mut fleet = Vec::new();
    for _ in 0..6 {
        fleet.push(Scripted::answering(json_answer(200, "{}")).await);
    }
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let more = "health.interval = \"1h\"\n[subsets]\nfloor = 2\ncap = 2\n";
    let first = start(&urls, None, more).await;
    let met = address(&first).await;
    let mut routers = vec![first];
    for _ in 0..2 {
        routers.push(start(&urls, Some(&met), more).await);
    }
    all_talk(&routers).await;
    let leads = leader(&routers).await;
    // Neither of the two workloads comes to the router that plans.
    for (tenant, at) in [("Bearer a", (leads + 1) % 3), ("Bearer b", (leads + 2) % 3)] {
        let request = Request::chat("hi").session("s").header("authorization", tenant);
        assert_eq!(routers[at].ask(&request).await.status(), 200);
    }
    let before = plan(&routers).await;
    drop(routers.remove(leads));
    let leads = leader(&routers).await;
    let pages = pages(&routers).await;
    assert_eq!(pages[leads]["state"], "majority", "{}", pages[leads]);
    assert_eq!(pages[leads]["routers"], 3);
    let status = ask(routers[leads].admin, &Request::get("/status")).await.json();
    assert_eq!(status["cluster"]["present"], 2, "{status}");
    let metrics = ask(routers[leads].admin, &Request::get("/metrics")).await;
    assert!(metrics.text().contains("\ncleave_cluster_leads 1"), "{}", metrics.text());
    assert!(metrics.text().contains("\ncleave_cluster_routers_missing 1"), "{}", metrics.text());
    // What is ordered now is planned by the new one, above the plan of the old one.
    let drained = fleet[0].url().replace("http://", "");
    let order = Request::post(&format!("/drain/{drained}"), "");
    assert!(ask(routers[1 - leads].admin, &order).await.status() < 300);
    eventually("there is a newer plan", async || plan(&routers).await != before).await;
    // Alone it is less than half of all, so it leads no more and goes on with the plan it has.
    drop(routers.remove(1 - leads));
    eventually("none leads", async || {
        let page = ask(routers[0].admin, &Request::get("/routers")).await.json();
        page["state"] == "minority" && page["leader"].is_null() && page["leads"] == false
    })
    .await;
    assert_eq!(routers[0].ask(&Request::chat("hi")).await.status(), 200);
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

#[tokio::test]
async fn what_a_replica_keeps_by_id_is_found_through_any_router_also_one_that_comes_later() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let mut routers = three(&urls).await;
    let mut made = Vec::new();
    for number in 0..9 {
        let body = format!(r#"{{"model":"m","max_output_tokens":4,"input":"chat {number}"}}"#);
        let answer = routers[number % 3].ask(&Request::post("/v1/responses", body)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        made.push((id, answer.header("x-mock-replica").unwrap().to_owned()));
    }
    let met = address(&routers[0]).await;
    routers.push(start(&urls, Some(&met), "").await);
    all_talk(&routers).await;
    for router in &routers {
        for (id, home) in &made {
            eventually("it is found where it was made", async || {
                let answer = router.ask(&Request::get(&format!("/v1/responses/{id}"))).await;
                answer.status() == 200 && answer.header("x-mock-replica") == Some(home.as_str())
            })
            .await;
        }
    }
}
