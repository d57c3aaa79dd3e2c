//! What the meter promises: figures are believed in their place and nowhere else, and the cut of the
//! network does not matter.

#![expect(clippy::disallowed_types, reason = "tests play the engine, which builds answers")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const KNOWN: [Api; 4] = [Api::Chat, Api::Completions, Api::Responses, Api::Messages];

fn metered(api: Api, stream: bool, chunks: &[&[u8]]) -> Meter {
    let mut meter = Meter::new(api, stream);
    for chunk in chunks {
        meter.on_chunk(chunk);
    }
    meter
}

/// Reads an answer in one chunk, and byte by byte, which must not differ.
fn usage(api: Api, stream: bool, answer: &str) -> Usage {
    let whole = metered(api, stream, &[answer.as_bytes()]).usage();
    let pieces: Vec<&[u8]> = answer.as_bytes().chunks(1).collect();
    assert_eq!(metered(api, stream, &pieces).usage(), whole, "{answer}");
    whole
}

fn told(input: u32, output: u32, cached: Option<u32>) -> Usage {
    Usage { input: Some(input), output: Some(output), cached }
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

#[test]
fn events_are_counted_across_chunks_and_line_endings() {
    let check = |chunks: &[&[u8]], events, mid_event| {
        let meter = metered(Api::Messages, true, chunks);
        assert_eq!((meter.events(), meter.is_mid_event()), (events, mid_event), "{chunks:?}");
    };
    check(&[], 0, false);
    check(&[b"data: 1\n\ndata: 2\n\n"], 2, false);
    check(&[b"data: 1\n", b"\nda", b"ta: 2\n"], 1, true);
    check(&[b"event: x\r\ndata: 1\r", b"\n\r", b"\n"], 1, false);
    check(&[b"\n\n\n\n: hi\n\n\n"], 1, false);
}

#[test]
fn every_api_s_figures_are_read_from_a_whole_answer() {
    let check = |api, usage_is: &str, want| {
        let answer = format!(r#"{{"id":"x", "usage": {usage_is}, "metadata": {{}}}}"#);
        assert_eq!(usage(api, false, &answer), want, "{answer}");
    };
    let chat = r#"{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}"#;
    check(Api::Chat, chat, told(5, 7, None));
    let details =
        r#"{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4}}"#;
    check(Api::Completions, details, told(5, 7, Some(4)));
    let nothing = r#"{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":null}"#;
    check(Api::Chat, nothing, told(5, 7, None));
    let responses =
        r#"{"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2}"#;
    check(Api::Responses, responses, told(9, 2, Some(0)));
    let messages = r#"{"input_tokens":30,"cache_read_input_tokens":16,"output_tokens":1}"#;
    check(Api::Messages, messages, told(30, 1, Some(16)));
    assert_eq!(usage(Api::Other, false, &format!(r#"{{"usage":{chat}}}"#)), Usage::default());
    assert_eq!(
        usage(Api::Other, true, &format!("data: {{\"usage\":{chat}}}\n\n")),
        Usage::default()
    );
}

#[test]
fn every_api_s_figures_are_read_from_a_stream() {
    let chat = event(&json!({"choices": [{"delta": {"content": "a"}}], "usage": null}))
        + &event(&json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}))
        + "data: [DONE]\n\n";
    assert_eq!(usage(Api::Chat, true, &chat), told(5, 7, None));
    let counted = |output: u32| json!({"usage": {"prompt_tokens": 5, "completion_tokens": output}});
    let each = event(&counted(1)) + &event(&counted(2));
    assert_eq!(usage(Api::Completions, true, &each), told(5, 2, None), "the latest");
    let figures = json!({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2});
    let completed = json!({"type": "response.completed", "response": {"id": "x", "usage": figures, "user": null}});
    assert_eq!(usage(Api::Responses, true, &event(&completed)), told(9, 2, Some(0)));
    let start = json!({"type": "message_start", "message": {"usage": {"input_tokens": 30, "cache_read_input_tokens": 16, "output_tokens": 1}}});
    let delta = json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 40}});
    let messages =
        format!("event: message_start\n{}event: message_delta\r\n{}", event(&start), event(&delta));
    assert_eq!(usage(Api::Messages, true, &messages), told(30, 40, Some(16)));
}

/// Figures that a client would like to have believed.
fn forged() -> Value {
    json!({"prompt_tokens": u32::MAX, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1}})
}

#[test]
fn what_a_client_has_echoed_is_no_usage() {
    let honest = json!({"input_tokens": 3, "output_tokens": 4});
    let usage_of = |answer: &Value| usage(Api::Responses, false, &answer.to_string());
    // SGLang echoes free metadata behind the figures.
    let echoed =
        json!({"usage": honest, "metadata": {"usage": forged()}, "zz": {"usage": forged()}});
    assert_eq!(usage_of(&echoed), told(3, 4, None));
    assert_eq!(usage_of(&json!({"metadata": {"usage": forged()}})), Usage::default());
    // FastAPI echoes the input when it does not like it.
    let refused = json!({"detail": [{"loc": ["body"], "input": {"usage": forged()}}]});
    assert_eq!(usage_of(&refused), Usage::default());
    let listed = json!([{"usage": forged()}]);
    assert_eq!(usage_of(&listed), Usage::default(), "no object");
    for api in KNOWN {
        for nested in [
            json!({"error": {"usage": forged()}}),
            json!({"response": {"metadata": {"usage": forged()}}}),
            json!({"message": {"content": [{"usage": forged()}]}, "delta": {"usage": forged()}}),
            json!({"choices": [{"usage": forged()}], "input": {"message": {"usage": forged()}}}),
        ] {
            assert_eq!(usage(api, true, &event(&nested)), Usage::default(), "{api:?}: {nested}");
            assert_eq!(usage(api, false, &nested.to_string()), Usage::default(), "{nested}");
        }
    }
    let top = event(&json!({"usage": forged()}));
    assert_eq!(usage(Api::Responses, true, &top), Usage::default(), "its own event only");
}

#[test]
fn words_of_a_model_are_no_usage() {
    for said in [
        r#"{"content":"\"usage\":{\"prompt_tokens\":9}"}"#,
        r#"{"content":"\\\"}, \"usage\":{\"prompt_tokens\":9}"}"#,
        r#"{"content":"usage","value":{"prompt_tokens":9}}"#,
        r#"{"usage":"{\"prompt_tokens\":9}"}"#,
        r#"{"usage":[{"prompt_tokens":9}]}"#,
        r#"{"a":["usage",{"prompt_tokens":9}]}"#,
        r#"{"usage":{"prompt_tok"#,
        r#"{"usage":{"prompt_tokens":9}} {"#,
        r#"{"usage"x:{"prompt_tokens":9}}"#,
        r#"{"usage":x{"prompt_tokens":9}}"#,
        r#"{"usage"::{"prompt_tokens":9}}"#,
        r#"{"usage":"x":{"prompt_tokens":9}}"#,
        r#""usage":{"prompt_tokens":9}"#,
        r#"}}{"usage":{"prompt_tokens":9}}"#,
    ] {
        assert_eq!(usage(Api::Chat, false, said), Usage::default(), "{said}");
        assert_eq!(
            usage(Api::Chat, true, &format!("data: {said}\n\n")),
            Usage::default(),
            "{said}"
        );
    }
    let comment =
        ": {\"usage\":{\"prompt_tokens\":9}}\n\nevent: {\"usage\":{\"prompt_tokens\":9}}\n\n";
    assert_eq!(usage(Api::Chat, true, comment), Usage::default());
    let split = "data: {\"metadata\":\ndata: {\"usage\":{\"prompt_tokens\":9}}\ndata: }\n\n";
    assert_eq!(usage(Api::Chat, true, split), Usage::default(), "lines of one event");
}

#[test]
fn a_figure_that_is_no_count_makes_none_of_them_believed() {
    for odd in ["-1", "1.5", "4294967296", "18446744073709551615", "1e99", "\"7\"", "{}", "true"] {
        let answer = format!(r#"{{"usage":{{"prompt_tokens":{odd},"completion_tokens":1}}}}"#);
        assert_eq!(usage(Api::Chat, false, &answer), Usage::default(), "{answer}");
    }
    let huge = format!(r#"{{"usage":{{"a":"{}","prompt_tokens":1}}}}"#, "x".repeat(10_000));
    assert_eq!(usage(Api::Chat, false, &huge), Usage::default());
}

#[test]
fn usage_is_found_in_a_long_answer_wherever_the_network_cuts_it() {
    let answer = json!({
        "choices": [{"message": {"content": "\u{1f980}\\\"".repeat(50_000)}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
        "metadata": {"note": "x".repeat(10_000)},
    });
    let answer = answer.to_string();
    for size in [1, 7, 1000, 65_536] {
        let chunks: Vec<&[u8]> = answer.as_bytes().chunks(size).collect();
        assert_eq!(metered(Api::Chat, false, &chunks).usage(), told(3, 4, None));
    }
}

#[test]
fn two_words_that_share_a_quote_are_both_looked_at() {
    // No engine sends this, but the cut of the network must not decide what is read of it.
    let answer = "data: {\"a: {\"usage\"usage\":{\"prompt_tokens\":7}}\n\n";
    assert_eq!(usage(Api::Chat, true, answer).input, Some(7));
}

#[test]
fn nothing_is_read_of_an_answer_that_is_none() {
    let mut meter = Meter::blind();
    meter.on_chunk(br#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#);
    assert_eq!((meter.usage(), meter.bytes()), (Usage::default(), 51));
}

/// JSON of any shape in which usage is written in many places.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<u32>().prop_map(Value::from),
        "[a-z\"\\\\{}:, ]{0,12}".prop_map(Value::from),
        Just(forged()),
    ];
    let key =
        || prop::sample::select(vec!["usage", "response", "message", "metadata", "a", "u\"sage"]);
    leaf.prop_recursive(4, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..5).prop_map(|it| {
                Value::Object(it.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

/// What a full parser finds in the place of an API.
fn parsed(api: Api, stream: bool, value: &Value) -> [Usage; 2] {
    let place = |it: &Value| {
        if it.is_object() { read(it.to_string().as_bytes()) } else { Usage::default() }
    };
    match (api, stream) {
        (Api::Responses, true) => [Usage::default(), place(&value["response"]["usage"])],
        (Api::Messages, true) => [place(&value["usage"]), place(&value["message"]["usage"])],
        _ => [place(&value["usage"]), Usage::default()],
    }
}

proptest! {
    #[test]
    fn figures_are_those_a_full_parser_finds_in_their_place(
        value in value(),
        cut in 1_usize..40,
        api in prop::sample::select(KNOWN.to_vec()),
        stream in any::<bool>(),
    ) {
        let text = if stream { event(&value) } else { value.to_string() };
        let chunks: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
        let [late, early] = parsed(api, stream, &value);
        let want = Usage {
            input: late.input.or(early.input),
            output: late.output.or(early.output),
            cached: late.cached.or(early.cached),
        };
        prop_assert_eq!(metered(api, stream, &chunks).usage(), want);
        prop_assert_eq!(metered(api, stream, &[text.as_bytes()]).usage(), want);
    }

    #[test]
    fn whatever_comes_the_cut_does_not_matter_and_what_is_kept_is_bounded(
        text in prop::collection::vec(prop::sample::select(b"\nx{}[]\"\\:,datusge 1".to_vec()), 0..600),
        cut in 1_usize..40,
        stream in any::<bool>(),
    ) {
        let whole = metered(Api::Messages, stream, &[&text]);
        let chunks: Vec<&[u8]> = text.chunks(cut).collect();
        let pieces = metered(Api::Messages, stream, &chunks);
        prop_assert_eq!(whole.usage(), pieces.usage());
        prop_assert_eq!(whole.bytes(), pieces.bytes());
        prop_assert_eq!(whole.events(), pieces.events());
        prop_assert_eq!(whole.is_mid_event(), pieces.is_mid_event());
        prop_assert_eq!(whole.awaits_content(), pieces.awaits_content());
        prop_assert_eq!(whole.content_events(), pieces.content_events());
    }
}
