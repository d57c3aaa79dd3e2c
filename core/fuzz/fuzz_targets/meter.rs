//! Whatever a replica streams, and however the network cuts it, the events that are counted must be
//! those that a reader of the whole text would count, and the figures must be those that a full parser
//! finds in their place, and no others.

#![no_main]

use cleave_core::domain::Usage;
use cleave_core::protocol::{Api, Meter};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const APIS: [Api; 5] = [Api::Chat, Api::Completions, Api::Responses, Api::Messages, Api::Other];

fuzz_target!(|input: &[u8]| {
    let [pieces, kind, stream @ ..] = input else { return };
    // An empty line of several carriage returns is no line ending that anything sends.
    if stream.windows(2).any(|it| it == b"\r\r") {
        return;
    }
    let (api, is_stream) = (APIS[usize::from(kind / 2) % APIS.len()], kind % 2 == 1);
    let whole = metered(api, is_stream, stream, stream.len().max(1));
    let cut = metered(api, is_stream, stream, 1 + usize::from(*pieces));
    let expected = (events(stream), ends_inside_an_event(stream));
    assert_eq!((whole.events(), whole.is_mid_event()), expected);
    assert_eq!((cut.events(), cut.is_mid_event()), expected);
    assert_eq!(whole.usage(), cut.usage());
    is_in_its_place(api, is_stream, stream, whole.usage());
});

fn metered(api: Api, is_stream: bool, stream: &[u8], piece_bytes: usize) -> Meter {
    let mut meter = Meter::new(api, is_stream);
    for piece in stream.chunks(piece_bytes) {
        meter.on_chunk(piece);
    }
    meter
}

/// Every figure that was read stands where the API puts it, in some object that a full parser reads. (A text
/// that is no JSON is not read as one, but the meter does not judge all of it; it is not compared.)
fn is_in_its_place(api: Api, is_stream: bool, stream: &[u8], read: Usage) {
    let objects: Option<Vec<Value>> = if is_stream {
        let (lines, _) = lines(stream);
        let data = lines.into_iter().filter_map(|it| it.strip_prefix(b"data:"));
        data.filter(|it| it.trim_ascii_start().starts_with(b"{")).map(parsed).collect()
    } else {
        parsed(stream).map(|it| vec![it])
    };
    let Some(objects) = objects else { return };
    let mut places: Vec<&Value> = Vec::new();
    for object in &objects {
        match (api, is_stream) {
            (Api::Other, _) => {}
            (Api::Responses, true) => places.push(&object["response"]["usage"]),
            (Api::Messages, true) => {
                places.extend([&object["usage"], &object["message"]["usage"]]);
            }
            _ => places.push(&object["usage"]),
        }
    }
    let stands = |names: &[&str], figure: Option<u32>| {
        let Some(figure) = figure else { return true };
        let is_it = |it: &Value| it.as_u64() == Some(figure.into());
        places.iter().any(|place| names.iter().any(|name| is_it(&place[*name])))
    };
    assert!(stands(&["prompt_tokens", "input_tokens"], read.input), "{read:?}");
    assert!(stands(&["completion_tokens", "output_tokens"], read.output), "{read:?}");
}

/// Reads an object in which no key stands twice: of two, parsers take one or the other.
fn parsed(text: &[u8]) -> Option<Value> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let is_once = |key: &[u8]| text.windows(key.len()).filter(|it| *it == key).count() < 2;
    let keys: [&[u8]; 3] = [b"\"usage\"", b"\"response\"", b"\"message\""];
    keys.into_iter().all(is_once).then_some(value)
}

/// Lists the finished lines without their endings, and what follows the last of them.
fn lines(stream: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let mut lines: Vec<&[u8]> = stream.split(|it| *it == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    (lines.into_iter().map(|it| it.strip_suffix(b"\r").unwrap_or(it)).collect(), rest)
}

/// Counts the groups of lines that an empty line ends.
fn events(stream: &[u8]) -> u64 {
    let (lines, _) = lines(stream);
    let ended = lines.windows(2).filter(|it| !it[0].is_empty() && it[1].is_empty()).count();
    u64::try_from(ended).expect("a count fits")
}

fn ends_inside_an_event(stream: &[u8]) -> bool {
    let (lines, rest) = lines(stream);
    let begun = !rest.is_empty() && rest != b"\r";
    begun || lines.last().is_some_and(|it| !it.is_empty())
}
