//! Faults that are injected, and what clients see of them.

use super::*;

#[tokio::test]
async fn injected_failures_answer_500_until_they_are_taken_away() {
    let faults = Faults { fail_rate: 1.0, ..Faults::default() };
    let rig = Rig::start(Settings { faults, ..unhurried() }).await;
    let (status, body) = rig.post("/v1/chat/completions", &chat("a")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(body["error"]["code"], 500);
    assert_eq!(rig.get("/health").await.0, StatusCode::OK);
    let (status, _) = rig.post("/mock/faults", &json!({ "fail_rate": 2.0 })).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    rig.ok("/mock/faults", &json!({})).await;
    rig.ok("/v1/chat/completions", &chat("a")).await;
}

#[tokio::test]
async fn a_hanging_replica_looks_well_and_answers_nothing() {
    let faults = Faults { hang_rate: 1.0, ..Faults::default() };
    let rig = Rig::start(Settings { faults, ..unhurried() }).await;
    let body = chat("b");
    tokio::select! {
        _ = rig.post("/v1/chat/completions", &body) => panic!("it was to hang"),
        () = async {
            for _ in 0..100 {
                assert_eq!(rig.get("/health").await.0, StatusCode::OK);
            }
        } => {}
    }
}

#[tokio::test]
async fn a_truncated_answer_breaks_off_without_its_end() {
    let faults = Faults { truncate_rate: 1.0, ..Faults::default() };
    let rig = Rig::start(Settings { faults, ..unhurried() }).await;
    for stream in [true, false] {
        let body = with(chat("a"), json!({ "stream": stream })).to_string();
        let response = rig.try_post("/v1/chat/completions", &body).await.unwrap();
        let mut body = response.into_body();
        let mut text = Vec::new();
        let broken = loop {
            match body.frame().await {
                Some(Ok(frame)) => text.extend(frame.into_data().unwrap()),
                Some(Err(_)) => break true,
                None => break false,
            }
        };
        assert!(broken && !text.is_empty() && !text.ends_with(b"\n\n"));
    }
}

#[tokio::test]
async fn a_crash_cuts_everybody_off_and_closes_the_port() {
    let faults = Faults { poison: true, ..Faults::default() };
    let mut rig = Rig::start(Settings { faults, ..Settings::default() }).await;
    let running = rig.try_post("/v1/chat/completions", &endless().to_string()).await.unwrap();
    let mut running = running.into_body();
    running.frame().await.unwrap().unwrap();
    assert!(rig.try_post("/v1/chat/completions", &chat("<|crash|>").to_string()).await.is_err());
    assert_eq!(rig.task.join_next().await.unwrap().unwrap(), Ended::Crashed);
    assert!(running.collect().await.is_err());
    assert!(rig.try_post("/health", "").await.is_err());
}
