//! Which requests another replica can go on with, and what it is sent. A field is harmless only if it
//! is known to be: what shapes the whole answer (a seed, a grammar, several choices, figures per
//! token) starts anew on another replica, and would leave a seam.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::splice::splice;
use crate::protocol::Api;
use crate::protocol::peek::{quoted, span_of};

/// Tells the engines that can (vLLM, SGLang) to go on inside the last message.
const GO_ON: &str = r#""continue_final_message":true,"add_generation_prompt":false,"#;

/// Where a body is changed so that its answer goes on.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) api: Api,
    /// Whether the client expects the engine's figures at the end.
    pub(super) wants_usage: bool,
    /// After the opening brace.
    start: usize,
    /// After the last message, or before the quote that ends the prompt.
    words_at: usize,
    /// The caps on the answer's tokens and where they stand.
    caps: Vec<(Range<usize>, u32)>,
}

impl Request {
    /// Reads a body; `None` where its answer could not be continued exactly.
    pub(super) fn read(api: Api, body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let top = serde_json::Deserializer::from_str(text).deserialize_map(RequestVisitor).ok()?;
        if !top.plain || !top.stream {
            return None;
        }
        let words_at = match api {
            Api::Chat => span_of(last_message(top.messages?)?, text).end,
            // An unspoken cap is a small one; what would be left of it is not worth a guess.
            Api::Completions if top.caps.is_empty() => return None,
            Api::Completions => {
                let prompt = top.prompt.filter(|it| it.get().starts_with('"'))?;
                span_of(prompt, text).end - 1
            }
            Api::Responses | Api::Messages | Api::Other => return None,
        };
        let cap = |raw: &RawValue| Some((span_of(raw, text), raw.get().parse().ok()?));
        Some(Self {
            api,
            wants_usage: top.wants_usage,
            start: text.find('{')? + 1,
            words_at,
            caps: top.caps.into_iter().map(cap).collect::<Option<_>>()?,
        })
    }

    /// Tells how many tokens may follow `tokens`; `None` if the request sets no limit.
    pub(super) fn left(&self, tokens: u32) -> Option<u32> {
        self.caps.iter().map(|it| it.1.saturating_sub(tokens)).min()
    }

    /// Writes the body that asks for the rest, after `words` of `tokens` tokens. Without words it
    /// is the same request once more.
    pub(super) fn continued(
        &self,
        body: &[u8],
        splices: &[(Range<usize>, String)],
        words: &str,
        tokens: u32,
    ) -> Vec<u8> {
        let mut edits = splices.to_vec();
        if !words.is_empty() {
            let left = |cap: &u32| cap.saturating_sub(tokens).to_string();
            edits.extend(self.caps.iter().map(|(span, cap)| (span.clone(), left(cap))));
            let said = quoted(words);
            let at = self.words_at..self.words_at;
            if self.api == Api::Chat {
                edits.push((self.start..self.start, GO_ON.to_owned()));
                edits.push((at, format!(r#",{{"role":"assistant","content":{said}}}"#)));
            } else {
                edits.push((at, said[1..said.len() - 1].to_owned()));
            }
        }
        splice(body, edits)
    }
}

/// Finds the last message, which must not be the assistant's: then the client continues one itself.
fn last_message(messages: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct ChatMessage<'a> {
        #[serde(borrow)]
        role: Cow<'a, str>,
    }
    let messages: Vec<&RawValue> = serde_json::from_str(messages.get()).ok()?;
    let last = *messages.last()?;
    let message: ChatMessage<'_> = serde_json::from_str(last.get()).ok()?;
    (message.role != "assistant").then_some(last)
}

#[derive(Default)]
struct RequestFields<'a> {
    /// Whether every field is known to do no harm.
    plain: bool,
    stream: bool,
    wants_usage: bool,
    messages: Option<&'a RawValue>,
    prompt: Option<&'a RawValue>,
    caps: Vec<&'a RawValue>,
}

impl<'a> RequestFields<'a> {
    fn take(&mut self, field: &str, raw: &'a RawValue) {
        let value = raw.get();
        match field {
            "messages" => self.messages = Some(raw),
            "prompt" => self.prompt = Some(raw),
            "stream" => self.stream = value == "true",
            "max_tokens" | "max_completion_tokens" if value != "null" => self.caps.push(raw),
            "stream_options" => match serde_json::from_str::<Option<StreamOptions>>(value) {
                Ok(options) => {
                    let wanted = options.and_then(|it| it.include_usage);
                    self.wants_usage = wanted.unwrap_or(false);
                }
                Err(_) => self.plain = false,
            },
            _ => self.plain &= is_harmless(field, value),
        }
    }
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct ResponseFormat<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
}

/// Tells whether a field may be there: it means the same to the rest as it did to the whole.
fn is_harmless(field: &str, value: &str) -> bool {
    match field {
        "model"
        | "user"
        | "metadata"
        | "store"
        | "service_tier"
        | "safety_identifier"
        | "prompt_cache_key"
        | "cache_salt"
        | "priority"
        | "request_id"
        | "lora_path"
        | "temperature"
        | "top_p"
        | "top_k"
        | "min_p"
        | "typical_p"
        | "logit_bias"
        | "presence_penalty"
        | "frequency_penalty"
        | "repetition_penalty"
        | "stop"
        | "stop_token_ids"
        | "ignore_eos"
        | "include_stop_str_in_output"
        | "bad_words"
        | "tools"
        | "tool_choice"
        | "parallel_tool_calls"
        | "chat_template_kwargs"
        | "reasoning_effort"
        | "session_id" => true,
        "n" | "best_of" => matches!(value, "1" | "null"),
        "logprobs" | "echo" | "use_beam_search" | "return_token_ids" => {
            matches!(value, "false" | "null")
        }
        "response_format" => {
            let format = serde_json::from_str::<Option<ResponseFormat<'_>>>(value);
            format.is_ok_and(|it| it.is_none_or(|it| it.r#type == "text"))
        }
        // They would be there twice.
        "continue_final_message" | "add_generation_prompt" => false,
        _ => value == "null",
    }
}

struct RequestVisitor;

impl<'de> Visitor<'de> for RequestVisitor {
    type Value = RequestFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RequestFields<'de>, A::Error> {
        let mut top = RequestFields { plain: true, ..RequestFields::default() };
        while let Some(field) = map.next_key::<Cow<'de, str>>()? {
            top.take(&field, map.next_value()?);
        }
        Ok(top)
    }
}
