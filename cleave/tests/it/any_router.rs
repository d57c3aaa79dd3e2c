//! Any router answers for all of them.

use std::time::Duration;

use crate::cluster::{address, all_talk};
use crate::support::{Json, Mock, Request, Router, ask, eventually};

/// The key that the first tenant shows: the hash below is of this.
const KEY: &str = "Bearer abc";
const SETTINGS: &str = "policy = \"priced\"\ncluster.listen = \"127.0.0.1:0\"\n\
    explain.sample = 0\nexplain.clients = true\n";
const TENANTS: &str = "[[tenants]]\nname = \"acme\"\ncontract = { mu_per_min = 1000.0 }\n\
    key_sha256 = [\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"]\n";

/// Starts two routers that know each other.
async fn two(urls: &[String]) -> Vec<Router> {
    let first = Router::start(urls, &format!("{SETTINGS}{TENANTS}")).await;
    let met = address(&first).await;
    let peers = format!("cluster.peers = [\"{met}\"]\n");
    let second = Router::start(urls, &format!("{SETTINGS}{peers}{TENANTS}")).await;
    let routers = vec![first, second];
    all_talk(&routers).await;
    routers
}

async fn page(router: &Router, path: &str) -> Json {
    let answer = ask(router.admin, &Request::get(path)).await;
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    answer.json()
}

fn chat(id: &str) -> Request {
    let chat = Request::chat("hi").header("authorization", KEY);
    chat.header("x-request-id", id).header("x-cleave-explain", "1")
}

#[tokio::test]
async fn a_decision_and_a_tenants_use_are_found_through_any_router() {
    let mocks: Vec<Mock> = (0..2).map(|_| Mock::start(&["--speed", "50"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let routers = two(&urls).await;
    let own = [page(&routers[0], "/routers").await, page(&routers[1], "/routers").await];
    for (at, router) in routers.iter().enumerate() {
        for number in 0..=at {
            assert_eq!(router.ask(&chat(&format!("r-{at}-{number}"))).await.status(), 200);
        }
    }
    for router in &routers {
        // Each id is found at both, with the router that decided.
        for (id, by) in [("r-0-0", 0), ("r-1-0", 1), ("r-1-1", 1)] {
            let it = page(router, &format!("/explain/{id}")).await;
            assert_eq!((&it["request_id"], &it["router"]), (&id.into(), &own[by]["own"]), "{it}");
        }
        let listed = page(router, "/explain").await;
        assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
        let missing = ask(router.admin, &Request::get("/explain/r-9")).await;
        assert_eq!(missing.status(), 404, "{}", missing.text());
        // One request at the first router, two at the second.
        eventually("the use of all routers is added up", async || {
            let it = page(router, "/tenants").await;
            let tenants = it["pools"][0]["tenants"].as_array().unwrap();
            let acme = tenants.iter().find(|it| it["name"] == "acme").unwrap();
            let count = |it: &Json| -> u64 {
                let used = it["used"].as_array().unwrap();
                used.iter().map(|it| it["requests"].as_u64().unwrap()).sum()
            };
            let of = |by: usize| -> u64 {
                let routers = acme["routers"].as_array().unwrap();
                routers.iter().find(|it| it["router"] == own[by]["own"]).map_or(0, count)
            };
            (count(acme), of(0), of(1)) == (3, 1, 2) && it["silent"].is_null()
        })
        .await;
    }
}

#[tokio::test]
async fn a_decision_says_which_router_made_a_replica_expensive_and_a_lost_router_is_not_waited_for()
{
    // One token takes half a minute, so that what is asked stays in flight.
    let mock = Mock::start(&["--speed", "0.001"]);
    let mut routers = two(&[mock.url()]).await;
    let own = page(&routers[0], "/routers").await["own"].clone();
    let mut waiting = crate::support::Wire::connect(routers[0].address).await;
    waiting.send(&chat("r-long").bytes()).await;
    eventually("it is booked at the other router", async || {
        let load = page(&routers[1], "/load").await;
        load["pools"][0]["replicas"][0]["elsewhere"][0]["router"] == own
    })
    .await;
    let mut second = crate::support::Wire::connect(routers[1].address).await;
    second.send(&chat("r-next").bytes()).await;
    // Asked of the first router, about what the second one decided.
    eventually("the decision names the first router", async || {
        let answer = ask(routers[0].admin, &Request::get("/explain/r-next")).await;
        if answer.status() != 200 {
            return false;
        }
        let it = answer.json();
        let booked = &it["tries"][0]["candidates"][0]["elsewhere"][0];
        booked["router"] == own && 0.9 < booked["share"].as_f64().unwrap_or(0.0)
    })
    .await;
    // A router that is stopped answers nothing, and the page is there all the same.
    routers[1].process.signal("STOP");
    let asked = std::time::Instant::now();
    let tenants = page(&routers[0], "/tenants").await;
    assert!(asked.elapsed() < Duration::from_secs(8), "it waits for one second");
    assert_eq!(tenants["pools"][0]["tenants"].as_array().unwrap().len(), 2, "{tenants}");
    routers[1].process.signal("CONT");
    drop(routers.remove(1));
}
