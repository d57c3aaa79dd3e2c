//! Routers that share an etcd: it says which one leads, and keeps the plan and the orders over a restart of all.

use crate::cluster::{address, all_talk, leader, pages, plan};
use crate::support::{Etcd, Request, Router, Scripted, ask, config, eventually, json_answer};

/// Replicas that answer, and do not mind what.
pub(crate) async fn replicas(count: usize) -> Vec<Scripted> {
    let mut fleet = Vec::new();
    for _ in 0..count {
        fleet.push(Scripted::answering(json_answer(200, "{}")).await);
    }
    fleet
}

/// Starts a router that shares a store, with a peer if there is one.
pub(crate) fn start(urls: &[String], peer: Option<&str>, store: &str) -> Router {
    let replicas: Vec<_> = urls.iter().map(|it| (it.as_str(), 1.0)).collect();
    let peers = peer.map_or(String::new(), |it| format!("cluster.peers = [\"{it}\"]\n"));
    let settings = format!(
        "policy = \"priced\"\nhealth.interval = \"1h\"\ncluster.listen = \"127.0.0.1:0\"\n{peers}\
         {store}\n\
         [subsets]\nfloor = 2\ncap = 2\n"
    );
    Router::start_with(&config(&replicas, &settings))
}

/// Starts routers that know each other.
pub(crate) async fn start_all(urls: &[String], count: usize, store: &str) -> Vec<Router> {
    let mut routers = vec![start(urls, None, store)];
    let met = address(&routers[0]).await;
    for _ in 1..count {
        routers.push(start(urls, Some(&met), store));
    }
    all_talk(&routers).await;
    routers
}

fn endpoint(etcd: &Etcd) -> String {
    format!("cluster.store = \"etcd\"\ncluster.etcd.endpoints = [\"{}\"]", etcd.url())
}

/// Has two workloads served, so that there is something to plan.
pub(crate) async fn serve_workloads(router: &Router) {
    for tenant in ["Bearer a", "Bearer b"] {
        let request = Request::chat("hi").session("s").header("authorization", tenant);
        assert_eq!(router.ask(&request).await.status(), 200);
    }
}

/// Waits until the store, or the majority, says which router leads.
pub(crate) async fn led_by(routers: &[Router], what: &str) {
    eventually(&format!("the {what} says which one leads"), async || {
        let pages = pages(routers).await;
        pages.iter().all(|it| it["leader_by"] == what && !it["leader"].is_null())
    })
    .await;
}

/// What the store keeps under names that end so.
fn kept(etcd: &Etcd, what: &str) -> Vec<String> {
    let names = etcd.ctl(&["get", "--prefix", "/cleave/pools/", "--keys-only"]);
    let names = names.lines().filter(|it| it.ends_with(what));
    names.map(|it| etcd.ctl(&["get", it, "--print-value-only"])).collect()
}

/// Waits until a replica is drained at a router.
pub(crate) async fn drained(router: &Router, replica: &str) {
    router
        .until("the replica is drained", |it| {
            it.count(|it| it.url.ends_with(replica) && it.state.starts_with("drain")) == 1
        })
        .await;
}

#[tokio::test]
async fn the_plan_and_the_orders_outlive_a_restart_of_all_routers() {
    let (etcd, fleet) = (Etcd::start().await, replicas(6).await);
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let routers = start_all(&urls, 2, &endpoint(&etcd)).await;
    led_by(&routers, "store").await;
    let leads = leader(&routers).await;
    serve_workloads(&routers[1 - leads]).await;
    let replica = fleet[5].url().replace("http://", "");
    let order = Request::post(&format!("/drain/{replica}"), "");
    let ordered = ask(routers[1 - leads].admin, &order).await;
    assert!(ordered.status() < 300, "{}", ordered.text());
    drained(&routers[leads], &replica).await;
    // What is planned stays from now on; an order that is written after that shows that the plan is, too.
    plan(&routers).await;
    for order in [
        "/assignment/freeze".to_owned(),
        format!("/drain/{}", fleet[4].url().replace("http://", "")),
    ] {
        let orders = kept(&etcd, "/orders");
        assert!(ask(routers[1 - leads].admin, &Request::post(&order, "")).await.status() < 300);
        eventually("the order is written", async || kept(&etcd, "/orders") != orders).await;
    }
    let before = plan(&routers).await;
    assert!(!kept(&etcd, "/plan").is_empty());
    drop(routers);
    let routers = start_all(&urls, 2, &endpoint(&etcd)).await;
    for router in &routers {
        drained(router, &replica).await;
    }
    eventually("they go on from that plan", async || plan(&routers).await == before).await;
    other_leads_after_goodbye(&routers).await;
}

/// Ends the leader of two on purpose: it gives the lease back, and the other need not wait for its end.
pub(crate) async fn other_leads_after_goodbye(routers: &[Router]) {
    let leads = leader(routers).await;
    routers[leads].process.signal("TERM");
    eventually("the other one leads", async || {
        pages(&routers[1 - leads..][..1]).await[0]["leads"] == true
    })
    .await;
}

/// Stops the leader for longer than its lease: it is not the leader when it goes on.
pub(crate) async fn another_leads_after_a_stop(routers: &[Router]) {
    let stopped = leader(routers).await;
    routers[stopped].process.signal("STOP");
    eventually("another one leads", async || {
        let mut leading = 0;
        for (_, router) in routers.iter().enumerate().filter(|it| it.0 != stopped) {
            let page = ask(router.admin, &Request::get("/routers")).await.json();
            leading += u32::from(page["leads"] == true && page["leader_by"] == "store");
        }
        leading == 1
    })
    .await;
    routers[stopped].process.signal("CONT");
    assert_ne!(leader(routers).await, stopped);
    all_talk(routers).await;
}

#[tokio::test]
async fn a_store_that_is_gone_stops_nothing_and_is_written_again_when_it_is_back() {
    let (mut etcd, fleet) = (Etcd::start().await, replicas(4).await);
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let routers = start_all(&urls, 3, &endpoint(&etcd)).await;
    led_by(&routers, "store").await;
    another_leads_after_a_stop(&routers).await;
    etcd.kill();
    led_by(&routers, "majority").await;
    leader(&routers).await;
    assert_eq!(routers[0].ask(&Request::chat("hi")).await.status(), 200);
    let replica = fleet[3].url().replace("http://", "");
    let order = Request::post(&format!("/drain/{replica}"), "");
    let ordered = ask(routers[0].admin, &order).await;
    assert!(ordered.status() < 300, "{}", ordered.text());
    assert!(ordered.text().contains("kept in memory"), "{}", ordered.text());
    for router in &routers {
        drained(router, &replica).await;
    }
    let page = pages(&routers).await.remove(1);
    assert_eq!(page["store"]["state"], "silent", "{page}");
    assert!(page["store"]["trouble"].is_string(), "{page}");
    // It comes back without anything that it knew.
    etcd.wipe();
    etcd.revive().await;
    led_by(&routers, "store").await;
    leader(&routers).await;
    eventually("the order is written", async || !kept(&etcd, "/orders").is_empty()).await;
}

#[tokio::test]
async fn a_store_may_ask_for_a_user_and_a_password() {
    let (etcd, fleet) = (Etcd::start().await, replicas(1).await);
    for command in [
        "user add root:rootpassword",
        "user grant-role root root",
        "user add cleave:swordfish-9",
        "role add routers",
        "role grant-permission routers readwrite --prefix=true /cleave/",
        "user grant-role cleave routers",
        "auth enable",
    ] {
        etcd.ctl(&command.split(' ').collect::<Vec<_>>());
    }
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let with = |password: &str| {
        let user = "cluster.etcd.user = \"cleave\"";
        format!("{}\n{user}\ncluster.etcd.password = \"{password}\"", endpoint(&etcd))
    };
    let known = [start(&urls, None, &with("swordfish-9"))];
    led_by(&known, "store").await;
    let unknown = [start(&urls, None, &with("a-guess-at-it"))];
    led_by(&unknown, "majority").await;
    eventually("it says why", async || {
        let page = pages(&unknown).await.remove(0);
        page["store"]["trouble"].as_str().is_some_and(|it| it.contains("authentication failed"))
    })
    .await;
    assert!(!unknown[0].process.log().contains("a-guess-at-it"));
}
