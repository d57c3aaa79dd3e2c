//! What outlines promise: turns extend each other, what must not share does not, all of it bounded.

#![expect(clippy::disallowed_types, reason = "tests play the client, which builds bodies")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::protocol::{Api, peek};

fn outline(api: Api, body: &str) -> (Vec<u64>, Extent) {
    let found = peek(api, body.as_bytes()).unwrap();
    let (outline, extent) = found.outline(found.model.as_deref().unwrap_or(""), None);
    assert_eq!((outline.prompt_tokens, outline.block_tokens, outline.output_tokens), (0, 0, None));
    (outline.blocks.to_vec(), extent)
}

fn blocks(api: Api, body: &Value) -> Vec<u64> {
    outline(api, &body.to_string()).0
}

fn text(bytes: usize) -> String {
    "all the words of a long conversation, ".chars().cycle().take(bytes).collect()
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

#[test]
fn a_turn_is_the_prefix_of_the_next_in_every_api() {
    let turns =
        [message("user", &text(900)), message("assistant", &text(700)), message("user", "go")];
    let check = |api, first: Value, later: Value| {
        let (first, later) = (blocks(api, &first), blocks(api, &later));
        assert!(3 <= first.len() && first.len() < later.len(), "{api:?}: {first:?}, {later:?}");
        assert!(later.starts_with(&first), "{api:?}");
    };
    check(Api::Chat, json!({"messages": turns[..1]}), json!({"messages": turns}));
    let system = text(300);
    check(
        Api::Messages,
        json!({"system": system, "tools": [{"name": "f"}], "messages": turns[..1]}),
        json!({"messages": turns, "system": system, "max_tokens": 5, "tools": [{"name": "f"}]}),
    );
    check(
        Api::Responses,
        json!({"instructions": "be kind", "input": turns[..1]}),
        json!({"instructions": "be kind", "input": turns}),
    );
    check(Api::Completions, json!({"prompt": text(800)}), json!({"prompt": text(2000)}));
}

#[test]
fn blanks_before_the_closing_bracket_do_not_break_the_chain() {
    let first = format!("{{\"messages\": [\n  {}\n]}}", message("user", &text(900)));
    let later = format!(
        "{{\"messages\": [\n  {},\n  {}\n]}}",
        message("user", &text(900)),
        message("assistant", &text(900))
    );
    let (first, later) = (outline(Api::Chat, &first).0, outline(Api::Chat, &later).0);
    assert!(later.starts_with(&first) && first.len() < later.len());
    assert_eq!(open_ended("[1, 2 \n]"), "[1, 2");
    assert_eq!(open_ended("\"once\""), "\"once");
}

#[test]
fn model_adapter_and_salt_keep_prompts_apart() {
    let body = |extra: &str| format!(r#"{{"prompt":"{}"{extra}}}"#, text(1000));
    let all = [
        body(""),
        body(r#","model":"m""#),
        body(r#","lora_path":"m""#),
        body(r#","cache_salt":"m""#),
        body(r#","cache_salt":"n""#),
    ];
    let mut seen: Vec<u64> = all.iter().flat_map(|it| outline(Api::Completions, it).0).collect();
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((count, seen.len()), (15, 15));
    let streamed = outline(Api::Completions, &body(r#","stream":true,"seed":3"#)).0;
    assert_eq!(streamed, outline(Api::Completions, &body("")).0);
}

#[test]
fn an_isolated_tenant_shares_with_itself_alone() {
    let body = format!(r#"{{"prompt":"{}","cache_salt":"s"}}"#, text(1000));
    let found = peek(Api::Completions, body.as_bytes()).unwrap();
    let blocks = |tenant| found.outline("m", tenant).0.blocks;
    assert_eq!(blocks(Some(1)), blocks(Some(1)));
    let all = [blocks(None), blocks(Some(0)), blocks(Some(1)), blocks(Some(2))];
    for (at, one) in all.iter().enumerate() {
        assert!(all[..at].iter().all(|other| one[0] != other[0]), "{all:?}");
    }
}

#[test]
fn text_between_blocks_is_what_its_escapes_stand_for() {
    let text = |parts| Prompt { parts, ..Prompt::default() }.text(0..usize::MAX);
    let escaped = r#"a\nb \"c\" \\ \/ \u00fc \ud83d \x end\"#;
    assert_eq!(text(["1", "2", escaped]), "12a\nb \"c\" \\ / \u{fc} \\ud83d \\x end\\");
    let long: String = "0123456789abcdef".repeat(64);
    let prompt =
        Prompt { parts: [&long[..100], &long[100..700], &long[700..]], ..Prompt::default() };
    assert_eq!(prompt.text(0..1) + &prompt.text(1..3) + &prompt.text(3..usize::MAX), long);
    assert_eq!(prompt.text(2..3), long[512..768]);
    assert_eq!(prompt.text(9..99), "");
}

#[test]
fn a_moved_marker_loses_only_what_comes_after_it() {
    let marked = json!([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]);
    let plain = json!([{"type": "text", "text": "x"}]);
    let body =
        |last: &Value| json!({"messages": [message("user", &text(2000)), {"content": last}]});
    let (one, other) = (blocks(Api::Chat, &body(&marked)), blocks(Api::Chat, &body(&plain)));
    assert!(7 <= one.iter().zip(&other).take_while(|(a, b)| a == b).count());
}

#[test]
fn an_image_is_told_from_text() {
    let image: String = "iVBORw0KGgo+/AAAA".chars().cycle().take(100_000).collect();
    let url = format!("data:image/png;base64,{image}");
    let parts = json!([
        {"type": "text", "text": text(4000)},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": text(4000)},
    ]);
    let (_, extent) = outline(Api::Chat, &json!({"messages": [{"content": parts}]}).to_string());
    assert_eq!(extent.attachments, 1);
    assert!((8000..9000).contains(&extent.text_bytes), "{extent:?}");
    assert!((99_000..=100_000).contains(&extent.attachment_bytes), "{extent:?}");
    for prose in [text(5000), "\u{4e2d}\u{6587}".repeat(900), "let x=f(1);".repeat(400)] {
        let (_, extent) = outline(Api::Completions, &json!({"prompt": prose}).to_string());
        assert_eq!((extent.attachments, extent.attachment_bytes), (0, 0), "{prose}");
    }
}

/// Text that looks like an image, and is none.
fn dense(bytes: usize) -> String {
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB".chars().cycle().take(bytes).collect()
}

fn extent_of(api: Api, body: &Value) -> Extent {
    outline(api, &body.to_string()).1
}

#[test]
fn what_looks_like_an_image_where_none_can_stand_is_text() {
    let text = dense(100_000);
    let part = json!({"type": "image_url", "image_url": {"url": text}});
    let said = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    for (api, body) in [
        (Api::Completions, json!({"prompt": text})),
        (Api::Completions, json!({"prompt": [text, text]})),
        (Api::Responses, json!({"input": text})),
        (Api::Responses, json!({"instructions": text, "input": "x"})),
        (Api::Chat, said(json!(text))),
        (Api::Chat, said(json!([{"type": "text", "text": text}]))),
        (
            Api::Chat,
            said(
                json!([{"type": "text", "text": format!("\"url\":\"data:image/png;base64,{text}")}]),
            ),
        ),
        (
            Api::Chat,
            json!({"tools": [{"function": {"content": [part]}}], "messages": [{"content": "x"}]}),
        ),
        (Api::Chat, json!({"messages": [{"tool_calls": [{"content": [part]}], "content": "x"}]})),
        (Api::Messages, said(json!([{"type": "tool_use", "input": {"content": [part]}}]))),
        (
            Api::Messages,
            said(json!([{"type": "document", "source": {"data": text, "type": "text"}}])),
        ),
        (Api::Messages, json!({"system": text, "messages": [{"content": "x"}]})),
    ] {
        let extent = extent_of(api, &body);
        assert_eq!((extent.attachments, extent.attachment_bytes), (0, 0), "{api:?}");
        assert!(100_000 <= extent.text_bytes && 99_000 <= extent.dense_bytes, "{extent:?}");
    }
}

#[test]
fn images_sounds_and_files_are_found_where_they_stand() {
    let data = dense(10_000);
    let url = format!("data:image/png;base64,{data}");
    let said = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
    for (api, body) in [
        (Api::Chat, said(json!([{"type": "image_url", "image_url": {"url": url}}]))),
        (
            Api::Chat,
            said(json!([{"type": "input_audio", "input_audio": {"format": "mp3", "data": data}}])),
        ),
        (Api::Chat, said(json!([{"type": "file", "file": {"file_data": url}}]))),
        (
            Api::Chat,
            json!({"messages": [{"content": [{"type": "image_url", "image_url": {"url": url}}]}]}),
        ),
        (Api::Messages, said(json!([image]))),
        (Api::Messages, said(json!([{"type": "tool_result", "content": [image]}]))),
        (
            Api::Responses,
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}),
        ),
    ] {
        let extent = extent_of(api, &body);
        assert_eq!(
            (extent.attachments, extent.attachment_bytes, extent.media),
            (1, 10_000, 1),
            "{body}"
        );
        assert!(extent.text_bytes < 300 && extent.dense_bytes < 300, "{extent:?}");
        assert_eq!(extent.sounds, u32::from(body.to_string().contains("audio")));
    }
    let away = json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
    let extent = extent_of(Api::Chat, &said(json!([away, {"image_url": null, "uuid": "x"}])));
    assert_eq!((extent.attachments, extent.media), (0, 2), "at an address");
    assert_eq!(extent_of(Api::Chat, &said(json!("\"content\":[{\"image_url\":{"))).media, 0);
}

#[test]
fn all_that_a_body_says_is_measured() {
    let extent =
        extent_of(Api::Chat, &json!({"messages": [{"content": "hi"}], "documents": [text(9_000)]}));
    assert!(extent.text_bytes < 20 && 9_000 < extent.body_bytes, "{extent:?}");
    let continued = json!({"input": "hi", "previous_response_id": "resp_1"});
    assert!(extent_of(Api::Responses, &continued).is_continued);
    let cap = |body: Value| extent_of(Api::Completions, &body).output_tokens_max;
    assert_eq!(cap(json!({"prompt": "x", "max_tokens": 10, "n": 4, "best_of": 5})), Some(50));
    assert_eq!(cap(json!({"prompt": ["x", "y", "z"], "max_tokens": 10, "n": 2})), Some(60));
    assert_eq!(cap(json!({"prompt": [1, 2, 3], "max_tokens": 10, "n": 0})), Some(10));
    assert_eq!(cap(json!({"prompt": "x", "max_tokens": u32::MAX, "n": u32::MAX})), Some(u32::MAX));
}

#[test]
fn a_huge_prompt_is_hashed_up_to_the_bound_and_measured_whole() {
    let bytes = (BLOCKS_MAX + 10) * BLOCK_BYTES;
    let body = json!({"prompt": text(bytes)}).to_string();
    let (blocks, extent) = outline(Api::Completions, &body);
    assert_eq!(blocks.len(), BLOCKS_MAX);
    assert_eq!(usize::try_from(extent.prompt_bytes()).unwrap(), bytes + 1);
}

#[test]
fn odd_prompts_have_an_outline_too() {
    for odd in ["5", "null", "{}", "[]", "\"\"", "[[1,2],[3]]", "[{},5,{\"a\":1},\"x\"]"] {
        for field in ["messages", "input", "prompt", "tools", "system", "cache_salt"] {
            for api in [Api::Chat, Api::Completions, Api::Responses, Api::Messages, Api::Other] {
                assert!(outline(api, &format!(r#"{{"{field}":{odd}}}"#)).0.is_empty());
            }
        }
    }
}

proptest! {
    #[test]
    fn parts_may_be_cut_anywhere(
        bytes in prop::collection::vec(32_u8..127, 0..2000),
        cuts in [any::<prop::sample::Index>(), any::<prop::sample::Index>()],
    ) {
        let text = String::from_utf8(bytes).unwrap();
        let mut cuts = cuts.map(|it| it.index(text.len() + 1));
        cuts.sort_unstable();
        let parts = [&text[..cuts[0]], &text[cuts[0]..cuts[1]], &text[cuts[1]..]];
        let whole = Prompt { parts: ["", "", &text], ..Prompt::default() }.outline("m", None);
        prop_assert_eq!(whole.0.blocks.len(), text.len() / BLOCK_BYTES);
        prop_assert_eq!(Prompt { parts, ..Prompt::default() }.outline("m", None), whole);
    }

    #[test]
    fn later_turns_extend_earlier_ones(
        contents in prop::collection::vec("\\PC{0,400}", 1..8),
        turns in any::<prop::sample::Index>(),
    ) {
        let roles = ["user", "assistant"].into_iter().cycle();
        let all: Vec<Value> = roles.zip(&contents).map(|(role, it)| message(role, it)).collect();
        let turns = 1 + turns.index(all.len());
        let later = blocks(Api::Chat, &json!({"messages": all}));
        let first = blocks(Api::Chat, &json!({"messages": all[..turns]}));
        prop_assert!(later.starts_with(&first));
    }
}
