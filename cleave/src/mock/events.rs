//! Server-sent events as bytes, one chunk each, so that each is flushed by itself.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::Serialize;

/// Events that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Events(VecDeque<Bytes>);

impl Events {
    /// Adds an event without a name, as `OpenAI`'s chat has them.
    pub(super) fn data(&mut self, value: &impl Serialize) {
        self.push(b"data: ", value);
    }

    /// Adds an event with a name, as Anthropic and `OpenAI`'s responses have them.
    pub(super) fn named(&mut self, name: &str, value: &impl Serialize) {
        self.push(format!("event: {name}\ndata: ").as_bytes(), value);
    }

    /// Adds `OpenAI`'s end of a stream.
    pub(super) fn done(&mut self) {
        self.0.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
    }

    pub(super) fn next(&mut self) -> Option<Bytes> {
        self.0.pop_front()
    }

    fn push(&mut self, head: &[u8], value: &impl Serialize) {
        let mut event = Vec::with_capacity(256);
        event.extend_from_slice(head);
        serde_json::to_writer(&mut event, value)
            .expect("our own types have string keys and finite numbers");
        event.extend_from_slice(b"\n\n");
        self.0.push_back(event.into());
    }
}
