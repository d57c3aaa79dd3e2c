//! Replicas that are pods: they join when they are ready, get nothing new while they are not, and are drained as
//! soon as their end is ordered. Whatever the API server does, the router serves on.

use crate::discovery::leaves_when_its_stream_has_ended;
use crate::support::{ApiServer, Mock, Mood, News, PodSpec, Request, Router, Scripted};

fn router(api: &ApiServer) -> Router {
    router_of(&api.pool())
}

fn router_of(pool: &str) -> Router {
    Router::start_with(&format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nthreads = 2\n\
         health.interval = \"100ms\"\n{pool}"
    ))
}

#[tokio::test]
async fn an_inference_pool_says_which_pods_are_replicas_once_it_is_there() {
    let api = ApiServer::start("inference-pool").await;
    let mocks = [0, 1].map(|_| Mock::start(&["--speed", "inf"]));
    let router = router_of(&api.inference_pool());
    let mut news = News::after(router.admin, 0).await;
    let told = news.until(|it| it.kind == "discovery").await;
    assert_eq!((told.state.as_str(), told.reason.as_deref()), ("failing", Some("absent")));
    let detail = told.detail.unwrap();
    assert!(told.alert && detail.contains("CRDs of the Gateway API"), "{detail}");
    // Its port counts, and not the one that the pod names `http`.
    let port = mocks[0].address.port();
    api.put(PodSpec::new("a", mocks[0].address));
    api.set_inference_pool(("cleave/pool", "chat"), &format!(r#"[{{"number":{port}}}]"#));
    router.until("the pod joins", |it| it.count(|it| it.state == "up") == 1).await;
    news.until(|it| it.kind == "discovery" && it.state == "mended").await;
    assert_eq!(api.selector(), "cleave/pool=chat");
    // Another selector and port are taken up, and a port that is not used is said.
    let port = mocks[1].address.port();
    api.set_inference_pool(("app", "vllm"), &format!(r#"[{{"number":{port}}},{{"number":1}}]"#));
    let told = news.until(|it| it.kind == "discovery" && it.state == "doubtful").await;
    assert_eq!(told.reason.as_deref(), Some("target_ports"));
    router
        .until("the port is another", |it| it.count(|it| it.url.ends_with(&port.to_string())) == 1)
        .await;
    assert_eq!(api.selector(), "app=vllm");
}

#[tokio::test]
async fn a_pod_joins_when_it_is_ready_and_is_drained_when_its_end_is_ordered() {
    let api = ApiServer::start("life").await;
    let (leaving, mut requests) = Scripted::by_hand().await;
    let first = PodSpec::new("a", leaving.address);
    api.put(PodSpec { is_ready: false, ..first.clone() });
    let router = router(&api);
    api.watched().await;
    assert_eq!(
        (router.status().await.replicas().count(), api.selector()),
        (0, "app=vllm".to_owned())
    );
    api.put(PodSpec { annotations: r#""cleave/weight":"0.5""#.to_owned(), ..first.clone() });
    router.until("it joins", |it| it.count(|it| it.state == "up" && it.weight < 0.6) == 1).await;
    let (client, exchange) = requests.begin(router.address, &Request::stream("hi")).await;

    let staying = Mock::start(&["--speed", "inf"]);
    api.put(PodSpec::new("b", staying.address));
    api.put(PodSpec { is_ending: true, ..first });
    leaves_when_its_stream_has_ended(&router, client, exchange).await;
    api.delete("a", true);
}

#[tokio::test]
async fn a_pod_that_is_not_ready_gets_nothing_new_and_comes_back() {
    let api = ApiServer::start("ready").await;
    let mocks = [0, 1].map(|_| Mock::start(&["--speed", "inf"]));
    let [one, other] =
        [("a", &mocks[0]), ("b", &mocks[1])].map(|(uid, it)| PodSpec::new(uid, it.address));
    api.put(one.clone());
    api.put(other);
    let router = router(&api);
    router.until("both are up", |it| it.count(|it| it.state == "up") == 2).await;
    let mut news = News::after(router.admin, 0).await;
    api.put(PodSpec { is_ready: false, ..one.clone() });
    let told = news.until(|it| it.state == "out").await;
    assert_eq!(told.reason.as_deref(), Some("not_ready"));
    for number in 0..8 {
        let request = Request::chat("hi").session(&number.to_string());
        assert_eq!(router.ask(&request).await.status(), 200);
    }
    let status = router.status().await;
    assert_eq!(status.replica(mocks[0].address).sessions, 0);
    assert_eq!(status.replica(mocks[0].address).reason.as_deref(), Some("not_ready"));
    api.put(one);
    router.until("it is back", |it| it.count(|it| it.state == "up") == 2).await;
}

#[tokio::test]
async fn a_new_container_is_a_cold_cache_and_a_new_pod_another_replica() {
    let api = ApiServer::start("restart").await;
    let mock = Mock::start(&["--speed", "inf"]);
    let pod = PodSpec::new("a", mock.address);
    api.put(pod.clone());
    let router = router(&api);
    router.until("it is up", |it| it.count(|it| it.state == "up") == 1).await;
    let mut news = News::after(router.admin, 0).await;
    api.put(PodSpec { container: "containerd://2", ..pod });
    news.until(|it| it.state == "restarted").await;
    // The address passes to another pod while nothing watches.
    api.delete("a", false);
    api.cut(true);
    api.put(PodSpec::new("b", mock.address));
    news.until(|it| it.state == "left").await;
    router.until("the new one is up", |it| it.count(|it| it.state == "up") == 1).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn a_deletion_that_the_watch_lost_is_found_by_the_next_list() {
    let api = ApiServer::start("lost").await;
    let mocks = [0, 1].map(|_| Mock::start(&["--speed", "inf"]));
    api.put(PodSpec::new("a", mocks[0].address));
    api.put(PodSpec::new("b", mocks[1].address));
    let router = router(&api);
    router.until("both are up", |it| it.count(|it| it.state == "up") == 2).await;
    api.delete("b", false);
    api.put(PodSpec::new("a", mocks[0].address));
    api.cut(true);
    router.until("one has left", |it| it.replicas().count() == 1).await;
    assert_eq!(router.status().await.replica(mocks[0].address).state, "up");
    // A version that is gone again and again is no reason to list again and again.
    let lists = api.lists();
    assert!((2..=3).contains(&lists), "{lists}");
}

#[tokio::test]
async fn a_role_that_is_denied_is_an_alert_that_says_what_to_grant() {
    let api = ApiServer::start("denied").await;
    let mock = Mock::start(&["--speed", "inf"]);
    api.put(PodSpec::new("a", mock.address));
    api.set_mood(Mood::Forbidding);
    let router = router(&api);
    let mut news = News::after(router.admin, 0).await;
    let told = news.until(|it| it.kind == "discovery").await;
    assert_eq!((told.state.as_str(), told.reason.as_deref()), ("failing", Some("forbidden")));
    let detail = told.detail.unwrap();
    assert!(
        told.alert && detail.contains("pods is forbidden") && detail.contains("watch"),
        "{detail}"
    );
    api.set_mood(Mood::Well);
    news.until(|it| it.kind == "discovery" && it.state == "mended").await;
    router.until("it is up", |it| it.count(|it| it.state == "up") == 1).await;
}

#[tokio::test]
async fn garbage_and_absence_of_the_api_server_change_nothing() {
    let mut api = ApiServer::start("garbage").await;
    let mocks = [0, 1].map(|_| Mock::start(&["--speed", "inf"]));
    api.put(PodSpec::new("a", mocks[0].address));
    let router = router(&api);
    let is_up =
        |count: usize| move |it: &crate::support::Status| it.count(|it| it.state == "up") == count;
    router.until("it is up", is_up(1)).await;
    let mut news = News::after(router.admin, 0).await;
    for (line, mood) in
        [("<html>", Mood::Babbling), (r#"{"type":"ADDED","object":{}}"#, Mood::Well)]
    {
        api.watched().await;
        api.set_mood(mood);
        api.say(line);
        let told = news.until(|it| it.kind == "discovery" && it.state == "failing").await;
        assert_eq!((told.reason.as_deref(), told.alert), (Some("garbage"), true));
        assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
        api.set_mood(Mood::Well);
    }
    api.watched().await;
    api.go_away().await;
    let told = news.until(|it| it.kind == "discovery" && it.state == "failing").await;
    assert_eq!(told.reason.as_deref(), Some("unreachable"));
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    api.put(PodSpec::new("b", mocks[1].address));
    api.come_back().await;
    router.until("what came meanwhile is there", is_up(2)).await;
}
