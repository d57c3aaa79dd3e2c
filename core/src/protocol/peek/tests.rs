//! What is read from bodies, good and bad.

use proptest::prelude::*;

use super::*;

fn session(api: Api, body: &str) -> Option<String> {
    peek(api, body.as_bytes()).unwrap().session.map(|it| it.as_str().to_owned())
}

#[test]
fn model_and_stream_are_read_wherever_they_stand() {
    let body = br#" {"messages":[{"role":"user","content":"model \"x\""}],"stream":true,"tools":[{"model":"no"}],"model":"a\u0062c"}"#;
    let found = peek(Api::Chat, body).unwrap();
    assert_eq!(found.model.as_deref(), Some("abc"));
    assert_eq!(&body[found.model_span], br#""a\u0062c""#);
    assert!(found.stream);
}

#[test]
fn the_body_names_a_session_in_this_order() {
    let check = |body: &str, want: &str| {
        assert_eq!(session(Api::Chat, body).as_deref(), Some(want), "{body}");
    };
    check(
        r#"{"user":"u","metadata":{"session_id":"s","user_id":"i"},"prompt_cache_key":"k"}"#,
        "k",
    );
    check(r#"{"user":"u","metadata":{"session_id":"s","user_id":"i"}}"#, "s");
    check(r#"{"user":"u","metadata":{"user_id":"i"}}"#, "u");
    check(r#"{"user":"","metadata":{"session_id":5,"user_id":"i"},"prompt_cache_key":null}"#, "i");
}

#[test]
fn without_a_name_the_opening_of_the_prompt_is_the_session() {
    let turns = [
        r#"{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]}"#,
        r#"{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"text","text":"hi","cache_control":{}}]},{"role":"assistant","content":"yo"},{"role":"user","content":"more"}]}"#,
    ];
    let first = session(Api::Chat, turns[0]);
    assert!(first.as_deref().unwrap().starts_with("fp-"));
    assert_eq!(first, session(Api::Chat, turns[1]));
    for other in [
        r#"{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"ho"}]}"#,
        r#"{"messages":[{"role":"system","content":"be cruel"},{"role":"user","content":"hi"}]}"#,
    ] {
        assert_ne!(first, session(Api::Chat, other));
    }
}

#[test]
fn each_api_has_its_own_opening() {
    let check = |api, first: &str, later: &str, other: &str| {
        let opening = session(api, first);
        assert!(opening.as_deref().unwrap().starts_with("fp-"), "{first}");
        assert_eq!(opening, session(api, later), "{later}");
        assert_ne!(opening, session(api, other), "{other}");
    };
    check(
        Api::Messages,
        r#"{"system":"s","messages":[{"role":"user","content":"hi"}]}"#,
        r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}],"system":"s"}"#,
        r#"{"system":"t","messages":[{"role":"user","content":"hi"}]}"#,
    );
    check(
        Api::Responses,
        r#"{"instructions":"s","input":[{"role":"user","content":"hi"}]}"#,
        r#"{"instructions":"s","input":[{"role":"user","content":"hi"},{"type":"reasoning"}]}"#,
        r#"{"instructions":"s","input":"hi"}"#,
    );
    let long = "once upon a time ".repeat(20);
    let one = session(Api::Completions, &format!(r#"{{"prompt":"{long}"}}"#));
    assert_eq!(one, session(Api::Completions, &format!(r#"{{"prompt":"{long} more"}}"#)));
    assert_eq!(session(Api::Other, r#"{"input":"embed me"}"#), None);
    for odd in ["5", "-5", "1e3", "true", "null", "\"x\"", "{\"a\":[1]}", "[]", "[1,{}]"] {
        assert_eq!(session(Api::Chat, &format!(r#"{{"messages":{odd}}}"#)), None, "{odd}");
    }
}

#[test]
fn bad_bodies_are_refused_with_what_is_wrong() {
    let check = |body: &[u8], want: &str| {
        let error = peek(Api::Chat, body).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error:?} for {}", String::from_utf8_lossy(body));
    };
    check(b"", "the request body is not valid JSON: EOF");
    check(br#"{"model":"m""#, "the request body is not valid JSON: EOF");
    check(br#"{"model":"m"} x"#, "the request body is not valid JSON: trailing characters");
    check(b"[1]", "the request body must be a JSON object");
    check(b"\"x\"", "the request body must be a JSON object");
    check(b"{\"model\":\"\xff\"}", "the request body is not valid UTF-8 (at byte 10)");
    check(br#"{"model":5}"#, "`model` must be a string");
    check(br#"{"model":null}"#, "`model` must be a string");
    check(br#"{"model":""}"#, "`model` must be a string");
    check(br#"{"stream":"yes"}"#, "`stream` must be a boolean");
    check(br#"{"model":"a","model":"b"}"#, "`model` is given twice");
    check(br#"{"x":01}"#, "the request body is not valid JSON: invalid number");
    let deep = format!(r#"{{"x":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    check(deep.as_bytes(), "the request body nests deeper than 128 levels");
}

#[test]
fn the_tightest_cap_on_the_answer_is_read() {
    let check = |api, body: &str, want| {
        let (_, extent) = peek(api, body.as_bytes()).unwrap().outline("m", None);
        assert_eq!(extent.output_tokens_max, want, "{body}");
    };
    check(Api::Chat, "{}", None);
    check(Api::Chat, r#"{"max_tokens":50,"max_completion_tokens":40}"#, Some(50));
    check(Api::Responses, r#"{"max_output_tokens":7}"#, Some(7));
    check(Api::Messages, r#"{"max_tokens":1e999999}"#, None);
    check(Api::Completions, r#"{"max_tokens":-5}"#, None);
    check(Api::Other, r#"{"input":"embed me"}"#, Some(0));
}

#[test]
fn huge_numbers_and_unknown_fields_pass() {
    let body = br#"{"model":"m","max_tokens":1e999999,"seed":123456789012345678901234567890,"\ud83d\ude00":0}"#;
    assert_eq!(peek(Api::Chat, body).unwrap().model.as_deref(), Some("m"));
}

proptest! {
    #[test]
    fn a_body_is_refused_or_its_model_stands_where_it_is_said_to(body in "[\\[\\]{}:,\"a-b0\\\\ ]{0,60}") {
        let body = format!("{{\"model\":\"m\",{body}}}");
        if let Ok(found) = peek(Api::Chat, body.as_bytes()) {
            prop_assert_eq!(&body[found.model_span], "\"m\"");
        }
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        for api in [Api::Chat, Api::Completions, Api::Responses, Api::Messages, Api::Other] {
            _ = peek(api, &body).map(|it| it.outline("m", None));
        }
    }
}
