//! What is read from bodies, good and bad.

#![expect(clippy::disallowed_types, reason = "tests play the engine, which reads bodies whole")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::protocol::steering::{Care, ENGINE_FIELDS, engine_field};

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

/// Puts the edits into a body.
fn edited(body: &str, allowed: Allowed, salting: Salting<'_>) -> Result<String, Steered> {
    let edits = peek(Api::Chat, body.as_bytes()).unwrap().edits(allowed, salting)?;
    let (mut out, mut at) = (String::new(), 0);
    for (span, text) in edits {
        out.push_str(&body[at..span.start]);
        out.push_str(&text);
        at = span.end;
    }
    Ok(out + &body[at..])
}

fn allowing(names: &[&str]) -> Allowed {
    names.iter().map(|it| engine_field(it).unwrap()).fold(Allowed::default(), Allowed::with)
}

#[test]
fn every_field_that_steers_an_engine_is_refused_taken_out_or_replaced() {
    for field in ENGINE_FIELDS {
        let name = field.name;
        let escaped = name.bytes().fold(String::new(), |all, it| all + &format!("\\u{it:04x}"));
        let nests = ["vllm_xargs", "extra_body", "sampling_params"];
        for key in [name, &escaped] {
            let plain = format!(r#"{{"model":"m" , "{key}" : [1,{{"x":"\\"}}],"n":1}}"#);
            let without = r#"{"model":"m" ,"n":1}"#;
            let with = r#"{"model":"m" , "cache_salt":"abc","n":1}"#;
            let out = edited(&plain, Allowed::default(), Salting::Chosen("abc"));
            match field.care {
                Care::Refuse => assert_eq!(out, Err(Steered { field: name })),
                Care::TakeOut => assert_eq!(out.as_deref(), Ok(without)),
                Care::Replace => assert_eq!(out.as_deref(), Ok(with)),
            }
            let allowed = allowing(&[name]);
            assert_eq!(edited(&plain, allowed, Salting::Never).as_deref(), Ok(&*plain));
            for nest in nests {
                let nested = format!(r#"{{"{nest}":{{"a":1,"{key}":2}},"model":"m"}}"#);
                let out = edited(&nested, Allowed::default(), Salting::Never);
                let without = format!(r#"{{"{nest}":{{"a":1}},"model":"m"}}"#);
                match field.care {
                    Care::Refuse => assert_eq!(out, Err(Steered { field: name })),
                    Care::TakeOut | Care::Replace => assert_eq!(out.as_deref(), Ok(&*without)),
                }
            }
            let twice = format!(r#"{{"{name}":1,"{key}":2}}"#);
            assert_eq!(
                peek(Api::Chat, twice.as_bytes()).err(),
                Some(BadBody::Twice { field: name })
            );
            let null = format!(r#"{{"{key}":null,"model":"m"}}"#);
            assert!(edited(&null, Allowed::default(), Salting::Never).is_ok(), "null says nothing");
        }
    }
}

#[test]
fn what_is_left_when_fields_are_taken_out_is_json_again() {
    let check = |body: &str, want: &str| {
        let out = edited(body, Allowed::default(), Salting::Never);
        assert_eq!(out.as_deref(), Ok(want), "{body}");
    };
    check(r#"{"priority":1}"#, "{}");
    check(r#" { "priority" : 1 } "#, " {  } ");
    check(r#"{"priority":1,"rid":"a"}"#, "{}");
    check(r#"{"priority":1 , "rid":"a" , "id_slot":0}"#, "{  }");
    check(r#"{"a":1,"priority":1,"rid":"a"}"#, r#"{"a":1}"#);
    check(r#"{"priority":1,"a":1,"rid":"a"}"#, r#"{"a":1}"#);
    check(r#"{"priority":1,"rid":"a","b":1}"#, r#"{"b":1}"#);
    check(r#"{"a":1,"priority":1,"b":1}"#, r#"{"a":1,"b":1}"#);
    check(r#"{"vllm_xargs":{"rid":1},"a":1}"#, r#"{"vllm_xargs":{},"a":1}"#);
    check(
        r#"{"rid":1,"vllm_xargs":{"rid":1,"extra_args":{"b":[],"rid":2}}}"#,
        r#"{"vllm_xargs":{"extra_args":{"b":[]}}}"#,
    );
    check(
        r#"{"vllm_xargs":[{"rid":1}],"extra_body":"rid","sampling_params":null}"#,
        r#"{"vllm_xargs":[{"rid":1}],"extra_body":"rid","sampling_params":null}"#,
    );
}

#[test]
fn a_salt_stands_once_and_in_place_of_the_client_s() {
    let check = |body: &str, salting, want: &str| {
        let out = edited(body, allowing(&["cache_salt"]), salting);
        assert_eq!(out.as_deref(), Ok(want), "{body}");
    };
    let always = Salting::Always("s");
    check(r#" { "prompt":"x"}"#, always, r#" {"cache_salt":"s", "prompt":"x"}"#);
    check(r#"{"prompt":"x","cache_salt":"y"}"#, always, r#"{"prompt":"x","cache_salt":"s"}"#);
    check(r#"{"extra_key":"y","prompt":"x"}"#, always, r#"{"cache_salt":"s","prompt":"x"}"#);
    check(r#"{"extra_key":1,"cache_salt":2,"a":3}"#, always, r#"{"cache_salt":"s","a":3}"#);
    check(r#"{"cache_salt":null,"a":3}"#, always, r#"{"cache_salt":"s","a":3}"#);
    check(r#"{"rid":1,"a":3}"#, always, r#"{"cache_salt":"s","a":3}"#);
    check(r#"{"rid":1}"#, always, "{}");
    check("{}", always, "{}");
    check(r#"{"a":3}"#, Salting::Chosen("s"), r#"{"a":3}"#);
    check(r#"{"cache_salt":"y"}"#, Salting::Never, r#"{"cache_salt":"y"}"#);
}

#[test]
fn what_a_client_chose_is_listed_unless_all_of_it_may_pass() {
    let body = br#"{"extra_key":"k","cache_salt":"s","vllm_xargs":{"cache_salt":"n"}}"#;
    let found = peek(Api::Chat, body).unwrap();
    let chosen = |names: &[&str]| found.chosen_salts(allowing(names)).collect::<Vec<_>>();
    let all = [("extra_key", r#""k""#), ("cache_salt", r#""s""#)];
    assert_eq!(chosen(&[]), all);
    assert_eq!(chosen(&["cache_salt"]), all);
    assert_eq!(chosen(&["cache_salt", "extra_key"]), []);
    let none = peek(Api::Chat, br#"{"cache_salt":null}"#).unwrap();
    assert_eq!(none.chosen_salts(Allowed::default()).count(), 0);
}

#[test]
fn a_body_full_of_such_fields_is_refused_and_not_worked_on() {
    let many = r#"{"vllm_xargs":{"#.to_owned() + &r#""rid":1,"#.repeat(100_000) + r#""a":1}}"#;
    assert!(matches!(peek(Api::Chat, many.as_bytes()), Err(BadBody::Twice { field: "rid" })));
}

/// Takes out of a body what engines must not see, as a full parser would.
fn cleaned(value: &mut Value, top: bool) {
    let Some(fields) = value.as_object_mut() else { return };
    fields.retain(|name, value| match engine_field(name).map(|it| ENGINE_FIELDS[it].care) {
        None | Some(Care::Refuse) => true,
        Some(Care::TakeOut) => false,
        Some(Care::Replace) => top && value.is_null(),
    });
    for nest in ["vllm_xargs", "extra_body", "sampling_params", "extra_args"] {
        if let Some(value) = fields.get_mut(nest) {
            cleaned(value, false);
        }
    }
}

fn any_body() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!("a\"b")), Just(json!([]))];
    let names = ["priority", "rid", "cache_salt", "a", "vllm_xargs", "extra_args", "id_slot"];
    let value = leaf.prop_recursive(3, 24, 6, move |inner| {
        prop::collection::btree_map(prop::sample::select(names.to_vec()), inner, 0..6)
            .prop_map(|it| json!(it))
    });
    prop::collection::btree_map(prop::sample::select(names.to_vec()), value, 0..7)
        .prop_map(|it| json!(it))
}

proptest! {
    #[test]
    fn taking_out_agrees_with_a_full_parser(body in any_body(), pretty in any::<bool>()) {
        let text = if pretty {
            serde_json::to_string_pretty(&body).unwrap()
        } else {
            body.to_string()
        };
        let out = edited(&text, Allowed::default(), Salting::Never).unwrap();
        let mut want = body;
        cleaned(&mut want, true);
        prop_assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), want, "{}", text);
    }

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
