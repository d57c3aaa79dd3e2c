//! Puts other text in place of parts of a text. Everything else stays as it came, byte for byte.

use std::ops::Range;

/// Replaces each range by its text. The ranges lie in the text and do not overlap.
pub(super) fn splice(text: &[u8], mut edits: Vec<(Range<usize>, String)>) -> Vec<u8> {
    edits.sort_by_key(|it| it.0.start);
    let added: usize = edits.iter().map(|it| it.1.len()).sum();
    let mut out = Vec::with_capacity(text.len() + added);
    let mut at = 0;
    for (Range { start, end }, new) in edits {
        out.extend_from_slice(&text[at..start]);
        out.extend_from_slice(new.as_bytes());
        at = end;
    }
    out.extend_from_slice(&text[at..]);
    out
}
