//! Errors in the form each API's clients expect, as a whole answer or as an event in a stream.

use serde::Serialize;

use super::Api;

/// What went wrong, in OpenAI's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    InvalidRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    TooLarge,
    RateLimited,
    Unavailable,
    Timeout,
    Internal,
}

/// One error, ready to be written.
#[derive(Clone, Debug)]
pub struct ErrorBody<'a> {
    pub kind: ErrorKind,
    pub message: &'a str,
    /// Machine-readable reason.
    pub code: &'a str,
    pub param: Option<&'a str>,
}

#[derive(Serialize)]
struct OpenAi<'a> {
    error: OpenAiError<'a>,
}

#[derive(Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'a str,
}

#[derive(Serialize)]
struct Anthropic<'a> {
    r#type: &'static str,
    error: AnthropicError<'a>,
}

#[derive(Serialize)]
struct AnthropicError<'a> {
    r#type: &'static str,
    message: &'a str,
}

impl ErrorKind {
    const fn openai(self) -> &'static str {
        match self {
            Self::InvalidRequest | Self::NotFound | Self::TooLarge => "invalid_request_error",
            Self::Unauthorized => "authentication_error",
            Self::Forbidden => "permission_error",
            Self::RateLimited => "rate_limit_error",
            Self::Unavailable => "service_unavailable_error",
            Self::Timeout => "timeout_error",
            Self::Internal => "server_error",
        }
    }

    const fn anthropic(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request_error",
            Self::Unauthorized => "authentication_error",
            Self::Forbidden => "permission_error",
            Self::NotFound => "not_found_error",
            Self::TooLarge => "request_too_large",
            Self::RateLimited => "rate_limit_error",
            Self::Unavailable => "overloaded_error",
            Self::Timeout => "timeout_error",
            Self::Internal => "api_error",
        }
    }
}

impl ErrorBody<'_> {
    /// Writes the body of an answer.
    pub fn answer(&self, api: Api) -> String {
        let Self { kind, message, code, param } = *self;
        let json = if api == Api::Messages {
            let error = AnthropicError { r#type: kind.anthropic(), message };
            serde_json::to_string(&Anthropic { r#type: "error", error })
        } else {
            let error = OpenAiError { message, r#type: kind.openai(), param, code };
            serde_json::to_string(&OpenAi { error })
        };
        json.expect("structs of strings always serialise")
    }

    /// Writes an event that ends a stream. `mid_event` says that the stream broke off inside one,
    /// which must be closed first or the two would run together.
    pub fn event(&self, api: Api, mid_event: bool) -> String {
        let close = if mid_event { "\n\n" } else { "" };
        let name = match api {
            Api::Messages | Api::Responses => "event: error\n",
            Api::Chat | Api::Completions | Api::Other => "",
        };
        format!("{close}{name}data: {}\n\n", self.answer(api))
    }
}

/// Writes what the router says of its own health.
pub fn health_body(word: &str) -> String {
    format!("{{\"status\":\"{word}\"}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: ErrorBody<'_> = ErrorBody {
        kind: ErrorKind::Unavailable,
        message: "the replica \"died\"",
        code: "replica_lost",
        param: None,
    };

    #[test]
    fn each_api_gets_its_own_form() {
        assert_eq!(
            ERROR.answer(Api::Chat),
            r#"{"error":{"message":"the replica \"died\"","type":"service_unavailable_error","param":null,"code":"replica_lost"}}"#
        );
        assert_eq!(
            ERROR.answer(Api::Messages),
            r#"{"type":"error","error":{"type":"overloaded_error","message":"the replica \"died\""}}"#
        );
    }

    #[test]
    fn an_event_closes_the_one_before_it() {
        assert!(ERROR.event(Api::Chat, false).starts_with("data: {"));
        assert!(ERROR.event(Api::Chat, true).starts_with("\n\ndata: {"));
        assert!(ERROR.event(Api::Messages, false).starts_with("event: error\ndata: {"));
        assert!(ERROR.event(Api::Messages, false).ends_with("}\n\n"));
    }
}
