//! Routers that share a Lease and a `ConfigMap` of Kubernetes, and find each other by their pods.

use crate::cluster::{address, all_talk, leader, pages, plan};
use crate::store::{
    another_leads_after_a_stop, drained, led_by, other_leads_after_goodbye, replicas,
    serve_workloads, start, start_all,
};
use crate::support::{ApiServer, News, PodSpec, Request, Router, Scripted, ask, eventually};

/// The settings of routers that share the objects of an API server.
fn shared(api: &ApiServer) -> String {
    format!(
        "cluster.store = \"kubernetes\"\ncluster.kubernetes.lease = \"3s\"\n\
         cluster.kubernetes.kubeconfig = \"{}\"",
        api.kubeconfig.display()
    )
}

/// The entries of the one pool of these tests.
const ORDERS: &str = "pools.default.orders";
const PLAN: &str = "pools.default.plan";

/// The id of a router, as the others call it.
async fn id(router: &Router) -> String {
    let page = ask(router.admin, &Request::get("/routers")).await.json();
    page["own"].as_str().unwrap().to_owned()
}

/// Orders a replica to be drained, and waits until that is written.
async fn drain(api: &ApiServer, router: &Router, replica: &str) {
    let before = api.objects.kept(ORDERS);
    let ordered = ask(router.admin, &Request::post(&format!("/drain/{replica}"), "")).await;
    assert!(ordered.status() < 300, "{}", ordered.text());
    eventually("the order is written", async || api.objects.kept(ORDERS) != before).await;
}

#[tokio::test]
async fn the_plan_and_the_orders_outlive_a_restart_of_all_routers_in_a_config_map() {
    let (api, fleet) = (ApiServer::start("store").await, replicas(6).await);
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let routers = start_all(&urls, 2, &shared(&api)).await;
    led_by(&routers, "store").await;
    let leads = leader(&routers).await;
    let holder = api.objects.holder().unwrap();
    assert!(holder.starts_with(&id(&routers[leads]).await), "{holder}");
    assert_eq!(api.objects.term(), 1);
    serve_workloads(&routers[1 - leads]).await;
    let name = |it: usize| fleet[it].url().replace("http://", "");
    drain(&api, &routers[1 - leads], &name(5)).await;
    plan(&routers).await;
    let freeze = Request::post("/assignment/freeze", "");
    assert!(ask(routers[1 - leads].admin, &freeze).await.status() < 300);
    // An order that is written after the last plan shows that the plan is, too.
    drain(&api, &routers[leads], &name(4)).await;
    let before = plan(&routers).await;
    assert!(api.objects.kept(PLAN).is_some());
    // An operator may touch the ConfigMap without harm to its leader.
    api.objects.put_entry("note", "aGk=");
    drain(&api, &routers[leads], &name(3)).await;
    assert_eq!(leader(&routers).await, leads);
    drop(routers);

    let routers = start_all(&urls, 2, &shared(&api)).await;
    for router in &routers {
        drained(router, &name(5)).await;
    }
    eventually("they go on from that plan", async || plan(&routers).await == before).await;
    other_leads_after_goodbye(&routers).await;
    assert!(2 < api.objects.term(), "every tenure has a higher term");
}

#[tokio::test]
async fn a_leader_that_stops_is_followed_and_writes_nothing_when_it_wakes() {
    let (mut api, fleet) = (ApiServer::start("tenure").await, replicas(4).await);
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let routers = start_all(&urls, 3, &shared(&api)).await;
    led_by(&routers, "store").await;
    another_leads_after_a_stop(&routers).await;

    // What was deleted is made again; the term grows as long as one of the two is there.
    let term = api.objects.term();
    api.objects.delete(true, false);
    eventually("the Lease is taken anew", async || term < api.objects.term()).await;
    api.objects.delete(true, true);
    eventually("the Lease is there again", async || api.objects.holder().is_some()).await;
    led_by(&routers, "store").await;
    drain(&api, &routers[0], &fleet[3].url().replace("http://", "")).await;

    // An API server that is gone stops nothing.
    api.go_away().await;
    led_by(&routers, "majority").await;
    leader(&routers).await;
    assert_eq!(routers[0].ask(&Request::chat("hi")).await.status(), 200);
    let order = Request::post(&format!("/drain/{}", fleet[2].url().replace("http://", "")), "");
    let ordered = ask(routers[0].admin, &order).await;
    assert!(ordered.text().contains("kept in memory"), "{}", ordered.text());
    let before = api.objects.kept(ORDERS);
    api.come_back().await;
    led_by(&routers, "store").await;
    eventually("the order is written", async || api.objects.kept(ORDERS) != before).await;
}

#[tokio::test]
async fn rights_that_are_denied_and_a_config_map_that_is_full_are_said() {
    let (api, fleet) = (ApiServer::start("rights").await, replicas(2).await);
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    api.objects.deny(true);
    // Another pool's plan, of more than a million bytes.
    api.objects.put_entry("pools.other.plan", &"AAAA".repeat(346_000));
    let routers = [start(&urls, None, &shared(&api))];
    eventually("it says what to grant", async || {
        let page = pages(&routers).await.remove(0);
        let trouble = page["store"]["trouble"].as_str().unwrap_or_default().to_owned();
        trouble.contains("forbidden") && trouble.contains("overlays/three-routers/rbac.yaml")
    })
    .await;
    api.objects.deny(false);
    led_by(&routers, "store").await;
    let mut news = News::after(routers[0].admin, 0).await;
    let order = Request::post(&format!("/drain/{}", fleet[1].url().replace("http://", "")), "");
    assert!(ask(routers[0].admin, &order).await.status() < 300);
    let told = news.until(|it| it.state == "store_full").await;
    let detail = told.detail.unwrap();
    assert!(told.alert && detail.starts_with("pools/default/orders is not kept"), "{detail}");
    assert!(detail.contains("1 MiB"), "{detail}");
    assert_eq!(api.objects.kept(ORDERS), None);
}

#[tokio::test]
async fn routers_find_each_other_by_their_pods_before_they_are_ready() {
    let (api, fleet) = (ApiServer::start("peers").await, replicas(2).await);
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let found = format!(
        "{}\ncluster.secret = \"0123456789abcdef\"\ncluster.discover = \"kubernetes\"\n\
         cluster.kubernetes.selector = \"app=cleave\"\ncluster.kubernetes.port = \"http\"",
        shared(&api)
    );
    let routers: Vec<Router> = (0..3).map(|_| start(&urls, None, &found)).collect();
    for (router, uid) in routers.iter().zip(["a", "b", "c"]) {
        let address = address(router).await.parse().unwrap();
        api.put(PodSpec { is_ready: false, ..PodSpec::new(uid, address) });
    }
    all_talk(&routers).await;
    assert_eq!(api.selector(), "app=cleave");
    let pages = pages(&routers).await;
    assert!(pages.iter().all(|it| it["routers"] == 3 && it["state"] == "whole"), "{pages:?}");
}
