//! The smallest thing that can be asked of an engine: one token. As a completion first, because every
//! model completes; as a chat where that is not served.

use super::quoted;

/// Writes the requests that ask `model` for one token, each with its path, in the order to try them.
pub fn token_requests(model: &str) -> [(&'static str, String); 2] {
    let model = quoted(model);
    [
        (
            "/v1/completions",
            format!(r#"{{"model":{model},"prompt":"1","max_tokens":1,"temperature":0}}"#),
        ),
        (
            "/v1/chat/completions",
            format!(
                r#"{{"model":{model},"messages":[{{"role":"user","content":"1"}}],"max_tokens":1,"temperature":0}}"#
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Api, peek};
    use super::*;

    #[test]
    fn each_is_a_request_of_its_api_for_one_token() {
        for (path, body) in token_requests("org/model \"7b\"") {
            let found = peek(Api::of(path), body.as_bytes()).unwrap();
            assert_eq!(found.model.as_deref(), Some("org/model \"7b\""));
            let (_, extent) = found.outline("m", None);
            assert_eq!((extent.output_tokens_max, extent.streams), (Some(1), false));
        }
    }
}
