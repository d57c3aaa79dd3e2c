//! Bodies nested so deep that a parser further on may fall over. The skipping parser here does not
//! mind depth, but Python's in the engine does, so such a body is refused before it gets there.

use memchr::{memchr2, memchr2_iter};

/// Tools' schemas nest some thirty levels; no honest body comes near this.
pub(super) const DEPTH_MAX: usize = 128;

/// Tells whether arrays and objects nest deeper than allowed. The text need not be valid JSON.
pub(super) fn is_too_deep(body: &[u8]) -> bool {
    // Most bodies have fewer brackets in all than the limit, and counting those is almost free.
    let brackets = memchr2_iter(b'[', b'{', body).take(DEPTH_MAX + 1).count();
    DEPTH_MAX < brackets && DEPTH_MAX < depth(body)
}

/// Measures the deepest nesting, looking past strings.
fn depth(body: &[u8]) -> usize {
    let (mut open, mut deepest, mut at) = (0_usize, 0, 0);
    while let Some(byte) = body.get(at) {
        match byte {
            b'[' | b'{' => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' => open = open.saturating_sub(1),
            b'"' => at = end_of_string(body, at + 1),
            _ => {}
        }
        at += 1;
    }
    deepest
}

/// Finds the quote that ends the string whose text starts at `at`, or the end of the body.
fn end_of_string(body: &[u8], mut at: usize) -> usize {
    while let Some(found) = body.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if body[at] == b'"' {
            return at;
        }
        at += 2;
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_nesting_outside_strings_only() {
        let check = |body: &str, want| assert_eq!(depth(body.as_bytes()), want, "{body}");
        check("", 0);
        check(r#"{"a":[1,{"b":2}]}"#, 3);
        check(r#"{"a":"[[[[\"[[[["}"#, 1);
        check(r#"["\\",["#, 2);
        check("]]][", 1);
        check(r#"["unfinished [[["#, 1);
        check("\"\\", 0);
    }

    #[test]
    fn wide_is_not_deep() {
        assert!(!is_too_deep("[[1],".repeat(100).replace("[[", "[").as_bytes()));
        let wide = format!("[{}0]", "[],".repeat(1000));
        assert!(!is_too_deep(wide.as_bytes()));
        assert!(is_too_deep("[".repeat(DEPTH_MAX + 1).as_bytes()));
        assert!(!is_too_deep("[".repeat(DEPTH_MAX).as_bytes()));
    }
}
