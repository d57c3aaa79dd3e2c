//! The body of an answer to a client: a replica's, passed on as it comes, or a text of our own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::relay::Relay;

pub(super) enum Body {
    Relay(Box<Relay>),
    /// `None` once it was taken.
    Text(Option<Bytes>),
}

impl Body {
    pub(super) fn text(text: Bytes) -> Self {
        Self::Text(Some(text).filter(|it| !it.is_empty()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Relay(relay) => relay.poll_contained(cx).map(|it| Some(it?.map(Frame::data))),
            Self::Text(text) => Poll::Ready(text.take().map(|it| Ok(Frame::data(it)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Relay(relay) => relay.is_done(),
            Self::Text(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = match self {
            Self::Relay(relay) => relay.length(),
            Self::Text(text) => text.as_ref().map_or(Some(0), |it| u64::try_from(it.len()).ok()),
        };
        length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
