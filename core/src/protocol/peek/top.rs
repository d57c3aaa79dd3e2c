//! The top level of a request body, in one pass: the fields that matter for routing are kept as they
//! stand, everything else is skipped. What they mean is worked out once all of them are there.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::field::Field;
use super::steered::{Hits, Nest};
use super::{Urgency, span_of};
use crate::protocol::opening::{Listed, Messages, Opening};
use crate::protocol::outline::{Prompt, Turns, open_ended};
use crate::protocol::{Api, KeptField, SessionId};

/// No class has a longer name.
const TIER_BYTES_MAX: usize = 64;

/// The values of the fields that are read, as they stand in the body.
#[derive(Default)]
pub(super) struct Top<'a> {
    pub(super) model: Option<&'a RawValue>,
    pub(super) stream: Option<&'a RawValue>,
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
    input_file_id: Option<&'a RawValue>,
    priority: Option<&'a RawValue>,
    service_tier: Option<&'a RawValue>,
    pub(super) hits: Hits<'a>,
    pub(super) twice: Option<&'static str>,
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
            Field::InputFileId => ("input_file_id", &mut self.input_file_id),
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
    pub(super) fn session(&self) -> Option<SessionId> {
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

    pub(super) fn opening(&self, api: Api) -> Option<u64> {
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

    pub(super) fn prompt(&self, text: &'a str) -> Prompt<'a> {
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

    pub(super) fn urgency(&self) -> Urgency {
        Urgency {
            priority: self.priority.and_then(|it| it.get().parse().ok()),
            service_tier: text(self.service_tier)
                .filter(|it| it.len() <= TIER_BYTES_MAX)
                .map(Cow::into_owned),
        }
    }

    /// Finds the widest cap, for all answers together that the body asks for: engines differ in which of
    /// two they go by. A value that is none is theirs to judge.
    pub(super) fn output_tokens_max(&self, api: Api) -> Option<u32> {
        if api == Api::Other {
            return Some(0);
        }
        let caps = [self.max_tokens, self.max_completion_tokens, self.max_output_tokens];
        let cap = caps.into_iter().flatten().filter_map(count).max()?;
        Some(cap.saturating_mul(self.answers(api)))
    }

    /// Counts the answers that the body asks for.
    pub(super) fn answers(&self, api: Api) -> u32 {
        let each = [self.n, self.best_of].into_iter().flatten().filter_map(count).max();
        let prompts = self.prompt.filter(|_| api == Api::Completions).map_or(1, prompts);
        each.unwrap_or(1).max(1).saturating_mul(prompts.max(1))
    }

    /// Tells whether the engine keeps some of the prompt, so that the body does not show its length.
    pub(super) fn is_continued(&self) -> bool {
        let kept = [self.previous_response_id, self.conversation];
        kept.into_iter().flatten().any(|it| it.get() != "null")
    }
}

impl<'a> Top<'a> {
    /// The fields that name something which an engine keeps.
    pub(super) const fn kept(&self) -> KeptFields<'a> {
        [
            (KeptField::PreviousResponse, self.previous_response_id),
            (KeptField::Conversation, self.conversation),
            (KeptField::InputFile, self.input_file_id),
        ]
    }
}

/// Fields that name something which an engine keeps, as they stand.
pub(super) type KeptFields<'a> = [(KeptField, Option<&'a RawValue>); 3];

/// Reads the id of something that an engine keeps, which stands there itself or in an object.
pub(super) fn kept_id(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    text(Some(raw)).or_else(|| {
        let object = Some(raw.get()).filter(|it| it.starts_with('{'))?;
        text(serde_json::from_str::<Object<'_>>(object).ok()?.id)
    })
}

pub(super) struct TopVisitor(pub(super) Api);

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

/// Reads a string that is not empty; borrowed unless it has escapes.
pub(super) fn text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    let raw = raw.map(RawValue::get).filter(|it| it.starts_with('"'))?;
    let Text(text) = serde_json::from_str(raw).ok()?;
    (!text.is_empty()).then_some(text)
}
