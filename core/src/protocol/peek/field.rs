//! Which field of a body a key names: one that is read, one that steers an engine, or any other. Keys
//! come decoded, so an escaped one is told like a plain one.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::protocol::steering::{engine_field, is_nest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Model,
    Stream,
    PromptCacheKey,
    Metadata,
    User,
    Messages,
    System,
    Instructions,
    Input,
    Prompt,
    Tools,
    CacheSalt,
    LoraPath,
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    N,
    BestOf,
    PreviousResponseId,
    Conversation,
    InputFileId,
    Priority,
    ServiceTier,
    /// Steers an engine, and is read for nothing else; by its place in the table.
    Engine(usize),
    /// An object of which engines read fields as if they stood beside it.
    Nest,
    Other,
}

impl Field {
    fn of(name: &str) -> Self {
        match name {
            "model" => Self::Model,
            "stream" => Self::Stream,
            "prompt_cache_key" => Self::PromptCacheKey,
            "metadata" => Self::Metadata,
            "user" => Self::User,
            "messages" => Self::Messages,
            "system" => Self::System,
            "instructions" => Self::Instructions,
            "input" => Self::Input,
            "prompt" => Self::Prompt,
            "tools" => Self::Tools,
            "cache_salt" => Self::CacheSalt,
            "lora_path" => Self::LoraPath,
            "max_tokens" => Self::MaxTokens,
            "max_completion_tokens" => Self::MaxCompletionTokens,
            "max_output_tokens" => Self::MaxOutputTokens,
            "n" => Self::N,
            "best_of" => Self::BestOf,
            "previous_response_id" => Self::PreviousResponseId,
            "conversation" => Self::Conversation,
            "input_file_id" => Self::InputFileId,
            "priority" => Self::Priority,
            "service_tier" => Self::ServiceTier,
            _ => match engine_field(name) {
                Some(place) => Self::Engine(place),
                None if is_nest(name) => Self::Nest,
                None => Self::Other,
            },
        }
    }

    /// Finds the place in the table of fields that steer an engine.
    pub(super) fn place(self) -> Option<usize> {
        if let Self::Engine(place) = self {
            Some(place)
        } else if self == Self::CacheSalt {
            engine_field("cache_salt")
        } else if self == Self::Priority {
            engine_field("priority")
        } else {
            None
        }
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_identifier(FieldVisitor)
    }
}

struct FieldVisitor;

impl Visitor<'_> for FieldVisitor {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Field, E> {
        Ok(Field::of(name))
    }
}
