//! What a client says to the engine behind the router: refused or taken out, unless an operator lets it
//! pass. Nothing else of the body changes.

use crate::support::{Head, Request, Requests, Router, Scripted, Wire, json_answer};

async fn replica(settings: &str) -> (Router, Scripted, Requests) {
    let (replica, requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], settings).await;
    (router, replica, requests)
}

/// Sends a request and returns the head and the body that reach the replica.
async fn received(router: &Router, requests: &mut Requests, request: &Request) -> (Head, String) {
    let mut client = Wire::connect(router.address).await;
    client.send(&request.bytes()).await;
    let mut exchange = requests.next().await;
    let body = String::from_utf8(exchange.body().await).unwrap();
    exchange.send(json_answer(200, "{}")).await;
    assert_eq!(client.answer().await.status(), 200);
    (exchange.head, body)
}

#[tokio::test]
async fn fields_that_name_hosts_and_transfers_are_refused_wherever_they_stand() {
    let (router, replica, _requests) = replica("").await;
    let fields = [
        r#""kv_transfer_params":{"do_remote_prefill":true,"remote_host":"10.0.0.1"}"#,
        r#""kv_transfer_par\u0061ms":{}"#,
        r#""ec_transfer_params":{}"#,
        r#""disaggregated_params":{"request_type":"context_only"}"#,
        r#""bootstrap_host":"10.0.0.1""#,
        r#""bootstrap_port":8998"#,
        r#""bootstrap_room":7"#,
        r#""session_params":{"id":"x"}"#,
        r#""vllm_xargs":{"kv_transfer_params":"x"}"#,
        r#""vllm_xargs":{"a":1},"vllm_xargs":{"kv_transfer_params":"x"}"#,
        r#""extra_body":{"bootstrap_host":"10.0.0.1"}"#,
        r#""sampling_params":{"extra_args":{"kv_transfer_params":{}}}"#,
        r#""kv_transfer_params":null,"kv_transfer_params":{}"#,
    ];
    for field in fields {
        for path in ["/v1/chat/completions", "/generate", "/v1/embeddings"] {
            let body = format!(r#"{{"model":"m","messages":[{{"content":"hi"}}],{field}}}"#);
            for kind in ["application/json", "text/plain", ""] {
                let answer = router.ask(&Request::post_as(path, kind, body.clone())).await;
                assert_eq!(answer.status(), 400, "{path} {kind} {field}: {}", answer.text());
                let code = answer.refusal().code;
                assert!(["engine_field", "invalid_body"].contains(&code.as_str()), "{code}");
            }
        }
    }
    assert_eq!(replica.hits(), 0);
}

#[tokio::test]
async fn hints_to_the_engine_are_taken_out_and_the_rest_is_as_sent() {
    let (router, _replica, mut requests) = replica("").await;
    let cases = [
        (r#"{"model":"m","priority":-1,"n":1}"#, r#"{"model":"m","n":1}"#),
        (r#"{ "priority" : 7 , "model" : "m" }"#, r#"{  "model" : "m" }"#),
        (r#"{"model":"m" ,  "priority":7}"#, r#"{"model":"m" }"#),
        (r#"{"priority":1,"rid":"a","model":"m"}"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","rid":"a","\u0070riority":1}"#, r#"{"model":"m"}"#),
        (r#"{"data_parallel_rank":0,"model":"m","routed_dp_rank":1}"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","id_slot":3,"disagg_prefill_dp_rank":1}"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","extra_body":{"priority":1}}"#, r#"{"model":"m","extra_body":{}}"#),
        (
            r#"{"model":"m","metadata":{"priority":"1"},"kv_transfer_params":null}"#,
            r#"{"model":"m","metadata":{"priority":"1"},"kv_transfer_params":null}"#,
        ),
    ];
    for (sent, want) in cases {
        for path in ["/v1/chat/completions", "/generate"] {
            let request = Request::post(path, sent);
            let (head, body) = received(&router, &mut requests, &request).await;
            assert_eq!(body, want, "{path}");
            assert_eq!(head.header("content-length"), Some(&*want.len().to_string()));
        }
    }
}

#[tokio::test]
async fn a_field_that_is_given_twice_cannot_hide_the_second() {
    let (router, replica, _requests) = replica("").await;
    for body in [
        r#"{"model":"m","priority":1,"priority":2}"#,
        r#"{"model":"m","rid":"a","\u0072id":"b"}"#,
        r#"{"model":"m","cache_salt":"a","cache_salt":"b"}"#,
        r#"{"model":"m","extra_key":"a","extra_key":"b"}"#,
    ] {
        let answer = router.ask(&Request::post("/v1/chat/completions", body)).await;
        assert_eq!((answer.status(), answer.refusal().code.as_str()), (400, "invalid_body"));
    }
    assert_eq!(replica.hits(), 0);
}

#[tokio::test]
async fn headers_to_the_engine_do_not_pass() {
    let (router, _replica, mut requests) = replica("").await;
    let names = [
        "x-override-bootstrap-host",
        "X-Override-Rid",
        "x-override-anything",
        "X-data-parallel-rank",
        "X-Vllm-Priority",
        "x-prefiller-host-port",
        "x-prefiller-url",
        "x-encoder-hosts-ports",
        "x-conversation-id",
        "x-cleave-previous-replica",
        "endpoint-load-metrics-format",
    ];
    let request = names.iter().fold(Request::chat("hi"), |request, it| request.header(it, "1"));
    let request = request.header("x-overrides", "kept").header("x-priority", "1");
    let (head, _) = received(&router, &mut requests, &request).await;
    for name in names {
        assert_eq!(head.header(&name.to_lowercase()), None, "{name}");
    }
    assert_eq!(head.header("x-overrides"), Some("kept"));
}

#[tokio::test]
async fn an_operator_can_let_single_fields_and_headers_pass() {
    let allow = "engine_fields.allow = [\"priority\", \"kv_transfer_params\", \"cache_salt\"]\n\
                 engine_headers.allow = [\"x-data-parallel-rank\", \"x-override-*\"]";
    let (router, replica, mut requests) = replica(allow).await;
    let sent = r#"{"model":"m","priority":1,"kv_transfer_params":{"a":1},"cache_salt":"s"}"#;
    let request = Request::post("/v1/chat/completions", sent)
        .header("x-data-parallel-rank", "2")
        .header("x-override-rid", "r")
        .header("x-vllm-priority", "1");
    let (head, body) = received(&router, &mut requests, &request).await;
    assert_eq!(body, sent);
    assert_eq!(head.header("x-data-parallel-rank"), Some("2"));
    assert_eq!(head.header("x-override-rid"), Some("r"));
    assert_eq!(head.header("x-vllm-priority"), None);
    let other = Request::post("/v1/chat/completions", r#"{"model":"m","bootstrap_host":"x"}"#);
    assert_eq!(router.ask(&other).await.status(), 400);
    assert_eq!(replica.hits(), 1);
}

#[tokio::test]
async fn keys_and_cookies_stay_at_the_router() {
    let names = [
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "cookie",
        "proxy-authorization",
    ];
    let request =
        || names.iter().fold(Request::chat("hi"), |request, it| request.header(it, "Bearer k"));
    let (router, _replica, mut requests) = replica("").await;
    let (head, _) = received(&router, &mut requests, &request()).await;
    for name in names {
        assert_eq!(head.header(name), None, "{name}");
    }
    let (router, _replica, mut requests) = replica("forward_credentials = true").await;
    let (head, _) = received(&router, &mut requests, &request()).await;
    for name in &names[..5] {
        assert_eq!(head.header(name), Some("Bearer k"), "{name}");
    }
    assert_eq!(head.header("proxy-authorization"), None, "it is meant for this connection");
}

#[tokio::test]
async fn an_engine_that_asks_for_a_key_it_cannot_get_is_said_so() {
    let says = json_answer(401, r#"{"error":"Unauthorized"}"#);
    let replica = Scripted::answering(says.clone()).await;
    let router = Router::start(&[replica.url()], "").await;
    let answer = router.ask(&Request::chat("hi").header("authorization", "Bearer k")).await;
    let refusal = answer.refusal();
    assert_eq!((answer.status(), refusal.code.as_str()), (502, "replica_unauthorized"));
    assert!(refusal.message.contains("forward_credentials"), "{}", refusal.message);
    router.says("forward_credentials").await;
    let router = Router::start(&[replica.url()], "forward_credentials = true").await;
    let answer = router.ask(&Request::chat("hi").header("authorization", "Bearer k")).await;
    assert_eq!(answer.status(), 401, "the key is the client's to mend");
}
