//! The body of an answer to a client: a replica's, passed on as it comes, or a text of our own. With its
//! end the request is over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body::{Frame, SizeHint};

use super::client::Busy;
use super::relay::Relay;

pub(super) struct Body {
    content: Content,
    /// The request in flight, once its answer begins.
    busy: Option<Busy>,
}

enum Content {
    Relay(Box<Relay>),
    /// `None` once it was taken.
    Text(Option<Bytes>),
}

impl Body {
    pub(super) const fn relay(relay: Box<Relay>) -> Self {
        Self { content: Content::Relay(relay), busy: None }
    }

    pub(super) fn text(text: Bytes) -> Self {
        Self { content: Content::Text(Some(text).filter(|it| !it.is_empty())), busy: None }
    }

    /// Takes the text out; nothing of a relay, which has none.
    pub(super) fn into_text(self) -> Bytes {
        match self.content {
            Content::Text(text) => text.unwrap_or_default(),
            Content::Relay(_) => Bytes::new(),
        }
    }

    /// Leaves a text of our own out of an answer to HEAD and says how long it is: hyper does that over HTTP/1 alone, and
    /// over HTTP/2 a body after such an answer is against the protocol.
    pub(super) fn without_text(answer: Response<Self>) -> Response<Self> {
        let (mut parts, mut body) = answer.into_parts();
        if let Content::Text(text) = &mut body.content {
            let length = text.take().map_or(0, |it| it.len());
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        Response::from_parts(parts, body)
    }

    /// Notes that an answer begins, and that the request is over when it ends.
    pub(super) fn begin(mut answer: Response<Self>, busy: Busy) -> Response<Self> {
        busy.on_answer(answer.headers());
        answer.body_mut().busy = Some(busy);
        answer
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.get_mut().content {
            Content::Relay(relay) => relay.poll_contained(cx).map(|it| Some(it?.map(Frame::data))),
            Content::Text(text) => Poll::Ready(text.take().map(|it| Ok(Frame::data(it)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Relay(relay) => relay.is_done(),
            Content::Text(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = match &self.content {
            Content::Relay(relay) => relay.length(),
            Content::Text(text) => text.as_ref().map_or(Some(0), |it| u64::try_from(it.len()).ok()),
        };
        length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
