//! `/v1/completions`, as vLLM writes it, for one prompt at a time.

use serde::{Deserialize, Serialize};

use super::chat::{StreamOptions, Usage, refuse_many};
use super::prompts::Prompts;
use crate::mock::answer::{Finish, Made, Shape};
use crate::mock::ask::{self, Ask};
use crate::mock::events::Events;
use crate::mock::refusal::{Dialect, Refusal, to_json};

#[derive(Debug)]
pub(in crate::mock) struct Completion {
    include_usage: bool,
}

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Prompts,
    max_tokens: Option<u32>,
    #[serde(default)]
    ignore_eos: bool,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
}

#[derive(Serialize)]
struct Reply<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    text: &'a str,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

fn reply<'a>(made: &'a Made, choices: &'a [Choice<'a>], usage: Option<Usage>) -> Reply<'a> {
    Reply {
        id: &made.id,
        object: "text_completion",
        created: made.created_s,
        model: &made.model,
        choices,
        usage,
    }
}

fn choice(text: &str, finish: Option<Finish>) -> [Choice<'_>; 1] {
    let finish_reason = finish.map(|finish| match finish {
        Finish::Stop | Finish::ToolCall => "stop",
        Finish::Length => "length",
    });
    [Choice { index: 0, text, logprobs: None, finish_reason }]
}

impl Shape for Completion {
    const DIALECT: Dialect = Dialect::OpenAi;
    const ID_PREFIX: &'static str = "cmpl-";

    fn read(body: &[u8]) -> Result<(Ask, Self), Refusal> {
        let body: Body = ask::read(body)?;
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
            tool: None,
        };
        Ok((ask, Self { include_usage: StreamOptions::wants_usage(body.stream_options) }))
    }

    fn open(&mut self, _made: &Made, _events: &mut Events) {}

    fn piece(&mut self, made: &Made, text: &str, events: &mut Events) {
        events.data(&reply(made, &choice(text, None), None));
    }

    fn close(&mut self, made: &Made, events: &mut Events) {
        events.data(&reply(made, &choice("", Some(made.finish)), None));
        if self.include_usage {
            events.data(&reply(made, &[], Some(Usage::of(made))));
        }
        events.done();
    }

    fn whole(&self, made: &Made) -> Vec<u8> {
        to_json(&reply(made, &choice(made.text(), Some(made.finish)), Some(Usage::of(made))))
    }
}
