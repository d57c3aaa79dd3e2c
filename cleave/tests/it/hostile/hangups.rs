//! Requests that make every engine hang up: no sound replica is put out for them, and others are served.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::support::{Exchange, Request, Router, Scripted, ask, json_answer, sse_head};

/// A replica that hangs up on some prompts, before its answer or in the middle of it.
async fn touchy() -> Scripted {
    Scripted::start(|mut exchange: Exchange| async move {
        let body = String::from_utf8(exchange.body().await).unwrap();
        if body.contains("hang up at once") {
            exchange.reset();
        } else if body.contains("hang up later") {
            exchange.send(sse_head()).await;
            exchange.chunk("data: 1\n\n").await;
            exchange.reset();
        } else {
            exchange.send(json_answer(200, "{}")).await;
        }
    })
    .await
}

/// Sends this many at once, and waits until all are answered or cut.
async fn attack(router: &Arc<Router>, text: &str, count: usize) {
    let mut attackers = JoinSet::new();
    for number in 0..count {
        let (router, text) = (Arc::clone(router), format!("{text} {number}"));
        attackers.spawn(async move {
            let mut client = crate::support::Wire::connect(router.address).await;
            client.send(&Request::stream(&text).bytes()).await;
            _ = client.try_answer().await;
        });
    }
    while let Some(done) = attackers.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn requests_that_make_engines_hang_up_put_out_no_replica_for_others() {
    let replicas = [touchy().await, touchy().await, touchy().await];
    let urls: Vec<String> = replicas.iter().map(Scripted::url).collect();
    let router = Arc::new(Router::start(&urls, "policy = \"round_robin\"").await);
    for round in 0..3 {
        for text in ["hang up at once", "hang up later"] {
            attack(&router, &format!("{text} {round}"), 30).await;
            let up = router.status().await.count(|it| it.state == "up");
            assert!(2 <= up, "{up} replicas are up after: {text}");
            for number in 0..20 {
                let answer =
                    ask(router.address, &Request::chat(&format!("{round} {number}"))).await;
                assert_eq!((answer.status(), answer.text()), (200, "{}"), "after: {text}");
            }
        }
    }
}
