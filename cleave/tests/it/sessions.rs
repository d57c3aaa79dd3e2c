//! Sessions: how one is recognised, that its id comes back on every answer, and that it stays where
//! it is.

use crate::support::{
    Answer, Mock, Request, Router, Scripted, Wire, ask, eventually, json_answer, sse_head,
};

async fn well() -> Scripted {
    Scripted::answering(json_answer(200, "{}")).await
}

fn id(answer: &Answer) -> &str {
    answer.header("x-session-id").expect("every answer names its session")
}

#[tokio::test]
async fn every_answer_names_its_session() {
    let replica = well().await;
    let settings = "limits.body_mib_max = 1\nhealth.interval = \"1h\"";
    let router = Router::start(&[replica.url()], settings).await;
    let named = |request: Request| request.session("mine");
    let requests = [
        (200, named(Request::chat("hi"))),
        (400, named(Request::post("/v1/chat/completions", "{"))),
        (404, named(Request::post("/v1/chat/completions", r#"{"model":"nobody's"}"#))),
        (200, named(Request::get("/v1/models"))),
    ];
    for (status, request) in requests {
        let answer = router.ask(&request).await;
        assert_eq!((answer.status(), id(&answer)), (status, "mine"));
    }
    let mut client = Wire::connect(router.address).await;
    let large = named(Request::post("/v1/chat/completions", vec![b' '; (1 << 20) + 1])).bytes();
    client.send(&large[..large.len() - (1 << 20)]).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), id(&answer)), (413, "mine"));
    drop(replica);
    let answer = router.ask(&named(Request::chat("hi"))).await;
    assert_eq!((answer.status(), id(&answer)), (503, "mine"));
}

#[tokio::test]
async fn a_stream_names_its_session_from_the_first_turn_on() {
    let stream = format!("{}9\r\ndata: 1\n\n\r\n0\r\n\r\n", sse_head());
    let replica = Scripted::answering(stream).await;
    let router = Router::start(&[replica.url()], "").await;
    let first = router.ask(&Request::stream("hi")).await;
    assert!(id(&first).starts_with("fp-"), "{}", id(&first));
    // A client that sends the id along stays in the session, whatever it says.
    let second = router.ask(&Request::stream("and now?").session(id(&first))).await;
    assert_eq!(id(&second), id(&first));
    assert_eq!(router.status().await.pools[0].sessions, 1);
}

#[tokio::test]
async fn the_sources_of_a_session_are_asked_in_order() {
    let replica = well().await;
    let router = Router::start(&[replica.url()], "").await;
    let chat = |fields: &str| {
        let body = format!(
            "{{\"model\":\"m\",{fields}\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}"
        );
        Request::post("/v1/chat/completions", body)
    };
    let all = r#""user":"from-user","metadata":{"session_id":"from-metadata"},"prompt_cache_key":"from-cache-key","#;
    let headers = ["x-smg-routing-key", "x-dynamo-session-id", "session_id", "session-id"];
    let check = async |request: Request, want: &str| {
        assert_eq!(id(&router.ask(&request).await), want);
    };
    check(chat(all).header("session-id", "agent").session("ours"), "ours").await;
    for header in headers {
        check(chat(all).header(header, header), header).await;
    }
    check(
        chat(all).header("session-id", "late").header("x-claude-code-session-id", "early"),
        "early",
    )
    .await;
    check(chat(all), "from-cache-key").await;
    check(
        chat(r#""metadata":{"session_id":"from-metadata"},"user":"from-user","#),
        "from-metadata",
    )
    .await;
    check(chat(r#""metadata":{},"user":"from-user","#), "from-user").await;
}

#[tokio::test]
async fn without_a_name_the_opening_names_the_session_and_without_that_nothing_does() {
    let replica = well().await;
    let router = Router::start(&[replica.url()], "").await;
    let chat = |messages: &str| {
        let body = format!("{{\"model\":\"m\",\"messages\":[{messages}]}}");
        Request::post("/v1/chat/completions", body)
    };
    let opening = r#"{"role":"system","content":"be brief"},{"role":"user","content":"hi"}"#;
    let later = format!(
        r#"{opening},{{"role":"assistant","content":"yo"}},{{"role":"user","content":"and?"}}"#
    );
    let first = router.ask(&chat(opening)).await;
    assert!(id(&first).starts_with("fp-"));
    assert_eq!(id(&router.ask(&chat(&later)).await), id(&first));
    let other = opening.replace("brief", "long");
    assert_ne!(id(&router.ask(&chat(&other)).await), id(&first));

    let embed = Request::post("/v1/embeddings", r#"{"model":"m","input":"x"}"#);
    let (one, two) = (router.ask(&embed).await, router.ask(&embed).await);
    assert_eq!((id(&one).len(), id(&two).len()), (36, 36), "a UUID each");
    assert_ne!(id(&one), id(&two));
}

#[tokio::test]
async fn two_tenants_with_one_id_are_two_sessions() {
    let replica = well().await;
    let router = Router::start(&[replica.url()], "").await;
    let sessions = async || router.status().await.pools[0].sessions;
    for (header, key, want) in [
        ("authorization", "Bearer one", 1),
        ("authorization", "Bearer one", 1),
        ("authorization", "Bearer two", 2),
        ("x-api-key", "three", 3),
    ] {
        router.ask(&Request::chat("hi").session("same").header(header, key)).await;
        assert_eq!(sessions().await, want);
    }
}

#[tokio::test]
async fn sessions_stay_put_over_turns_and_apis_and_spread_over_replicas() {
    let mocks: Vec<Mock> = (0..4).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let router = Router::start(&urls, "").await;
    let mut homes = std::collections::BTreeSet::new();
    // With this many, the chance that a replica has none is one in ten million.
    for session in 0..64 {
        let name = format!("chat-{session}");
        let message = r#""messages":[{"role":"user","content":"hi"}]"#;
        let mut homes_seen = Vec::new();
        for (path, fields) in [
            ("/v1/chat/completions", format!("\"max_tokens\":2,{message}")),
            ("/v1/chat/completions", format!("\"stream\":true,\"max_tokens\":2,{message}")),
            ("/v1/messages", format!("\"max_tokens\":2,{message}")),
            ("/v1/completions", "\"max_tokens\":2,\"prompt\":\"hi\"".to_owned()),
            ("/v1/responses", "\"max_output_tokens\":2,\"input\":\"hi\"".to_owned()),
            ("/v1/embeddings", "\"input\":\"hi\"".to_owned()),
        ] {
            let request = Request::post(path, format!("{{\"model\":\"m\",{fields}}}"));
            let answer = router.ask(&request.session(&name)).await;
            assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
            homes_seen.push(answer.header("x-mock-replica").unwrap().to_owned());
        }
        homes_seen.dedup();
        assert_eq!(homes_seen.len(), 1, "{name}: {homes_seen:?}");
        homes.extend(homes_seen);
    }
    assert_eq!(homes.len(), 4, "no replica is without a session");
}

#[tokio::test]
async fn ids_that_cannot_be_echoed_become_their_digest() {
    let replica = well().await;
    let router = Router::start(&[replica.url()], "").await;
    let long = "x".repeat(10_000);
    for abuse in [long.as_bytes(), b"two words", "gr\u{fc}n".as_bytes(), b"\xff\xfe", b"\t"] {
        let digest = async || {
            let answer = router.ask(&Request::chat("hi").header("x-session-id", abuse)).await;
            assert_eq!(answer.status(), 200);
            id(&answer).to_owned()
        };
        let first = digest().await;
        let fits = first.starts_with("h-") && first.len() == 34 || first.starts_with("fp-");
        assert!(fits, "{abuse:?}: {first}");
        assert_eq!(first, digest().await, "the same id is the same session");
    }
    // A body can name what no header can carry.
    let body = r#"{"model":"m","messages":[],"prompt_cache_key":"a\r\nx-evil: 1\r\n\r\n"}"#;
    let answer = router.ask(&Request::post("/v1/chat/completions", body)).await;
    assert!(id(&answer).starts_with("h-"));
    assert_eq!(answer.header("x-evil"), None);
}

#[tokio::test]
async fn new_sessions_do_not_wait_for_memory_where_replicas_have_time_to_spare() {
    // Twice as many sessions as the replicas have memory for, one after the other, beside two long answers. They come
    // back, so they are worth to be remembered. One that waits for another to be forgotten is refused.
    const SESSIONS: usize = 100;
    let patience = "[[classes]]\nname = \"standard\"\nweight = 4.0\nwait_max = \"2s\"\n";
    for gate in ["", "line.gate = true\n"] {
        let mock = || Mock::start(&["--speed", "20", "--kv-tokens", "32768"]);
        let mocks = [mock(), mock(), mock(), mock()];
        let reports = "policy = \"priced\"\nhealth.report_interval = \"100ms\"\n";
        let settings = format!("{reports}{gate}{patience}");
        let router = Router::start(&mocks.each_ref().map(Mock::url), &settings).await;
        eventually("the router knows all of the memory", async || {
            let page = ask(router.admin, &Request::get("/status")).await.json();
            page["pools"][0]["queue"]["sessions_kv_tokens_max"] == 4 * 32_768
        })
        .await;
        let words = |session: usize| format!("{session} ").repeat(10_000);
        let mut long = Vec::new();
        for session in 0..2 {
            let body = format!(
                r#"{{"model":"m","stream":true,"ignore_eos":true,"max_tokens":15000,"prompt":"{session} {}"}}"#,
                "word ".repeat(12_000)
            );
            let mut client = Wire::connect(router.address).await;
            client.send(&Request::post("/v1/completions", body).bytes()).await;
            client.head().await.expect("the answer begins");
            long.push(client);
        }
        for session in 2..SESSIONS {
            let request = Request::chat(&words(session)).session(&format!("s-{session}"));
            for _ in 0..2 {
                let answer = router.ask(&request).await;
                assert_eq!(answer.status(), 200, "session {session}, {gate:?}: {}", answer.text());
            }
        }
        let page = ask(router.admin, &Request::get("/status")).await.json();
        let held = page["pools"][0]["queue"]["sessions_kv_tokens"].as_u64();
        assert!(held.is_some_and(|it| 4 * 32_768 < it), "the memory is full: {held:?}");
    }
}
