//! `/v1/completions`, as vLLM writes it, for one prompt at a time.

use serde::{Deserialize, Serialize};

use super::chat::{ChatStreamOptions, ChatUsage, refuse_many};
use super::prompts::PromptInput;
use crate::mock::answer::{Finish, Made, Shape};
use crate::mock::ask::{self, Ask};
use crate::mock::events::Events;
use crate::mock::refusal::{ErrorDialect, Refusal, to_json};

#[derive(Debug)]
pub(in crate::mock) struct Completion {
    include_usage: bool,
}

#[derive(Deserialize)]
struct CompletionBody {
    model: Option<String>,
    prompt: PromptInput,
    max_tokens: Option<u32>,
    #[serde(default)]
    ignore_eos: bool,
    stream: Option<bool>,
    stream_options: Option<ChatStreamOptions>,
    n: Option<u32>,
}

#[derive(Serialize)]
struct CompletionReply<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [CompletionChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ChatUsage>,
}

#[derive(Serialize)]
struct CompletionChoice<'a> {
    index: u32,
    text: &'a str,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

fn reply<'a>(
    made: &'a Made,
    choices: &'a [CompletionChoice<'a>],
    usage: Option<ChatUsage>,
) -> CompletionReply<'a> {
    CompletionReply {
        id: &made.id,
        object: "text_completion",
        created: made.created_s,
        model: &made.model,
        choices,
        usage,
    }
}

fn choice(text: &str, finish: Option<Finish>) -> [CompletionChoice<'_>; 1] {
    let finish_reason = finish.map(|finish| match finish {
        Finish::Stop | Finish::ToolCall => "stop",
        Finish::Length => "length",
    });
    [CompletionChoice { index: 0, text, logprobs: None, finish_reason }]
}

impl Shape for Completion {
    const DIALECT: ErrorDialect = ErrorDialect::OpenAi;
    const ID_PREFIX: &'static str = "cmpl-";

    fn read(body: &[u8]) -> Result<(Ask, Self), Refusal> {
        let body: CompletionBody = ask::read(body)?;
        refuse_many(body.n)?;
        let Ok([prompt]) = <[_; 1]>::try_from(body.prompt.into_bytes()?) else {
            return Err(Refusal::bad("prompt: only one at a time is supported"));
        };
        // Nothing marks what was said in a bare prompt. The answers here are of one line, so what
        // follows the last line break may be the beginning of one.
        let line = prompt.iter().rposition(|it| *it == b'\n');
        let said_bytes = line.map_or(0, |at| prompt.len() - at - 1);
        let ask = Ask {
            model: body.model,
            prompt,
            said_bytes,
            // OpenAI's default, which vLLM keeps.
            output_tokens_max: Some(body.max_tokens.unwrap_or(16)),
            ignore_eos: body.ignore_eos,
            stream: body.stream.unwrap_or(false),
            ..Ask::default()
        };
        Ok((ask, Self { include_usage: ChatStreamOptions::wants_usage(body.stream_options) }))
    }

    fn open(&mut self, _made: &Made, _events: &mut Events) {}

    fn piece(&mut self, made: &Made, text: &str, events: &mut Events) {
        events.data(&reply(made, &choice(text, None), None));
    }

    fn close(&mut self, made: &Made, events: &mut Events) {
        events.data(&reply(made, &choice("", Some(made.finish)), None));
        if self.include_usage {
            events.data(&reply(made, &[], Some(ChatUsage::of(made))));
        }
        events.done();
    }

    fn whole(&self, made: &Made) -> Vec<u8> {
        to_json(&reply(made, &choice(made.text(), Some(made.finish)), Some(ChatUsage::of(made))))
    }
}
