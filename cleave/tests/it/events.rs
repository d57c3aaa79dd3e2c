//! Operators are told what happens to the fleet, with reasons, and may read on from where they were.

use crate::support::{News, Request, Router, Scripted, config, json_answer};

#[tokio::test]
async fn every_change_of_a_replicas_state_is_told_with_its_reason() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let other = Scripted::answering(json_answer(200, "{}")).await;
    let settings = "health.interval = \"20ms\"";
    let router = Router::start(&[replica.url(), other.url()], settings).await;
    let url = replica.url();
    let mut news = News::after(router.admin, 0).await;
    let of_it = |it: &crate::support::Happened| it.replica.as_ref() == Some(&url);
    let joined = news.until(of_it).await;
    assert_eq!((joined.kind.as_str(), joined.state.as_str()), ("replica", "joining"));
    let up = news.until(of_it).await;
    assert_eq!((up.before.as_deref(), up.state.as_str(), up.alert), (Some("joining"), "up", false));
    drop(replica);
    let out = news.until(of_it).await;
    assert_eq!(
        (out.state.as_str(), out.reason.as_deref(), out.alert),
        ("out", Some("unreachable"), true)
    );
    router.write(&config(&[(&other.url(), 1.0)], settings));
    router.process.signal("HUP");
    let leaving = news.until(|it| of_it(it) && it.state == "leaving").await;
    let left = news.until(|it| of_it(it) && it.state == "left").await;
    assert!(leaving.id < left.id && up.id < leaving.id);
    news.until(|it| it.kind == "reload" && it.state == "reloaded").await;

    let mut again = News::after(router.admin, leaving.id).await;
    assert_eq!(again.next().await.id, leaving.id + 1, "a reader goes on from where it was");
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn a_file_that_is_refused_is_an_alert() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "").await;
    let mut news = News::after(router.admin, 0).await;
    router.write("listen = 7\n");
    router.process.signal("HUP");
    let refused = news.until(|it| it.kind == "reload").await;
    assert_eq!((refused.state.as_str(), refused.alert), ("refused", true));
    assert!(refused.detail.is_some());
}
