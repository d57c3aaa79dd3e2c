//! `/v1/chat/completions`, as vLLM writes it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mock::answer::{Finish, Made, Shape};
use crate::mock::ask::{self, Ask, Content, ToolChoice, Toolbox, render_call};
use crate::mock::events::Events;
use crate::mock::refusal::{ErrorDialect, Refusal, to_json};
use crate::mock::text::Transcript;

#[derive(Debug)]
pub(in crate::mock) struct Chat {
    include_usage: bool,
}

#[derive(Deserialize)]
struct ChatBody {
    model: Option<String>,
    messages: Vec<ChatTurn>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    #[serde(default)]
    ignore_eos: bool,
    stream: Option<bool>,
    stream_options: Option<ChatStreamOptions>,
    tools: Option<Box<RawValue>>,
    tool_choice: Option<ToolChoice>,
    n: Option<u32>,
    #[serde(default)]
    continue_final_message: bool,
    add_generation_prompt: Option<bool>,
}

impl ChatBody {
    /// Renders the conversation. If its last message is to be continued, that is said of the answer.
    fn render(&self, toolbox: &Toolbox) -> Result<(Vec<u8>, usize), Refusal> {
        if !self.continue_final_message {
            return Ok((ChatTurn::render_all(&self.messages, toolbox), 0));
        }
        if self.add_generation_prompt.unwrap_or(true) {
            let message = "continue_final_message needs add_generation_prompt to be false";
            return Err(Refusal::bad(message));
        }
        match self.messages.split_last() {
            Some((last, before)) if last.role == "assistant" => {
                // Templates trim what they are given.
                let said = last.content.render();
                let said = said.trim();
                let mut prompt = ChatTurn::render_all(before, toolbox);
                prompt.extend_from_slice(said.as_bytes());
                Ok((prompt, said.len()))
            }
            _ => Err(Refusal::bad("messages: the last one must be the assistant's")),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct ChatStreamOptions {
    include_usage: Option<bool>,
}

impl ChatStreamOptions {
    pub(super) fn wants_usage(options: Option<Self>) -> bool {
        options.and_then(|it| it.include_usage).unwrap_or(false)
    }
}

#[derive(Deserialize)]
pub(super) struct ChatTurn {
    role: String,
    #[serde(default)]
    content: Content,
    #[serde(default)]
    tool_calls: Option<Vec<SentCall>>,
}

#[derive(Deserialize)]
struct SentCall {
    function: SentFunction,
}

#[derive(Deserialize)]
struct SentFunction {
    name: String,
    #[serde(default)]
    arguments: String,
}

impl ChatTurn {
    /// Renders a conversation, ready for the answer.
    pub(super) fn render_all(messages: &[Self], toolbox: &Toolbox) -> Vec<u8> {
        let mut transcript = Transcript::default();
        toolbox.introduce(&mut transcript);
        for message in messages {
            let mut text = message.content.render();
            for SentCall { function } in message.tool_calls.iter().flatten() {
                text.push_str(&render_call(&function.name, &function.arguments));
            }
            transcript.say(&message.role, &text);
        }
        transcript.into_prompt()
    }
}

/// Refuses to answer several times at once.
pub(super) fn refuse_many(n: Option<u32>) -> Result<(), Refusal> {
    if n.unwrap_or(1) == 1 { Ok(()) } else { Err(Refusal::bad("n: only 1 is supported")) }
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct ChatUsage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: ChatUsageDetails,
}

#[derive(Clone, Copy, Serialize)]
struct ChatUsageDetails {
    cached_tokens: u32,
}

impl ChatUsage {
    pub(super) fn of(made: &Made) -> Self {
        Self {
            prompt_tokens: made.prompt_tokens,
            completion_tokens: made.output_tokens,
            total_tokens: made.prompt_tokens + made.output_tokens,
            prompt_tokens_details: ChatUsageDetails { cached_tokens: made.cached_tokens },
        }
    }
}

#[derive(Serialize)]
struct ChatReply<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ChatUsage>,
}

#[derive(Serialize)]
struct WholeChoice<'a> {
    index: u32,
    message: Words<'a>,
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct PieceChoice<'a> {
    index: u32,
    delta: Words<'a>,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

/// A message or a part of one.
#[derive(Default, Serialize)]
struct Words<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[MadeCall<'a>; 1]>,
}

#[derive(Serialize)]
struct MadeCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    function: MadeFunction<'a>,
}

#[derive(Serialize)]
struct MadeFunction<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCall => "tool_calls",
    }
}

impl Chat {
    fn chunk(made: &Made, delta: Words<'_>, finish: Option<Finish>, events: &mut Events) {
        let finish_reason = finish.map(reason);
        let choices = [PieceChoice { index: 0, delta, logprobs: None, finish_reason }];
        events.data(&Self::reply(made, "chat.completion.chunk", &choices, None));
    }

    fn reply<'a, C>(
        made: &'a Made,
        object: &'static str,
        choices: &'a [C],
        usage: Option<ChatUsage>,
    ) -> ChatReply<'a, C> {
        ChatReply {
            id: &made.id,
            object,
            created: made.created_s,
            model: &made.model,
            choices,
            usage,
        }
    }
}

impl Shape for Chat {
    const DIALECT: ErrorDialect = ErrorDialect::OpenAi;
    const ID_PREFIX: &'static str = "chatcmpl-";

    fn read(body: &[u8]) -> Result<(Ask, Self), Refusal> {
        let mut body: ChatBody = ask::read(body)?;
        refuse_many(body.n)?;
        let Some(last) = body.messages.last() else {
            return Err(Refusal::bad("messages: at least one is needed"));
        };
        let (tools, choice) = (body.tools.take(), body.tool_choice.take());
        let toolbox = Toolbox { tools, choice };
        let tool = if last.role == "user" { toolbox.pick()? } else { None };
        let (prompt, said_bytes) = body.render(&toolbox)?;
        let ask = Ask {
            model: body.model,
            prompt,
            said_bytes,
            output_tokens_max: body.max_completion_tokens.or(body.max_tokens),
            ignore_eos: body.ignore_eos,
            stream: body.stream.unwrap_or(false),
            tool,
            ..Ask::default()
        };
        Ok((ask, Self { include_usage: ChatStreamOptions::wants_usage(body.stream_options) }))
    }

    fn open(&mut self, made: &Made, events: &mut Events) {
        let role = Some("assistant");
        let Some(call) = &made.call else {
            return Self::chunk(
                made,
                Words { role, content: Some(""), tool_calls: None },
                None,
                events,
            );
        };
        let function = MadeFunction { name: Some(&call.name), arguments: "" };
        let call =
            MadeCall { index: Some(0), id: Some(&call.id), r#type: Some("function"), function };
        Self::chunk(made, Words { role, content: None, tool_calls: Some([call]) }, None, events);
    }

    fn piece(&mut self, made: &Made, text: &str, events: &mut Events) {
        let words = if made.call.is_some() {
            let function = MadeFunction { name: None, arguments: text };
            let call = MadeCall { index: Some(0), id: None, r#type: None, function };
            Words { tool_calls: Some([call]), ..Words::default() }
        } else {
            Words { content: Some(text), ..Words::default() }
        };
        Self::chunk(made, words, None, events);
    }

    fn close(&mut self, made: &Made, events: &mut Events) {
        Self::chunk(made, Words::default(), Some(made.finish), events);
        if self.include_usage {
            let none: [PieceChoice<'_>; 0] = [];
            let usage = Some(ChatUsage::of(made));
            events.data(&Self::reply(made, "chat.completion.chunk", &none, usage));
        }
        events.done();
    }

    fn whole(&self, made: &Made) -> Vec<u8> {
        let tool_calls = made.call.as_ref().map(|call| {
            let function = MadeFunction { name: Some(&call.name), arguments: made.text() };
            [MadeCall { index: None, id: Some(&call.id), r#type: Some("function"), function }]
        });
        let content = made.call.is_none().then(|| made.text());
        let message = Words { role: Some("assistant"), content, tool_calls };
        let finish_reason = reason(made.finish);
        let choices = [WholeChoice { index: 0, message, logprobs: None, finish_reason }];
        to_json(&Self::reply(made, "chat.completion", &choices, Some(ChatUsage::of(made))))
    }
}
