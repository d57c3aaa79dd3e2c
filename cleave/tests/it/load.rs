//! What weighs on a replica: what is booked while a request is in flight, and what engines say.

use crate::support::{Mock, Request, Router, Scripted, Wire, ask, eventually, sse_head};

async fn load(router: &Router) -> String {
    ask(router.admin, &Request::get("/load")).await.text().to_owned()
}

async fn until_load_shows(router: &Router, wanted: &[&str]) {
    let shown = async || {
        let load = load(router).await;
        wanted.iter().all(|it| load.contains(it))
    };
    eventually(&format!("/load shows {wanted:?}"), shown).await;
}

#[tokio::test]
async fn a_stream_weighs_as_waiting_and_then_as_being_answered() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    // 4,000 bytes of text, and the role before it.
    client.send(&Request::stream(&"one two ".repeat(500)).bytes()).await;
    let mut exchange = requests.next().await;
    let waiting = "\"waiting_prompt_tokens\":100";
    until_load_shows(&router, &["\"in_flight\":1", waiting, "\"output_tokens\":16}"]).await;
    exchange.send(sse_head()).await;
    exchange.send("9\r\ndata: 1\n\n\r\n").await;
    until_load_shows(&router, &["\"waiting_prompt_tokens\":0", "\"answering_prompt_tokens\":100"])
        .await;
    exchange.send("0\r\n\r\n").await;
    until_load_shows(&router, &["\"in_flight\":0", "\"output_tokens\":0}", "\"report\":null"])
        .await;
}

#[tokio::test]
async fn what_engines_say_of_themselves_is_shown() {
    let mock = Mock::start(&[]);
    let router = Router::start(&[mock.url()], "health.report_interval = \"20ms\"").await;
    until_load_shows(&router, &["\"waiting\":0,\"running\":0", "\"kv_tokens_max\":524288"]).await;
    let metrics = ask(router.admin, &Request::get("/metrics")).await;
    assert!(metrics.text().contains("cleave_replica_report_age_seconds{"), "{}", metrics.text());
}
