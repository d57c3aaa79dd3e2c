//! What an answer says of its cost. The engine's own figures stand in a `usage` object near the end
//! of the answer, so only the end is looked at (and the start, where Anthropic's API puts the input
//! figures of a stream).

use memchr::memmem;
use serde::Deserialize;

use crate::domain::Usage;

const MARK: &[u8] = b"\"usage\":";

/// How many marks from the end are looked at: the last ones of a stream may be `null`.
const MARKS_MAX: usize = 4;

#[derive(Deserialize)]
struct Raw {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u32>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u32>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u32>,
}

impl Usage {
    /// Reads the figures from the start and the end of an answer; later ones win.
    pub fn read(head: &[u8], tail: &[u8]) -> Self {
        let (early, late) = (last_in(head), last_in(tail));
        Self {
            input: late.input.or(early.input),
            output: late.output.or(early.output),
            cached: late.cached.or(early.cached),
        }
    }
}

/// Reads the last `usage` object of `text`, which may begin anywhere. A model cannot forge one: in
/// its own words the quotes are escaped.
fn last_in(text: &[u8]) -> Usage {
    let marks = memmem::rfind_iter(text, MARK).take(MARKS_MAX);
    let objects = marks.filter_map(|at| {
        let rest = &text[at + MARK.len()..];
        serde_json::Deserializer::from_slice(rest).into_iter::<Raw>().next()?.ok()
    });
    objects.map(Usage::from).next().unwrap_or_default()
}

impl From<Raw> for Usage {
    fn from(raw: Raw) -> Self {
        let details = raw.prompt_tokens_details.and_then(|it| it.cached_tokens);
        let cached = details.or(raw.cache_read_input_tokens);
        Self { input: raw.prompt_tokens, output: raw.completion_tokens, cached }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, tail: &str, input: u32, output: u32, cached: Option<u32>) {
        let want = Usage { input: Some(input), output: Some(output), cached };
        assert_eq!(Usage::read(head.as_bytes(), tail.as_bytes()), want, "{tail}");
    }

    #[test]
    fn every_api_s_figures_are_read() {
        check(
            "",
            r#","usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}"#,
            5,
            7,
            None,
        );
        check(
            "",
            "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n",
            5,
            7,
            Some(4),
        );
        check(
            "",
            r#"… "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2}, "user": null}}"#,
            9,
            2,
            Some(0),
        );
        check(
            r#"data: {"type":"message_start","message":{"usage":{"input_tokens":30,"cache_read_input_tokens":16,"output_tokens":1}}}"#,
            r#"data: {"type":"message_delta","delta":{},"usage":{"output_tokens":40}}"#,
            30,
            40,
            Some(16),
        );
    }

    #[test]
    fn a_null_after_the_figures_does_not_hide_them() {
        check(
            "",
            r#"{"usage":{"prompt_tokens":1,"completion_tokens":2}} {"usage":null}"#,
            1,
            2,
            None,
        );
    }

    #[test]
    fn words_of_the_model_are_not_figures() {
        let said = r#"{"content":"\"usage\":{\"prompt_tokens\":9}"}"#;
        assert_eq!(Usage::read(b"", said.as_bytes()), Usage::default());
        assert_eq!(Usage::read(b"", b"\"usage\":{\"prompt_tok"), Usage::default());
        assert_eq!(Usage::read(b"", b"\"usage\":{\"prompt_tokens\":1e99}"), Usage::default());
    }
}
