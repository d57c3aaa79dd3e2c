//! Whatever a replica streams, and however the network cuts it, the events that are counted must be
//! those that a reader of the whole text would count.

#![no_main]

use cleave_core::protocol::{Api, Meter};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&pieces, stream)) = input.split_first() else { return };
    // An empty line of several carriage returns is no line ending anybody sends.
    if stream.windows(2).any(|it| it == b"\r\r") {
        return;
    }
    let whole = metered(stream, stream.len().max(1));
    let cut = metered(stream, 1 + usize::from(pieces));
    let expected = (events(stream), ends_inside_an_event(stream));
    assert_eq!((whole.events(), whole.is_mid_event()), expected);
    assert_eq!((cut.events(), cut.is_mid_event()), expected);
    assert_eq!(whole.usage(), cut.usage());
});

fn metered(stream: &[u8], piece_bytes: usize) -> Meter {
    let mut meter = Meter::new(Api::Messages);
    for piece in stream.chunks(piece_bytes) {
        meter.on_chunk(piece);
    }
    meter
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
