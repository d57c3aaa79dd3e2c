//! From client to replica: the body as it came, but for a model that goes by another name; up to
//! the cap, and not a byte beyond.

use crate::support::{Request, Router, Scripted, Wire, config, json_answer, noise};

const MIB: u64 = 1 << 20;

/// A chat body of `bytes` bytes, with what a careless rewrite would change: space, order, escapes,
/// numbers that no double can hold.
fn odd_body(bytes: usize) -> Vec<u8> {
    let start = "{ \"z\" : 1.10e+2 ,\"big\":123456789012345678901234567890,\r\n\t\"model\" :  \"m\", \
                 \"messages\":[{\"content\":\"\\u00fc \\/ \u{fc} \u{1f980}\",\"role\":\"user\"}], \"pad\":\"";
    let mut body = start.as_bytes().to_vec();
    body.resize(bytes.max(body.len() + 2) - 2, b'x');
    body.extend_from_slice(b"\"}");
    body
}

/// Sends a body in chunks of a few sizes.
fn in_chunks(path: &str, body: &[u8]) -> Vec<u8> {
    let mut out = format!(
        "POST {path} HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for piece in body.chunks(64 * 1024 - 3) {
        out.extend_from_slice(format!("{:X}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// Sends `request` and returns the head and body that reach the replica.
async fn received(request: &[u8]) -> (Vec<(String, String)>, Vec<u8>) {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(request).await;
    let mut exchange = requests.next().await;
    let (head, body) = (exchange.head.clone(), exchange.body().await);
    exchange.send(json_answer(200, "{}")).await;
    assert_eq!(client.answer().await.status(), 200);
    (head.headers, body)
}

#[tokio::test]
async fn a_body_reaches_the_replica_byte_by_byte() {
    let body = odd_body(100_000);
    let (_, whole) = received(&Request::post("/v1/chat/completions", body.clone()).bytes()).await;
    assert!(whole == body);
}

#[tokio::test]
async fn a_body_in_chunks_reaches_the_replica_byte_by_byte() {
    let body = odd_body(300_000);
    let (headers, joined) = received(&in_chunks("/v1/chat/completions", &body)).await;
    assert!(joined == body);
    let length = headers.iter().find(|it| it.0 == "content-length").map(|it| it.1.as_str());
    assert_eq!(length, Some("300000"));
}

#[tokio::test]
async fn a_body_that_is_no_json_passes_without_being_looked_into() {
    let body = noise(3, 200_000);
    let request = Request::post_as("/v1/audio/transcriptions", "audio/wav", body.clone());
    let (_, passed) = received(&request.bytes()).await;
    assert!(passed == body);
}

#[tokio::test]
async fn a_passing_body_reaches_the_replica_before_its_end_was_sent() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    let head = "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: r\r\n\
                content-type: multipart/form-data; boundary=x\r\ntransfer-encoding: chunked\r\n\r\n";
    client.send(head.as_bytes()).await;
    client.send(b"5\r\nfirst\r\n").await;
    let mut exchange = requests.next().await;
    assert_eq!(exchange.head.header("transfer-encoding"), Some("chunked"));
    assert_eq!(exchange.wire.piece().await.unwrap().unwrap(), b"first");
    client.send(b"4\r\nlast\r\n0\r\n\r\n").await;
    assert_eq!(exchange.body().await, b"last");
    exchange.send(json_answer(200, "{}")).await;
    assert_eq!(client.answer().await.status(), 200);
}

#[tokio::test]
async fn an_alias_changes_the_model_and_nothing_else() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let pool = format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n[[pools]]\nname = \"chat\"\n\
         models = [\"m\"]\naliases = {{ \"gpt \\\"x\\\"\" = \"m\" }}\nreplicas = [\"{}\"]\n",
        replica.url()
    );
    let router = Router::start_with(&pool);
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;
    let body = |model| {
        format!(
            "{{\"n\": [1 ,2],  \"model\" :\t{model} , \"messages\":[ ], \"model_x\":\"gpt\"}}\n"
        )
    };
    let mut client = Wire::connect(router.address).await;
    for spelled in [r#""gpt \"x\"""#, r#""\u0067pt \u0022x\"""#] {
        client.send(&Request::post("/v1/chat/completions", body(spelled)).bytes()).await;
        let mut exchange = requests.next().await;
        assert_eq!(String::from_utf8(exchange.body().await).unwrap(), body(r#""m""#));
        exchange.send(json_answer(200, "{}")).await;
        assert_eq!(client.answer().await.status(), 200);
    }
}

/// Sends a 20 MB request and bounds what the router holds of it, once all of it has arrived.
async fn check_large(request: &[u8], body: &[u8], bytes_max: u64) {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    assert_eq!(router.ask(&Request::get("/v1/models")).await.status(), 200);
    let before = router.process.rss_bytes();
    let mut client = Wire::connect(router.address).await;
    let receive = async {
        let mut exchange = requests.next().await;
        (exchange.body().await, exchange)
    };
    let ((), (got, mut exchange)) = tokio::join!(client.send(request), receive);
    let held = router.process.rss_bytes().saturating_sub(before);
    assert!(got == body);
    assert!(held <= bytes_max, "{held} bytes more than before");
    exchange.send(json_answer(200, "{}")).await;
    assert_eq!(client.answer().await.status(), 200);
}

#[tokio::test]
async fn a_20_mb_body_is_held_once() {
    let body = odd_body(20_000_000);
    let request = Request::post("/v1/chat/completions", body.clone());
    // The body, and half as much again for what is on its way.
    check_large(&request.bytes(), &body, 30 * MIB).await;
}

#[tokio::test]
async fn a_20_mb_body_of_unknown_length_is_held_in_bounded_memory() {
    let body = odd_body(20_000_000);
    // Room for what comes grows by doubling.
    check_large(&in_chunks("/v1/chat/completions", &body), &body, 50 * MIB).await;
}

#[tokio::test]
async fn a_20_mb_body_that_passes_is_not_held() {
    let body = noise(5, 20_000_000);
    let request = Request::post_as("/v1/files", "application/octet-stream", body.clone());
    check_large(&request.bytes(), &body, 4 * MIB).await;
}

#[tokio::test]
async fn a_body_beyond_the_cap_is_refused_with_413() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let one_mib = "limits.body_mib_max = 1";
    let router = Router::start(&[replica.url()], one_mib).await;
    let too_long = usize::try_from(MIB).unwrap() + 1;

    // A length that is too large is refused before any of it is sent.
    let mut client = Wire::connect(router.address).await;
    for kind in ["application/json", "multipart/form-data; boundary=x"] {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-type: {kind}\r\n\
             content-length: {too_long}\r\n\r\n"
        );
        let mut client = Wire::connect(router.address).await;
        client.send(head.as_bytes()).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.refusal().code.as_str()), (413, "body_too_large"));
    }

    // Without a length, when it has become too large.
    let chunked = in_chunks("/v1/chat/completions", &odd_body(too_long));
    // Nothing is sent after the byte that is one too many: what the router left unread when it
    // hangs up could take its answer along.
    client.send(&chunked[..chunked.len() - "\r\n0\r\n\r\n".len()]).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.refusal().code.as_str()), (413, "body_too_large"));
    assert_eq!(replica.hits(), 0);

    // The largest that may pass does.
    let largest = Request::post("/v1/chat/completions", odd_body(too_long - 1));
    assert_eq!(router.ask(&largest).await.status(), 200);
}

#[tokio::test]
async fn a_passing_body_beyond_the_cap_is_refused_with_413() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start_with(&config(&[(&replica.url(), 1.0)], "limits.body_mib_max = 1"));
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;
    let mut client = Wire::connect(router.address).await;
    let head = "POST /v1/files HTTP/1.1\r\nhost: r\r\ncontent-type: application/octet-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    client.send(head.as_bytes()).await;
    let body = noise(1, usize::try_from(MIB).unwrap() + 1);
    let receive = async {
        let mut exchange = requests.next().await;
        while let Ok(Some(_)) = exchange.wire.piece().await {}
    };
    let send = async {
        client.send(format!("{:x}\r\n", body.len()).as_bytes()).await;
        client.send(&body).await;
        client.answer().await
    };
    let (answer, ()) = tokio::join!(send, receive);
    assert_eq!((answer.status(), answer.refusal().code.as_str()), (413, "body_too_large"));
}
