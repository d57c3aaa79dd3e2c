//! `/v1/messages`, as Anthropic writes it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mock::answer::{Finish, Made, Shape};
use crate::mock::ask::{self, Ask, Content, ToolChoice, Toolbox};
use crate::mock::events::Events;
use crate::mock::refusal::{ErrorDialect, Refusal, to_json};
use crate::mock::text::Transcript;

#[derive(Debug)]
pub(in crate::mock) struct Messages;

#[derive(Deserialize)]
struct MessagesBody {
    model: Option<String>,
    messages: Vec<MessagesTurn>,
    system: Option<Content>,
    max_tokens: Option<u32>,
    #[serde(default)]
    ignore_eos: bool,
    stream: Option<bool>,
    tools: Option<Box<RawValue>>,
    tool_choice: Option<ToolChoice>,
}

#[derive(Deserialize)]
struct MessagesTurn {
    role: String,
    #[serde(default)]
    content: Content,
}

#[derive(Serialize)]
struct MessagesReply<'a> {
    id: &'a str,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Block<'a>>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'static str>,
    usage: MessagesUsage,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text { text: &'a str },
    ToolUse { id: &'a str, name: &'a str, input: &'a RawValue },
}

/// Counts as Anthropic does: what came from the cache is not part of the input.
#[derive(Clone, Copy, Serialize)]
#[expect(clippy::struct_field_names, reason = "Anthropic's names")]
struct MessagesUsage {
    input_tokens: u32,
    cache_creation_input_tokens: u32,
    cache_read_input_tokens: u32,
    output_tokens: u32,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum MessagesEvent<'a> {
    MessageStart { message: MessagesReply<'a> },
    ContentBlockStart { index: u32, content_block: Block<'a> },
    ContentBlockDelta { index: u32, delta: MessagesDelta<'a> },
    ContentBlockStop { index: u32 },
    MessageDelta { delta: End, usage: MessagesUsage },
    MessageStop,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum MessagesDelta<'a> {
    TextDelta { text: &'a str },
    InputJsonDelta { partial_json: &'a str },
}

#[derive(Serialize)]
struct End {
    stop_reason: &'static str,
    stop_sequence: Option<&'static str>,
}

impl MessagesEvent<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }

    fn send(self, events: &mut Events) {
        events.named(self.name(), &self);
    }
}

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
        Finish::ToolCall => "tool_use",
    }
}

fn usage(made: &Made, output_tokens: u32) -> MessagesUsage {
    MessagesUsage {
        input_tokens: made.prompt_tokens - made.cached_tokens,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: made.cached_tokens,
        output_tokens,
    }
}

fn reply<'a>(made: &'a Made, content: Vec<Block<'a>>, whole: bool) -> MessagesReply<'a> {
    MessagesReply {
        id: &made.id,
        r#type: "message",
        role: "assistant",
        model: &made.model,
        content,
        stop_reason: whole.then(|| reason(made.finish)),
        stop_sequence: None,
        usage: usage(made, if whole { made.output_tokens } else { 1 }),
    }
}

impl MessagesBody {
    fn into_ask(self) -> Result<Ask, Refusal> {
        let Some(last) = self.messages.last() else {
            return Err(Refusal::bad("messages: at least one is needed"));
        };
        let asks = last.role == "user" && !last.content.is_tool_result();
        let toolbox = Toolbox { tools: self.tools, choice: self.tool_choice };
        let mut transcript = Transcript::default();
        toolbox.introduce(&mut transcript);
        if let Some(system) = &self.system {
            transcript.say("system", &system.render());
        }
        for message in &self.messages {
            transcript.say(&message.role, &message.content.render());
        }
        Ok(Ask {
            model: self.model,
            prompt: transcript.into_prompt(),
            said_bytes: 0,
            output_tokens_max: self.max_tokens,
            ignore_eos: self.ignore_eos,
            stream: self.stream.unwrap_or(false),
            tool: if asks { toolbox.pick()? } else { None },
            ..Ask::default()
        })
    }
}

impl Shape for Messages {
    const DIALECT: ErrorDialect = ErrorDialect::Anthropic;
    const ID_PREFIX: &'static str = "msg_";

    fn read(body: &[u8]) -> Result<(Ask, Self), Refusal> {
        let body: MessagesBody = ask::read(body)?;
        if body.max_tokens.is_none() {
            return Err(Refusal::bad("max_tokens: field required"));
        }
        Ok((body.into_ask()?, Self))
    }

    fn open(&mut self, made: &Made, events: &mut Events) {
        MessagesEvent::MessageStart { message: reply(made, vec![], false) }.send(events);
        let content_block = match &made.call {
            None => Block::Text { text: "" },
            Some(call) => Block::ToolUse { id: &call.id, name: &call.name, input: empty() },
        };
        MessagesEvent::ContentBlockStart { index: 0, content_block }.send(events);
    }

    fn piece(&mut self, made: &Made, text: &str, events: &mut Events) {
        let delta = if made.call.is_some() {
            MessagesDelta::InputJsonDelta { partial_json: text }
        } else {
            MessagesDelta::TextDelta { text }
        };
        MessagesEvent::ContentBlockDelta { index: 0, delta }.send(events);
    }

    fn close(&mut self, made: &Made, events: &mut Events) {
        MessagesEvent::ContentBlockStop { index: 0 }.send(events);
        let delta = End { stop_reason: reason(made.finish), stop_sequence: None };
        MessagesEvent::MessageDelta { delta, usage: usage(made, made.output_tokens) }.send(events);
        MessagesEvent::MessageStop.send(events);
    }

    fn whole(&self, made: &Made) -> Vec<u8> {
        let content = match &made.call {
            None => Block::Text { text: made.text() },
            Some(call) => {
                // Arguments that the cap cut short are no JSON; then the call has none.
                let input = serde_json::from_str(made.text()).unwrap_or_else(|_| empty());
                Block::ToolUse { id: &call.id, name: &call.name, input }
            }
        };
        to_json(&reply(made, vec![content], true))
    }
}

fn empty() -> &'static RawValue {
    serde_json::from_str("{}").expect("an empty object is JSON")
}
