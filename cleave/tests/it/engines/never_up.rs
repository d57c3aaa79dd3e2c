//! A replica that never came up says why: in an event, in the log and on the page.

use std::process::Command;

use crate::support::{Authority, News, Request, Router, Scripted, Tap, config, deaf, json_answer};

/// Waits for what is told of the only replica, and compares the page with it.
async fn why(url: &str, settings: &str) -> (String, String) {
    let router = Router::start_with(&config(&[(url, 1.0)], settings));
    let mut news = News::after(router.admin, 0).await;
    let told = news.until(|it| it.state == "joining" && it.reason.is_some()).await;
    assert!(told.alert && told.replica.as_deref() == Some(url), "{told:?}");
    let (reason, detail) = (told.reason.unwrap(), told.detail.unwrap());
    router.says(&detail.replace('"', "\\\"")).await;
    let status = router.status().await;
    let replica = status.replicas().next().unwrap();
    assert_eq!((replica.state.as_str(), replica.reason.as_ref()), ("joining", Some(&reason)));
    assert_eq!(replica.detail.as_ref(), Some(&detail));
    (reason, detail)
}

#[tokio::test]
async fn a_replica_that_never_came_up_says_why_after_its_first_probe() {
    let (_socket, address) = deaf();
    let (reason, _) = why(&format!("http://{address}"), "").await;
    assert_eq!(reason, "refused");
    let (reason, detail) = why("http://no-such-host.invalid:80", "").await;
    assert_eq!(reason, "name_unknown", "{detail}");
    let authority = Authority::new();
    let engine = Scripted::answering("").await;
    let server = authority.server(&authority.sign("127.0.0.1", 2020), false);
    let door = Tap::under_tls(engine.address, server).await;
    let ca = format!("engine_tls.ca = \"{}\"", authority.file.display());
    let (reason, detail) = why(&format!("https://{}", door.address), &ca).await;
    assert_eq!(reason, "tls");
    assert!(detail.to_lowercase().contains("expired"), "{detail}");
    let guarded = Scripted::guarded("ek-1", async |_| {}).await;
    let (reason, _) = why(&guarded.url(), "").await;
    assert_eq!(reason, "unauthorized");
    let starting = Scripted::answering("").await;
    let (reason, detail) = why(&starting.url(), "health.path = \"/ready\"").await;
    assert_eq!(reason, "unhealthy");
    assert!(detail.contains("GET /ready was answered with 404"), "{detail}");
}

#[tokio::test]
async fn a_replica_of_another_model_is_named_with_what_it_serves() {
    let engine = Scripted::answering("").await;
    let router = Router::start_with(&format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nhealth.interval = \"100ms\"\n\
         [[pools]]\nname = \"a\"\nmodels = [\"other\"]\nreplicas = [\"{}\"]\n",
        engine.url()
    ));
    let mut news = News::after(router.admin, 0).await;
    let told = news.until(|it| it.reason.as_deref() == Some("wrong_model")).await;
    assert!(told.detail.unwrap().ends_with("it lists m, m-sql"));
    // Told again, but with longer and longer pauses.
    news.until(|it| it.reason.as_deref() == Some("wrong_model")).await;
}

#[tokio::test]
async fn with_a_whole_pool_gone_the_client_is_told_when_to_come_back_and_no_more() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "health.interval = \"1h\"").await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    drop(replica);
    for _ in 0..4 {
        let answer = router.ask(&Request::chat("hi")).await;
        assert_eq!((answer.status(), answer.refusal().code.as_str()), (503, "no_replica"));
        assert!(answer.header("retry-after").is_some());
        let text = answer.text();
        assert!(!text.contains("os error") && !text.contains("refused"), "{text}");
    }
}

#[tokio::test]
async fn check_config_asks_every_replica_when_told_to() {
    let engine = Scripted::guarded("ek-1", async |_| {}).await;
    let (_socket, address) = deaf();
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("probe-{}.toml", std::process::id()));
    let text = format!(
        "replicas = [{{ url = \"{0}\", api_key = \"ek-1\" }}, \"http://{address}\"]",
        engine.url()
    );
    std::fs::write(&file, text).unwrap();
    let binary = env!("CARGO_BIN_EXE_cleave");
    let path = file.clone();
    let output = tokio::task::spawn_blocking(move || {
        Command::new(binary).args(["check-config", "--probe", "--config"]).arg(path).output()
    });
    let output = output.await.unwrap().unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("probe {}: up, serves m, m-sql\n", engine.url())), "{text}");
    assert!(text.contains(&format!("probe http://{address}: refused: ")), "{text}");
    assert_eq!(output.status.code(), Some(1));
}
