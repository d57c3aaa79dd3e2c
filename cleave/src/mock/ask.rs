//! What clients send, read leniently: unknown fields are ignored, content may be text, a list of
//! parts or nothing. Every API ends up as one `Ask`: a prompt in bytes and how to answer it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::refusal::Refusal;
use super::text::{CALL_MARK, Transcript};

/// A request to generate, whatever API it came by.
#[derive(Debug, Default)]
pub(super) struct Ask {
    pub(super) model: Option<String>,
    pub(super) prompt: Vec<u8>,
    /// How much of the prompt's end is the beginning of the answer.
    pub(super) said_bytes: usize,
    pub(super) output_tokens_max: Option<u32>,
    /// Go on to the cap whatever the model would do.
    pub(super) ignore_eos: bool,
    pub(super) stream: bool,
    /// The tool to call instead of talking.
    pub(super) tool: Option<Tool>,
    /// The stored response that it goes on from.
    pub(super) previous: Option<String>,
    /// Whether the answer is kept.
    pub(super) stores: bool,
}

/// Reads a body, or says what is wrong with it.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad(format!("invalid request body: {error}")))
}

/// A string, or a list of something; null counts as the empty string.
#[derive(Clone, Debug)]
pub(super) enum TextOr<T> {
    Text(String),
    List(Vec<T>),
}

impl<T> Default for TextOr<T> {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

// Written by hand because serde's untagged enums copy the input first and cannot hold raw values.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = TextOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list")
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(TextOr::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(TextOr::List(list))
            }
        }

        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// One part of a message's content, in `OpenAI`'s or Anthropic's words.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    r#type: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    input: Option<Box<RawValue>>,
    #[serde(default)]
    content: Option<Box<Content>>,
}

/// The content of a message.
pub(super) type Content = TextOr<Part>;

impl Content {
    /// Renders the content as the model sees it; what is not text is only named.
    pub(super) fn render(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(parts) => parts.iter().map(Part::render).collect(),
        }
    }

    /// Says whether the content answers a tool call, which Anthropic sends in the user's name.
    pub(super) fn is_tool_result(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::List(parts) => parts.iter().any(|part| part.r#type == "tool_result"),
        }
    }
}

impl Part {
    fn render(&self) -> String {
        match (&self.text, &self.name, &self.content) {
            (Some(text), _, _) => text.clone(),
            (None, Some(name), _) => {
                render_call(name, self.input.as_ref().map_or("{}", |input| input.get()))
            }
            (None, None, Some(content)) => content.render(),
            (None, None, None) => format!("<|{}|>", self.r#type),
        }
    }
}

/// Renders a tool call as the model writes it.
pub(super) fn render_call(name: &str, arguments: &str) -> String {
    format!("{CALL_MARK}{name} {arguments}")
}

/// A tool the model may call.
#[derive(Clone, Debug, Default)]
pub(super) struct Tool {
    pub(super) name: String,
    /// Each required argument with its JSON type.
    pub(super) arguments: BTreeMap<String, String>,
}

/// A tool as sent: by name and schema, or wrapped as a function in `OpenAI`'s chat.
#[derive(Debug, Deserialize)]
struct RawTool {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, alias = "input_schema")]
    parameters: Option<Box<RawValue>>,
    #[serde(default)]
    function: Option<Box<RawTool>>,
}

#[derive(Debug, Default, Deserialize)]
struct Schema {
    #[serde(default)]
    properties: BTreeMap<String, Property>,
    #[serde(default)]
    required: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Property {
    #[serde(default)]
    r#type: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ToolChoice {
    Word(String),
    Named { r#type: String, name: Option<String>, function: Option<Named> },
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    name: String,
}

impl ToolChoice {
    fn forbids(&self) -> bool {
        match self {
            Self::Word(word) => word == "none",
            Self::Named { r#type, .. } => r#type == "none",
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Word(_) => None,
            Self::Named { name, function, .. } => {
                function.as_ref().map(|it| it.name.as_str()).or(name.as_deref())
            }
        }
    }
}

/// The tools of a request and what it says about using them.
#[derive(Debug, Default)]
pub(super) struct Toolbox {
    pub(super) tools: Option<Box<RawValue>>,
    pub(super) choice: Option<ToolChoice>,
}

impl Toolbox {
    /// Renders the tools into the prompt, as chat templates do.
    pub(super) fn introduce(&self, transcript: &mut Transcript) {
        if let Some(tools) = &self.tools {
            transcript.say("tools", tools.get());
        }
    }

    /// Picks the tool to call; nothing when there is none or the request forbids it.
    pub(super) fn pick(&self) -> Result<Option<Tool>, Refusal> {
        let Some(raw) = &self.tools else { return Ok(None) };
        let tools: Option<Vec<RawTool>> = read(raw.get().as_bytes())?;
        if self.choice.as_ref().is_some_and(ToolChoice::forbids) {
            return Ok(None);
        }
        let wanted = self.choice.as_ref().and_then(ToolChoice::name);
        let mut tools = tools.unwrap_or_default().into_iter().filter_map(RawTool::settle);
        Ok(tools.find(|tool| wanted.is_none_or(|wanted| wanted == tool.name)))
    }
}

impl RawTool {
    /// Reads what a call needs; tools that are no functions have no name and are left out.
    fn settle(self) -> Option<Tool> {
        let raw = self.function.map_or((self.name, self.parameters), |it| (it.name, it.parameters));
        let (Some(name), parameters) = raw else { return None };
        let schema: Schema =
            parameters.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let type_of = |name: &str| {
            let raw = schema.properties.get(name).and_then(|it| it.r#type.as_ref());
            raw.map_or("string", |raw| raw.get().trim_matches('"')).to_owned()
        };
        let arguments = schema.required.iter().map(|it| (it.clone(), type_of(it))).collect();
        Some(Tool { name, arguments })
    }
}
