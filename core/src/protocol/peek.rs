//! What a request body says that matters for routing: model, stream, session, where the prompt stands
//! and how it opens, how long the answer may be. One pass that skips everything else; messages are
//! looked into only up to the first word of the user. Values stay raw, because the body is forwarded
//! as it came.

mod field;
mod steered;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::depth::{DEPTH_MAX, is_too_deep};
use super::opening::{Listed, Messages, Opening};
use super::outline::{Prompt, Turns, open_ended};
use super::steering::Allowed;
use super::{Api, SessionId};
use crate::domain::{Extent, Outline};

use self::field::Field;
pub use self::steered::{Edit, Salting, Steered};
use self::steered::{Hits, Nest};

/// No class has a longer name.
const TIER_BYTES_MAX: usize = 64;

/// What was found.
#[derive(Debug, Default)]
pub struct Peek<'a> {
    pub model: Option<Cow<'a, str>>,
    /// Where the model's value stands in the body, quotes included, for splicing in another.
    pub model_span: Range<usize>,
    pub stream: bool,
    /// The session as named by the body or, failing that, by the opening of the prompt.
    pub session: Option<SessionId>,
    /// How urgent the body says it is.
    pub urgency: Urgency,
    prompt: Prompt<'a>,
    /// What of it steers an engine.
    hits: Hits<'a>,
    text: &'a str,
    /// How many answers are asked for.
    answers: u32,
    /// The most tokens that all of them may have, if the client says; 0 where nothing is generated.
    output_tokens_max: Option<u32>,
    /// Whether the engine keeps some of the prompt.
    is_continued: bool,
    body_bytes: usize,
}

impl Peek<'_> {
    /// Tells what prompts share and how large this one is, for the model by the name engines know.
    /// A prompt of a `tenant` shares only with that tenant's. Reads the prompt once more, so it is
    /// done before any lock is taken.
    pub fn outline(&self, model: &str, tenant: Option<u64>) -> (Outline, Extent) {
        let (outline, extent) = self.prompt.outline(model, tenant);
        let (output_tokens_max, streams) = (self.output_tokens_max, self.stream);
        let body_bytes = u32::try_from(self.body_bytes).unwrap_or(u32::MAX);
        let body_bytes = body_bytes.saturating_sub(extent.attachment_bytes);
        let (is_continued, answers) = (self.is_continued, self.answers);
        let extent = Extent { body_bytes, is_continued, answers, ..extent };
        (outline, Extent { output_tokens_max, streams, ..extent })
    }

    /// Copies the text of the prompt between two blocks of its outline, for a count of its tokens.
    pub fn text(&self, blocks: Range<usize>) -> String {
        self.prompt.text(blocks)
    }

    /// Lists what the client chose to keep its prompts apart by, each with its name and as it stands;
    /// nothing where all of it is allowed to pass as it is.
    pub fn chosen_salts(&self, allowed: Allowed) -> impl Iterator<Item = (&'static str, &str)> {
        self.hits.chosen(allowed)
    }

    /// Lists what of the body goes out otherwise than it came, in the order in which it stands: fields
    /// that steer an engine, but for those that are allowed, and the salt.
    pub fn edits(&self, allowed: Allowed, salting: Salting<'_>) -> Result<Vec<Edit>, Steered> {
        self.hits.edits(self.text, allowed, salting)
    }
}

/// What a body says of its priority. Values of other types say nothing; the engine will judge them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urgency {
    /// As engines read it: 0 is the default, what is below goes earlier.
    pub priority: Option<i64>,
    /// The words of the API, as `flex`.
    pub service_tier: Option<String>,
}

/// Why a body cannot be routed. Each is the client's to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    #[error("the request body is not valid UTF-8 (at byte {at})")]
    NotUtf8 { at: usize },
    #[error("the request body is not valid JSON: {message}")]
    Syntax { message: String },
    #[error("the request body nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("the request body must be a JSON object")]
    NotObject,
    #[error("`{field}` must be a {want}")]
    WrongType { field: &'static str, want: &'static str },
    #[error("`{field}` is given twice")]
    Twice { field: &'static str },
}

impl BadBody {
    /// The field at fault, where there is one.
    pub const fn param(&self) -> Option<&'static str> {
        match self {
            Self::WrongType { field, .. } | Self::Twice { field } => Some(field),
            Self::NotUtf8 { .. } | Self::Syntax { .. } | Self::TooDeep | Self::NotObject => None,
        }
    }
}

/// Reads what matters for routing.
pub fn peek(api: Api, body: &[u8]) -> Result<Peek<'_>, BadBody> {
    let text =
        std::str::from_utf8(body).map_err(|error| BadBody::NotUtf8 { at: error.valid_up_to() })?;
    if is_too_deep(body) {
        return Err(BadBody::TooDeep);
    }
    if !text.trim_ascii_start().starts_with('{') {
        // Told apart from a syntax error, because the remedy is another one.
        serde_json::from_str::<IgnoredAny>(text).map_err(syntax)?;
        return Err(BadBody::NotObject);
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let top = json.deserialize_map(TopVisitor(api)).map_err(syntax)?;
    json.end().map_err(syntax)?;
    if let Some(field) = top.twice {
        return Err(BadBody::Twice { field });
    }
    let model_span = top.model.map_or(0..0, |raw| span_of(raw, text));
    Ok(Peek {
        model: top.model.map(read_model).transpose()?,
        model_span,
        stream: top.stream.map(read_stream).transpose()?.unwrap_or(false),
        session: top.session().or_else(|| top.opening(api).map(SessionId::of_opening)),
        urgency: top.urgency(),
        prompt: top.prompt(text),
        answers: top.answers(api),
        output_tokens_max: top.output_tokens_max(api),
        is_continued: top.is_continued(),
        body_bytes: body.len(),
        hits: top.hits,
        text,
    })
}

/// Writes a model's name as it stands in a body.
pub fn quoted(model: &str) -> String {
    serde_json::to_string(model).expect("a string always serialises")
}

/// The values of the fields that are read, as they stand in the body.
#[derive(Default)]
struct Top<'a> {
    model: Option<&'a RawValue>,
    stream: Option<&'a RawValue>,
    prompt_cache_key: Option<&'a RawValue>,
    metadata: Option<&'a RawValue>,
    user: Option<&'a RawValue>,
    /// Looked into while they are skipped: they are most of the body.
    messages: Option<Listed<'a>>,
    system: Option<&'a RawValue>,
    instructions: Option<&'a RawValue>,
    input: Option<&'a RawValue>,
    prompt: Option<&'a RawValue>,
    tools: Option<&'a RawValue>,
    cache_salt: Option<&'a RawValue>,
    lora_path: Option<&'a RawValue>,
    max_tokens: Option<&'a RawValue>,
    max_completion_tokens: Option<&'a RawValue>,
    max_output_tokens: Option<&'a RawValue>,
    n: Option<&'a RawValue>,
    best_of: Option<&'a RawValue>,
    previous_response_id: Option<&'a RawValue>,
    conversation: Option<&'a RawValue>,
    priority: Option<&'a RawValue>,
    service_tier: Option<&'a RawValue>,
    hits: Hits<'a>,
    twice: Option<&'static str>,
}

/// What of `metadata` may name a session.
#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    session_id: Option<&'a RawValue>,
    /// Anthropic's word for the end user, as `user` is OpenAI's.
    #[serde(borrow)]
    user_id: Option<&'a RawValue>,
}

impl<'a> Top<'a> {
    fn slot(&mut self, field: Field) -> Option<(&'static str, &mut Option<&'a RawValue>)> {
        Some(match field {
            Field::Model => ("model", &mut self.model),
            Field::Stream => ("stream", &mut self.stream),
            Field::PromptCacheKey => ("prompt_cache_key", &mut self.prompt_cache_key),
            Field::Metadata => ("metadata", &mut self.metadata),
            Field::User => ("user", &mut self.user),
            Field::System => ("system", &mut self.system),
            Field::Instructions => ("instructions", &mut self.instructions),
            Field::Input => ("input", &mut self.input),
            Field::Prompt => ("prompt", &mut self.prompt),
            Field::Tools => ("tools", &mut self.tools),
            Field::CacheSalt => ("cache_salt", &mut self.cache_salt),
            Field::LoraPath => ("lora_path", &mut self.lora_path),
            Field::MaxTokens => ("max_tokens", &mut self.max_tokens),
            Field::MaxCompletionTokens => {
                ("max_completion_tokens", &mut self.max_completion_tokens)
            }
            Field::MaxOutputTokens => ("max_output_tokens", &mut self.max_output_tokens),
            Field::N => ("n", &mut self.n),
            Field::BestOf => ("best_of", &mut self.best_of),
            Field::PreviousResponseId => ("previous_response_id", &mut self.previous_response_id),
            Field::Conversation => ("conversation", &mut self.conversation),
            Field::Priority => ("priority", &mut self.priority),
            Field::ServiceTier => ("service_tier", &mut self.service_tier),
            Field::Messages | Field::Engine(_) | Field::Nest | Field::Other => return None,
        })
    }

    /// Notes a field that steers an engine; any other is none.
    fn on_steering(&mut self, field: Field, value: &'a RawValue) {
        if let Some(place) = field.place() {
            self.twice = self.twice.or(self.hits.add(place, value, true));
        }
    }

    /// Finds the session the body names. A value of another type names none; the engine will say
    /// what it thinks of it.
    fn session(&self) -> Option<SessionId> {
        let metadata = || {
            // Asked first: a parser that expects an object prints all of what it found instead.
            let raw = self.metadata.map(RawValue::get).filter(|it| it.starts_with('{'));
            raw.and_then(|it| serde_json::from_str::<Metadata<'_>>(it).ok())
        };
        text(self.prompt_cache_key)
            .or_else(|| text(metadata()?.session_id))
            .or_else(|| text(self.user))
            .or_else(|| text(metadata()?.user_id))
            .map(|it| SessionId::bounded(it.as_bytes()))
    }

    fn opening(&self, api: Api) -> Option<u64> {
        let mut opening = Opening::default();
        match api {
            Api::Chat | Api::Messages => {
                opening.content(self.system);
                opening.join(self.messages.as_ref().map(|it| &it.opening));
            }
            Api::Responses => {
                opening.content(self.instructions);
                opening.input(self.input);
            }
            Api::Completions => opening.prompt(self.prompt),
            Api::Other => {}
        }
        opening.finish()
    }

    fn prompt(&self, text: &'a str) -> Prompt<'a> {
        let raw = |it: Option<&'a RawValue>| it.map_or("", RawValue::get);
        let listed = self.messages.as_ref().and_then(|it| it.span);
        let messages =
            listed.map(|(first, last)| &text[span_of(first, text).start..span_of(last, text).end]);
        let turns = match (listed, self.input) {
            (Some((first, _)), _) => {
                let before = text[..span_of(first, text).start].trim_ascii_end();
                let key = before.strip_suffix(':').unwrap_or_default().trim_ascii_end();
                Turns::Message { is_content: key.ends_with("\"content\"") }
            }
            (None, Some(_)) => Turns::List,
            (None, None) => Turns::Bare,
        };
        let said = messages.unwrap_or_else(|| open_ended(raw(self.input.or(self.prompt))));
        Prompt {
            parts: [raw(self.tools), raw(self.system.or(self.instructions)), said],
            turns,
            adapter: raw(self.lora_path),
            salt: raw(self.cache_salt),
        }
    }

    fn urgency(&self) -> Urgency {
        Urgency {
            priority: self.priority.and_then(|it| it.get().parse().ok()),
            service_tier: text(self.service_tier)
                .filter(|it| it.len() <= TIER_BYTES_MAX)
                .map(Cow::into_owned),
        }
    }

    /// Finds the widest cap, for all answers together that the body asks for: engines differ in which of
    /// two they go by. A value that is none is theirs to judge.
    fn output_tokens_max(&self, api: Api) -> Option<u32> {
        if api == Api::Other {
            return Some(0);
        }
        let caps = [self.max_tokens, self.max_completion_tokens, self.max_output_tokens];
        let cap = caps.into_iter().flatten().filter_map(count).max()?;
        Some(cap.saturating_mul(self.answers(api)))
    }

    /// Counts the answers that the body asks for.
    fn answers(&self, api: Api) -> u32 {
        let each = [self.n, self.best_of].into_iter().flatten().filter_map(count).max();
        let prompts = self.prompt.filter(|_| api == Api::Completions).map_or(1, prompts);
        each.unwrap_or(1).max(1).saturating_mul(prompts.max(1))
    }

    /// Tells whether the engine keeps some of the prompt, so that the body does not show its length.
    fn is_continued(&self) -> bool {
        let kept = [self.previous_response_id, self.conversation];
        kept.into_iter().flatten().any(|it| it.get() != "null")
    }
}

struct TopVisitor(Api);

impl<'de> Visitor<'de> for TopVisitor {
    type Value = Top<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top<'de>, A::Error> {
        let mut top = Top::default();
        while let Some(field) = map.next_key::<Field>()? {
            top.hits.members += 1;
            // Parsers disagree on which of two wins, so one could route by one and run the other.
            if field == Field::Messages && matches!(self.0, Api::Chat | Api::Messages) {
                if top.messages.replace(map.next_value_seed(Messages)?).is_some() {
                    top.twice = Some("messages");
                }
            } else if field == Field::Nest {
                let (hits, twice) = (&mut top.hits, &mut top.twice);
                map.next_value_seed(Nest { hits, twice })?;
            } else if let Some((name, slot)) = top.slot(field) {
                let value = map.next_value()?;
                if slot.replace(value).is_some() {
                    top.twice = Some(name);
                }
                top.on_steering(field, value);
            } else if field.place().is_some() {
                let value = map.next_value()?;
                top.on_steering(field, value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(top)
    }
}

fn count(raw: &RawValue) -> Option<u32> {
    raw.get().parse().ok()
}

/// Counts the prompts of a body that may hold a list of them; a list of tokens is one.
fn prompts(raw: &RawValue) -> u32 {
    let list = raw.get().strip_prefix('[').map(str::trim_ascii_start);
    if !list.is_some_and(|it| it.starts_with(['"', '['])) {
        return 1;
    }
    let all = serde_json::from_str::<Vec<IgnoredAny>>(raw.get());
    u32::try_from(all.map_or(1, |it| it.len())).unwrap_or(u32::MAX)
}

fn read_model(raw: &RawValue) -> Result<Cow<'_, str>, BadBody> {
    text(Some(raw)).ok_or(BadBody::WrongType { field: "model", want: "string" })
}

fn read_stream(raw: &RawValue) -> Result<bool, BadBody> {
    match raw.get() {
        "true" => Ok(true),
        "false" | "null" => Ok(false),
        _ => Err(BadBody::WrongType { field: "stream", want: "boolean" }),
    }
}

/// Reads a string that is not empty; borrowed unless it has escapes.
fn text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    let raw = raw.map(RawValue::get).filter(|it| it.starts_with('"'))?;
    let Text(text) = serde_json::from_str(raw).ok()?;
    (!text.is_empty()).then_some(text)
}

/// Where a raw value stands in the text it was borrowed from.
pub(super) fn span_of(raw: &RawValue, text: &str) -> Range<usize> {
    let start = raw.get().as_ptr().addr() - text.as_ptr().addr();
    start..start + raw.get().len()
}

fn syntax(error: serde_json::Error) -> BadBody {
    BadBody::Syntax { message: error.to_string() }
}

#[cfg(test)]
mod tests;
