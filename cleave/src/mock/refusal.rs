//! Errors as clients see them: `OpenAI`'s body as vLLM writes it, or Anthropic's. The only place where
//! an error becomes a status and a body.

use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use serde::Serialize;

/// The API in whose form an error is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorDialect {
    OpenAi,
    Anthropic,
}

/// Why a request gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The body or a value in it makes no sense.
    Bad {
        message: String,
    },
    UnknownModel {
        model: String,
    },
    TooLong {
        tokens: u64,
        tokens_max: u32,
    },
    /// No response with this id is kept here.
    UnknownResponse {
        id: String,
    },
    /// A failure that was asked for.
    Injected,
}

#[derive(Serialize)]
struct OpenAiBody<'a> {
    error: OpenAiError<'a>,
}

#[derive(Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: u16,
}

#[derive(Serialize)]
struct AnthropicBody<'a> {
    r#type: &'a str,
    error: AnthropicError<'a>,
}

#[derive(Serialize)]
struct AnthropicError<'a> {
    r#type: &'a str,
    message: &'a str,
}

impl Refusal {
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::Bad { message: message.into() }
    }

    fn message(&self) -> String {
        match self {
            Self::Bad { message } => message.clone(),
            Self::UnknownModel { model } => format!("The model `{model}` does not exist."),
            Self::UnknownResponse { id } => format!("Response with id '{id}' not found."),
            Self::TooLong { tokens, tokens_max } => format!(
                "This model's maximum context length is {tokens_max} tokens. However, you requested \
                 {tokens} tokens. Please reduce the length of the prompt or of the answer."
            ),
            Self::Injected => "EngineCore encountered an issue (an injected fault).".to_owned(),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Bad { .. } | Self::TooLong { .. } => StatusCode::BAD_REQUEST,
            Self::UnknownModel { .. } | Self::UnknownResponse { .. } => StatusCode::NOT_FOUND,
            Self::Injected => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Names the error in `OpenAI`'s words as vLLM uses them, then in Anthropic's.
    fn types(&self) -> (&'static str, &'static str) {
        match self {
            Self::Bad { .. } | Self::TooLong { .. } => ("BadRequestError", "invalid_request_error"),
            Self::UnknownModel { .. } => ("NotFoundError", "not_found_error"),
            Self::UnknownResponse { .. } => ("invalid_request_error", "not_found_error"),
            Self::Injected => ("InternalServerError", "api_error"),
        }
    }

    pub(super) fn into_response(self, dialect: ErrorDialect) -> Response {
        let (status, message) = (self.status(), self.message());
        let (openai, anthropic) = self.types();
        let body = match dialect {
            ErrorDialect::OpenAi => {
                let param = match &self {
                    Self::UnknownModel { .. } => Some("model"),
                    Self::UnknownResponse { .. } => Some("response_id"),
                    Self::Bad { .. } | Self::TooLong { .. } | Self::Injected => None,
                };
                let code = status.as_u16();
                to_json(&OpenAiBody {
                    error: OpenAiError { message: &message, r#type: openai, param, code },
                })
            }
            ErrorDialect::Anthropic => to_json(&AnthropicBody {
                r#type: "error",
                error: AnthropicError { r#type: anthropic, message: &message },
            }),
        };
        (status, json(body)).into_response()
    }
}

/// Answers 200 with a JSON body.
pub(super) fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Writes one of our own types as JSON.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("our own types have string keys and finite numbers")
}
