//! Whatever a client sends, peeking at it must not panic, must agree with a full parser on what is
//! JSON, must find the model and the stream flag that a full parser finds, and its outline must be no
//! longer than the body.

#![no_main]

use std::collections::BTreeMap;

use cleave_core::protocol::{Allowed, Api, BadBody, Peek, Salting, peek};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use serde_json::value::RawValue;

const APIS: [Api; 5] = [Api::Chat, Api::Completions, Api::Responses, Api::Messages, Api::Other];

fuzz_target!(|input: &[u8]| {
    let Some((first, body)) = input.split_first() else { return };
    match peek(APIS[usize::from(*first) % APIS.len()], body) {
        Ok(found) => agrees(body, &found),
        // A body is called broken only if a parser that reads all of it says so too.
        Err(BadBody::Syntax { .. } | BadBody::NotUtf8 { .. }) => {
            assert!(serde_json::from_slice::<Value>(body).is_err(), "refused valid JSON");
        }
        Err(BadBody::NotObject) => {
            assert!(!serde_json::from_slice::<Value>(body).is_ok_and(|it| it.is_object()));
        }
        Err(BadBody::TooDeep | BadBody::WrongType { .. } | BadBody::Twice { .. }) => {}
    }
});

fn agrees(body: &[u8], found: &Peek<'_>) {
    assert!(serde_json::from_slice::<&RawValue>(body).is_ok(), "took what is not JSON");
    if let Some(session) = &found.session {
        let session = session.as_str();
        assert!((1..=256).contains(&session.len()), "session of {} bytes", session.len());
        assert!(session.bytes().all(|it| it.is_ascii_graphic()), "session cannot be a header");
    }
    let (outline, extent) = found.outline("m", None);
    assert!(usize::try_from(extent.prompt_bytes()).is_ok_and(|it| it <= body.len()));
    assert!(outline.blocks.len() <= body.len() / 256, "a block without its bytes");
    for salting in [Salting::Never, Salting::Chosen("5a17"), Salting::Always("5a17")] {
        let Ok(edits) = found.edits(Allowed::default(), salting) else { break };
        let (mut edited, mut at) = (Vec::new(), 0);
        for (span, text) in edits {
            assert!(at <= span.start, "edits overlap or are out of order");
            edited.extend_from_slice(&body[at..span.start]);
            edited.extend_from_slice(text.as_bytes());
            at = span.end;
        }
        edited.extend_from_slice(&body[at..]);
        assert!(serde_json::from_slice::<&RawValue>(&edited).is_ok(), "an edit broke the body");
        // No field that is taken out is left at the top, however its key is written.
        let left: Option<BTreeMap<String, &RawValue>> = serde_json::from_slice(&edited).ok();
        let salt = left.as_ref().and_then(|it| it.get("cache_salt")).map(|it| it.get());
        assert!(salt.is_none_or(|it| it == "null" || it == "\"5a17\""), "a salt passed");
        assert!(left.is_none_or(|it| !it.contains_key("priority") && !it.contains_key("rid")));
    }
    let spanned = &body[found.model_span.clone()];
    if let Some(model) = &found.model {
        assert_eq!(serde_json::from_slice::<String>(spanned).ok().as_deref(), Some(&**model));
    }
    // A full parser also refuses numbers that do not fit and half surrogates, which are the
    // engine's to judge; then there is nothing to compare with.
    if let Ok(full) = serde_json::from_slice::<Value>(body) {
        assert_eq!(full["model"].as_str().filter(|it| !it.is_empty()), found.model.as_deref());
        assert_eq!(full["stream"].as_bool().unwrap_or(false), found.stream);
    }
}
