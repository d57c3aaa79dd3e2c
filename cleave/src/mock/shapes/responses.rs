//! `/v1/responses`, as `OpenAI` writes it. An answer is kept unless the request says otherwise, and a later request can
//! go on from it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mock::answer::{Call, Finish, Made, Shape};
use crate::mock::ask::{self, Ask, Content, TextOr, ToolChoice, Toolbox, render_call};
use crate::mock::events::Events;
use crate::mock::refusal::{ErrorDialect, Refusal, to_json};
use crate::mock::text::Transcript;

/// Writes one response; every event carries a number.
#[derive(Debug, Default)]
pub(in crate::mock) struct Responses {
    instructions: Option<String>,
    sequence_number: u32,
}

#[derive(Deserialize)]
struct ResponsesBody {
    model: Option<String>,
    input: TextOr<SentItem>,
    instructions: Option<String>,
    max_output_tokens: Option<u32>,
    #[serde(default)]
    ignore_eos: bool,
    stream: Option<bool>,
    tools: Option<Box<RawValue>>,
    tool_choice: Option<ToolChoice>,
    previous_response_id: Option<String>,
    store: Option<bool>,
}

#[derive(Deserialize)]
struct SentItem {
    r#type: Option<String>,
    role: Option<String>,
    #[serde(default)]
    content: Content,
    name: Option<String>,
    arguments: Option<String>,
    #[serde(default)]
    output: Content,
}

impl SentItem {
    fn say(&self, transcript: &mut Transcript) {
        match (self.r#type.as_deref(), &self.name) {
            (Some("function_call"), Some(name)) => {
                let arguments = self.arguments.as_deref().unwrap_or("{}");
                transcript.say("assistant", &render_call(name, arguments));
            }
            (Some("function_call_output"), _) => transcript.say("tool", &self.output.render()),
            (_, _) => {
                transcript.say(self.role.as_deref().unwrap_or("user"), &self.content.render());
            }
        }
    }

    fn is_from_user(&self) -> bool {
        self.role.as_deref() == Some("user")
    }
}

#[derive(Serialize)]
struct ResponsesReply<'a> {
    id: &'a str,
    object: &'static str,
    created_at: u64,
    status: &'static str,
    error: Option<()>,
    incomplete_details: Option<Incomplete>,
    instructions: Option<&'a str>,
    metadata: Empty,
    model: &'a str,
    output: Vec<Item<'a>>,
    parallel_tool_calls: bool,
    temperature: f64,
    tool_choice: &'static str,
    tools: [(); 0],
    top_p: f64,
    usage: Option<ResponsesUsage>,
}

#[derive(Serialize)]
struct Incomplete {
    reason: &'static str,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct ResponsesUsage {
    input_tokens: u32,
    input_tokens_details: InputDetails,
    output_tokens: u32,
    output_tokens_details: OutputDetails,
    total_tokens: u32,
}

#[derive(Serialize)]
struct InputDetails {
    cached_tokens: u32,
    cache_write_tokens: u32,
}

#[derive(Serialize)]
struct OutputDetails {
    reasoning_tokens: u32,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        id: String,
        status: &'static str,
        role: &'static str,
        content: Vec<ResponsesPart<'a>>,
    },
    FunctionCall {
        id: String,
        status: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "output_text")]
struct ResponsesPart<'a> {
    text: &'a str,
    annotations: [(); 0],
    logprobs: [(); 0],
}

fn part(text: &str) -> ResponsesPart<'_> {
    ResponsesPart { text, annotations: [], logprobs: [] }
}

/// Writes the one item of an answer: with its text when `done`, else as it begins.
fn item<'a>(made: &'a Made, call: Option<&'a Call>, done: bool) -> Item<'a> {
    let status = if done { "completed" } else { "in_progress" };
    let text = if done { made.text() } else { "" };
    let id = item_id(made);
    if let Some(Call { id: call_id, name }) = call {
        return Item::FunctionCall { id, status, call_id, name, arguments: text };
    }
    let content = if done { vec![part(text)] } else { vec![] };
    Item::Message { id, status, role: "assistant", content }
}

fn item_id(made: &Made) -> String {
    let kind = if made.call.is_some() { "fc_" } else { "msg_" };
    made.id.replacen(Responses::ID_PREFIX, kind, 1)
}

#[derive(Serialize)]
struct ResponsesEvent<'a, F> {
    r#type: &'a str,
    sequence_number: u32,
    #[serde(flatten)]
    fields: F,
}

#[derive(Serialize)]
struct OfResponse<'a> {
    response: ResponsesReply<'a>,
}

#[derive(Serialize)]
struct OfItem<'a> {
    output_index: u32,
    item: Item<'a>,
}

/// The fields of every event about the text or the arguments; those that do not belong are left out.
#[derive(Default, Serialize)]
struct OfText<'a> {
    item_id: String,
    output_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<ResponsesPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[(); 0]>,
}

impl Responses {
    fn send(&mut self, events: &mut Events, name: &str, fields: impl Serialize) {
        let sequence_number = self.sequence_number;
        self.sequence_number += 1;
        events.named(name, &ResponsesEvent { r#type: name, sequence_number, fields });
    }

    fn reply<'a>(&'a self, made: &'a Made, done: bool) -> ResponsesReply<'a> {
        let cut = done && made.finish == Finish::Length;
        let usage = done.then(|| ResponsesUsage {
            input_tokens: made.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: made.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: made.output_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: 0 },
            total_tokens: made.prompt_tokens + made.output_tokens,
        });
        ResponsesReply {
            id: &made.id,
            object: "response",
            created_at: made.created_s,
            status: match (done, cut) {
                (false, _) => "in_progress",
                (true, false) => "completed",
                (true, true) => "incomplete",
            },
            error: None,
            incomplete_details: cut.then_some(Incomplete { reason: "max_output_tokens" }),
            instructions: self.instructions.as_deref(),
            metadata: Empty {},
            model: &made.model,
            output: if done { vec![item(made, made.call.as_ref(), true)] } else { vec![] },
            parallel_tool_calls: true,
            temperature: 1.0,
            tool_choice: "auto",
            tools: [],
            top_p: 1.0,
            usage,
        }
    }

    fn send_response(&mut self, made: &Made, name: &str, done: bool, events: &mut Events) {
        // The number is taken first because the reply borrows what it is taken from.
        let sequence_number = self.sequence_number;
        self.sequence_number += 1;
        let fields = OfResponse { response: self.reply(made, done) };
        events.named(name, &ResponsesEvent { r#type: name, sequence_number, fields });
    }

    fn close_text(&mut self, made: &Made, events: &mut Events) {
        let fields =
            || OfText { item_id: item_id(made), content_index: Some(0), ..OfText::default() };
        let text = made.text();
        let all = OfText { text: Some(text), logprobs: Some([]), ..fields() };
        self.send(events, "response.output_text.done", all);
        let all = OfText { part: Some(part(text)), ..fields() };
        self.send(events, "response.content_part.done", all);
    }

    fn close_call(&mut self, made: &Made, call: &Call, events: &mut Events) {
        let fields = OfText {
            item_id: item_id(made),
            name: Some(&call.name),
            arguments: Some(made.text()),
            ..OfText::default()
        };
        self.send(events, "response.function_call_arguments.done", fields);
    }
}

impl Shape for Responses {
    const DIALECT: ErrorDialect = ErrorDialect::OpenAi;
    const ID_PREFIX: &'static str = "resp_";

    fn read(body: &[u8]) -> Result<(Ask, Self), Refusal> {
        let body: ResponsesBody = ask::read(body)?;
        let toolbox = Toolbox { tools: body.tools, choice: body.tool_choice };
        let mut transcript = Transcript::default();
        toolbox.introduce(&mut transcript);
        if let Some(instructions) = &body.instructions {
            transcript.say("system", instructions);
        }
        let asks = match &body.input {
            TextOr::Text(text) => {
                transcript.say("user", text);
                true
            }
            TextOr::List(items) => {
                for item in items {
                    item.say(&mut transcript);
                }
                items.last().is_some_and(SentItem::is_from_user)
            }
        };
        let ask = Ask {
            model: body.model,
            prompt: transcript.into_prompt(),
            said_bytes: 0,
            output_tokens_max: body.max_output_tokens,
            ignore_eos: body.ignore_eos,
            stream: body.stream.unwrap_or(false),
            tool: if asks { toolbox.pick()? } else { None },
            previous: body.previous_response_id,
            stores: body.store.unwrap_or(true),
        };
        Ok((ask, Self { instructions: body.instructions, sequence_number: 0 }))
    }

    fn open(&mut self, made: &Made, events: &mut Events) {
        self.send_response(made, "response.created", false, events);
        self.send_response(made, "response.in_progress", false, events);
        let added = OfItem { output_index: 0, item: item(made, made.call.as_ref(), false) };
        self.send(events, "response.output_item.added", added);
        if made.call.is_none() {
            let (item_id, content_index) = (item_id(made), Some(0));
            let fields =
                OfText { item_id, content_index, part: Some(part("")), ..OfText::default() };
            self.send(events, "response.content_part.added", fields);
        }
    }

    fn piece(&mut self, made: &Made, text: &str, events: &mut Events) {
        let fields = OfText { item_id: item_id(made), delta: Some(text), ..OfText::default() };
        if made.call.is_some() {
            self.send(events, "response.function_call_arguments.delta", fields);
        } else {
            let fields = OfText { content_index: Some(0), logprobs: Some([]), ..fields };
            self.send(events, "response.output_text.delta", fields);
        }
    }

    fn close(&mut self, made: &Made, events: &mut Events) {
        match &made.call {
            None => self.close_text(made, events),
            Some(call) => self.close_call(made, call, events),
        }
        let done = OfItem { output_index: 0, item: item(made, made.call.as_ref(), true) };
        self.send(events, "response.output_item.done", done);
        let cut = made.finish == Finish::Length;
        let name = if cut { "response.incomplete" } else { "response.completed" };
        self.send_response(made, name, true, events);
    }

    fn whole(&self, made: &Made) -> Vec<u8> {
        to_json(&self.reply(made, true))
    }
}
