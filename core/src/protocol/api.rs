//! Which API a path belongs to: it decides how a body is read and how an error looks.

/// The APIs whose bodies are understood; anything else passes through unread but for its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Completions,
    Responses,
    /// Anthropic's.
    Messages,
    Other,
}

impl Api {
    pub fn of(path: &str) -> Self {
        match path {
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/messages" | "/v1/messages/count_tokens" => Self::Messages,
            _ => Self::Other,
        }
    }
}
