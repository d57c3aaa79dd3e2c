//! What a request body says that matters for routing: model, stream, session, where the prompt stands
//! and how it opens, how long the answer may be. One pass that skips everything else; messages are
//! looked into only up to the first word of the user. Values stay raw, because the body is forwarded
//! as it came.

mod field;
mod steered;
mod top;

use std::borrow::Cow;
use std::ops::Range;

use serde::de::{Deserializer as _, IgnoredAny};
use serde_json::value::RawValue;

use super::depth::{DEPTH_MAX, is_too_deep};
use super::outline::Prompt;
use super::steering::Allowed;
use super::{Api, KeptField, SessionId};
use crate::domain::{Extent, Outline};

use self::steered::Hits;
pub use self::steered::{Edit, Salting, Steered};
use self::top::{KeptFields, TopVisitor, kept_id, text};

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
    /// What names something that the engine keeps, by field.
    kept: Option<KeptFields<'a>>,
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

    /// Lists the ids of what an engine keeps and this body goes on from, each with its field.
    pub fn kept_ids(&self) -> impl Iterator<Item = (KeptField, Cow<'_, str>)> {
        self.kept.iter().flatten().filter_map(|(field, raw)| Some((*field, kept_id((*raw)?)?)))
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

/// Why a body cannot be routed. The client can correct each of them.
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
        kept: Some(top.kept()),
        body_bytes: body.len(),
        hits: top.hits,
        text,
    })
}

/// Writes a model's name as it stands in a body.
pub fn quoted(model: &str) -> String {
    serde_json::to_string(model).expect("a string always serialises")
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
