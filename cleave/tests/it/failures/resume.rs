//! A stream whose replica is lost goes on from another one, and the client sees one answer. The mock
//! replicas all say the same to the same prompt, so what arrives is checked character by character.

use serde::Deserialize;

use super::cut::expect_cut_event;
use crate::support::{Exchange, Mock, Request, Router, Scripted, Wire, ask, sse_head};

/// Requests alternate, and no breaker gets in the way.
const RESUME: &str = "resume = true\npolicy = \"round_robin\"\nbreaker.failures_max = 1000\n\
                      retries.tries_max = 9\nhealth.interval = \"1h\"";

const CHAT: &str = r#"{"model":"m","stream":true,"max_tokens":40,"ignore_eos":true,
    "stream_options":{"include_usage":true},"messages":[{"role":"user","content":"go"}]}"#;
const COMPLETION: &str =
    r#"{"model":"m","stream":true,"max_tokens":40,"ignore_eos":true,"prompt":"go\n"}"#;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    text: String,
    roles: usize,
    finishes: Vec<String>,
    dones: usize,
    usage: Option<Usage>,
    ids: Vec<(String, u64)>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the names are the API's")]
struct Usage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
}

#[derive(Deserialize)]
struct Chunk {
    id: String,
    created: u64,
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    text: Option<String>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    role: Option<String>,
    content: Option<String>,
}

/// Reads a stream as a client would.
fn seen(stream: &str) -> Seen {
    let mut seen = Seen::default();
    for event in stream.strip_suffix("\n\n").expect("whole events").split("\n\n") {
        let data = event.strip_prefix("data: ").unwrap_or_else(|| panic!("{event:?}"));
        if data == "[DONE]" {
            seen.dones += 1;
            continue;
        }
        let chunk: Chunk = serde_json::from_str(data).unwrap_or_else(|it| panic!("{it}: {data}"));
        if !seen.ids.contains(&(chunk.id.clone(), chunk.created)) {
            seen.ids.push((chunk.id, chunk.created));
        }
        for choice in chunk.choices {
            seen.text += choice.delta.content.or(choice.text).as_deref().unwrap_or("");
            seen.roles += usize::from(choice.delta.role.is_some());
            seen.finishes.extend(choice.finish_reason);
        }
        seen.usage = seen.usage.or(chunk.usage);
    }
    seen
}

async fn set_faults(mock: &Mock, faults: &str) {
    let answer = ask(mock.address, &Request::post("/mock/faults", faults)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

/// Streams through a router whose first replica has `faults` in the middle of its answers; what the
/// client gets must be what a sound replica says.
async fn check_seamless(faults: &str, settings: &str) {
    let (spoiled, sound) = (Mock::start(&["--speed", "inf"]), Mock::start(&["--speed", "inf"]));
    set_faults(&spoiled, faults).await;
    let settings = format!("{RESUME}\n{settings}");
    let router = Router::start(&[spoiled.url(), sound.url()], &settings).await;
    for (path, body) in [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)] {
        let whole = seen(ask(sound.address, &Request::post(path, body)).await.text());
        for _ in 0..4 {
            let answer = router.ask(&Request::post(path, body)).await;
            let got = seen(answer.text());
            assert_eq!((got.ids.len(), got.dones), (1, 1), "{}", answer.text());
            assert_eq!(got, Seen { ids: got.ids.clone(), ..whole.clone() });
        }
    }
    assert!(2 <= router.counter("cleave_streams_resumed_total").await);
}

#[tokio::test]
async fn a_stream_whose_replica_hangs_up_goes_on_without_a_seam() {
    check_seamless(r#"{"truncate_rate":1}"#, "").await;
}

#[tokio::test]
async fn a_stream_that_ends_too_early_goes_on_without_a_seam() {
    check_seamless(r#"{"short_rate":1}"#, "").await;
}

#[tokio::test]
async fn a_stream_that_turns_to_garbage_goes_on_without_a_seam() {
    check_seamless(r#"{"garbage_rate":1}"#, "").await;
}

#[tokio::test]
async fn a_stream_that_falls_silent_goes_on_without_a_seam() {
    check_seamless(r#"{"stall_rate":1}"#, "timeouts.idle = \"500ms\"").await;
}

const WORD: &str = r#"data: {"id":"a","object":"o","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"one "}}]}"#;

#[tokio::test]
async fn half_an_event_is_never_passed_on_and_the_rest_is_asked_for_by_name() {
    let (lost, mut last_requests) = Scripted::by_hand().await;
    let router = Router::start(&[lost.url()], RESUME).await;
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::post("/v1/chat/completions", CHAT).bytes()).await;
    let mut exchange = last_requests.next().await;
    exchange.body().await;
    exchange.send(sse_head()).await;
    exchange.chunk(&format!("{WORD}\n\n{}", &WORD[..60])).await;
    client.head().await.unwrap();
    assert_eq!(client.piece().await.unwrap().unwrap(), format!("{WORD}\n\n").into_bytes());
    exchange.reset();
    // No other replica can go on: the client is told, after whole events.
    let rest = String::from_utf8(client.body().await.unwrap()).unwrap();
    assert!(rest.starts_with("data: {\"error\":"), "{rest}");
    expect_cut_event(&rest);
}

/// A stream that broke off after its first event, and what the other replica is then asked.
struct Broken {
    client: Wire,
    second: Exchange,
    /// They end when this does.
    _running: (Router, [Scripted; 2]),
}

async fn broken_after(event: &str) -> Broken {
    let (one, mut ones) = Scripted::by_hand().await;
    let (other, mut others) = Scripted::by_hand().await;
    let router = Router::start(&[one.url(), other.url()], RESUME).await;
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::post("/v1/chat/completions", CHAT).bytes()).await;
    let (mut first, mut seconds) = tokio::select! {
        it = ones.next() => (it, others),
        it = others.next() => (it, ones),
    };
    first.body().await;
    first.send(sse_head()).await;
    first.chunk(&format!("{event}\n\n")).await;
    client.head().await.unwrap();
    client.piece().await.unwrap().unwrap();
    first.reset();
    let second = seconds.next().await;
    Broken { client, second, _running: (router, [one, other]) }
}

#[tokio::test]
async fn what_the_other_replica_is_asked_holds_what_was_said_and_what_is_left() {
    let Broken { mut client, mut second, _running } = broken_after(WORD).await;
    let body = String::from_utf8(second.body().await).unwrap();
    assert!(body.starts_with(r#"{"continue_final_message":true,"add_generation_prompt":false,"#));
    assert!(body.contains(r#""max_tokens":39,"#), "{body}");
    assert!(
        body.ends_with(r#"{"role":"user","content":"go"},{"role":"assistant","content":"one"}]}"#)
    );
    second.send(sse_head()).await;
    // The trimmed space comes again and is not passed on again; the name is the first one's.
    let rest = WORD.replace("\"a\"", "\"b\"").replace("one ", " two");
    second.chunk(&format!("{rest}\n\n")).await;
    let piece = String::from_utf8(client.piece().await.unwrap().unwrap()).unwrap();
    assert_eq!(piece, format!("{}\n\n", WORD.replace("one ", "two")));
}

#[tokio::test]
async fn a_stream_that_had_only_its_role_is_asked_for_anew_and_goes_on_without_a_seam() {
    let role = WORD.replace(r#""content":"one ""#, r#""role":"assistant","content":"""#);
    let Broken { mut client, mut second, _running } = broken_after(&role).await;
    assert_eq!(String::from_utf8(second.body().await).unwrap(), CHAT);
    second.send(sse_head()).await;
    let (role, word) = (role.replace("\"a\"", "\"b\""), WORD.replace("\"a\"", "\"b\""));
    second.chunk(&format!("{role}\n\n{word}\n\n")).await;
    let piece = String::from_utf8(client.piece().await.unwrap().unwrap()).unwrap();
    assert_eq!(piece, format!("{WORD}\n\n"), "one role, and the first one's name");
}

#[tokio::test]
async fn a_request_whose_rest_would_not_be_exact_ends_with_an_error_event() {
    let faulty = Mock::start(&["--speed", "inf", "--truncate-rate", "1"]);
    let router = Router::start(&[faulty.url()], RESUME).await;
    let body = CHAT.replace("\"max_tokens\"", "\"seed\":7,\"max_tokens\"");
    expect_cut_event(router.ask(&Request::post("/v1/chat/completions", body)).await.text());
}
