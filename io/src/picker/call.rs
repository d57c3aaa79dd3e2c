//! One exchange, from the head of a request to the end of its answer. Messages come in the order of HTTP; what the
//! proxy waits for differs by how it sends bodies. Held bodies decide where a request goes, so the answer to the head
//! waits for them under `FULL_DUPLEX_STREAMED`, and is part of the answer to the body under `BUFFERED`. Whatever
//! ends the exchange drops the request, and that settles it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;
use tonic::Code;

use super::inbox::Inbox;
use super::messages::{
    BUFFERED, BUFFERED_PARTIAL, CommonResponse, FULL_DUPLEX_STREAMED, HttpBody, HttpHeaders, NONE,
    PickerMessage, ProcessingRequest, ProcessingResponse, ProtocolConfiguration, ProxyMessage,
    TrailersResponse,
};
use super::translate::{
    Part, answer_head, changed, client_of, destination, failure, immediate, part, pieces,
    request_head,
};
use crate::proxy::{BodyState, OwnAnswer, PickedRequest, Picking};

/// Bodies are sent as the protocol of the Inference Extension has it where a proxy does not say how it sends them.
const UNSAID: ProtocolConfiguration = ProtocolConfiguration {
    request_body_mode: FULL_DUPLEX_STREAMED,
    response_body_mode: FULL_DUPLEX_STREAMED,
};

/// One exchange.
pub(super) struct Call {
    picking: Arc<Picking>,
    inbox: Inbox,
    /// The proxy's own address.
    peer: IpAddr,
    modes: Option<ProtocolConfiguration>,
    request: Option<PickedRequest>,
    /// Whether the body is held until it is whole.
    is_holding: bool,
    out: VecDeque<ProcessingResponse>,
    is_over: bool,
}

/// What ends an exchange before its end: an answer of the router's own.
struct Stopped(OwnAnswer);

impl From<OwnAnswer> for Stopped {
    fn from(answer: OwnAnswer) -> Self {
        Self(answer)
    }
}

/// What happened next.
enum Happened {
    Message(ProcessingRequest),
    Ended,
    /// The replica is given up.
    GivenUp,
    /// The body did not come in time.
    Late,
    /// A message is larger than any body may be.
    TooLarge,
}

impl Call {
    pub(super) fn new(picking: Arc<Picking>, inbox: Inbox, peer: IpAddr) -> Self {
        Self {
            picking,
            inbox,
            peer,
            modes: None,
            request: None,
            is_holding: false,
            out: VecDeque::new(),
            is_over: false,
        }
    }

    /// Gives the next message for the proxy; `None` at the end.
    pub(super) async fn step(&mut self) -> Option<ProcessingResponse> {
        loop {
            if let Some(message) = self.out.pop_front() {
                return Some(message);
            }
            if self.is_over {
                return None;
            }
            let done = match self.wait().await {
                Happened::Message(message) => self.take(message).await,
                Happened::Ended => {
                    self.end();
                    Ok(())
                }
                Happened::GivenUp => self.stop_with(PickedRequest::give_up),
                Happened::Late => self.stop_with(PickedRequest::on_body_late),
                Happened::TooLarge => self.stop_with(PickedRequest::on_body_too_large),
            };
            if let Err(Stopped(answer)) = done {
                self.out.push_back(immediate(&answer));
                self.end();
            }
        }
    }

    /// Ends the exchange; what is to be said is said.
    fn end(&mut self) {
        self.is_over = true;
        self.request = None;
    }

    fn stop_with(
        &mut self,
        last: impl FnOnce(&mut PickedRequest) -> OwnAnswer,
    ) -> Result<(), Stopped> {
        self.is_over = true;
        self.request.as_mut().map_or(Ok(()), |it| Err(last(it).into()))
    }

    async fn wait(&mut self) -> Happened {
        let limit = self.picking.body_limits().1;
        let next = async {
            if !self.is_holding {
                return self.inbox.next().await.map_err(Some);
            }
            timeout(limit, self.inbox.next()).await.map_or(Err(None), |it| it.map_err(Some))
        };
        let next = match &self.request {
            None => next.await,
            Some(request) => tokio::select! {
                biased;
                next = next => next,
                () = request.given_up() => return Happened::GivenUp,
            },
        };
        match next {
            Ok(Some(message)) => Happened::Message(message),
            Err(Some(error)) if error.code() == Code::OutOfRange => Happened::TooLarge,
            Ok(None) | Err(Some(_)) => Happened::Ended,
            Err(None) => Happened::Late,
        }
    }

    /// Takes in a message, and says what is to be said to it.
    async fn take(&mut self, mut message: ProcessingRequest) -> Result<(), Stopped> {
        let modes = *self.modes.get_or_insert(message.protocol_config.unwrap_or(UNSAID));
        match message.request.take() {
            Some(ProxyMessage::RequestHeaders(head)) => {
                self.on_request_head(modes.request_body_mode, head).await?;
            }
            Some(ProxyMessage::RequestBody(body)) => {
                self.on_request_body(modes.request_body_mode, body).await?;
            }
            Some(ProxyMessage::RequestTrailers(_)) => {
                if self.is_holding {
                    self.place(Part::RequestHeaders, BodyState::Held, false).await?;
                }
                let trailers = TrailersResponse {};
                self.say(PickerMessage::RequestTrailers(trailers));
            }
            Some(ProxyMessage::ResponseHeaders(head)) => {
                self.on_answer_head(modes.response_body_mode, &message, head)?;
            }
            Some(ProxyMessage::ResponseBody(body)) => {
                self.on_answer_body(modes.response_body_mode, body);
            }
            Some(ProxyMessage::ResponseTrailers(_)) => {
                self.on_answer_end();
                self.say(PickerMessage::ResponseTrailers(TrailersResponse {}));
            }
            // Of something that is not known here nothing is to be said.
            None => {}
        }
        Ok(())
    }

    fn say(&mut self, response: PickerMessage) {
        self.out.push_back(ProcessingResponse { response: Some(response), dynamic_metadata: None });
    }

    fn go_on(&mut self, which: Part) {
        self.out.push_back(part(which, CommonResponse::default()));
    }

    async fn on_request_head(&mut self, mode: i32, head: HttpHeaders) -> Result<(), Stopped> {
        let is_end = head.end_of_stream;
        let Some(parts) = request_head(head.headers) else {
            let mut bad =
                http::Response::new(Bytes::from_static(b"the request has no sound head\n"));
            *bad.status_mut() = http::StatusCode::BAD_REQUEST;
            return Err(Stopped(Box::new(bad)));
        };
        let peer = client_of(&parts.headers).unwrap_or(self.peer);
        let request = self.request.insert(self.picking.begin(parts, peer));
        let must_hold = request.open()?;
        match mode {
            _ if is_end => self.place(Part::RequestHeaders, BodyState::Nothing, false).await,
            FULL_DUPLEX_STREAMED if must_hold => {
                self.is_holding = true;
                Ok(())
            }
            BUFFERED | BUFFERED_PARTIAL => {
                self.is_holding = true;
                self.go_on(Part::RequestHeaders);
                Ok(())
            }
            _ => self.place(Part::RequestHeaders, BodyState::Passing, false).await,
        }
    }

    async fn on_request_body(&mut self, mode: i32, body: HttpBody) -> Result<(), Stopped> {
        let is_whole = body.end_of_stream || mode != FULL_DUPLEX_STREAMED;
        if self.is_holding {
            if let Some(request) = &mut self.request {
                request.hold(body.body).await?;
            }
            return match mode {
                _ if !is_whole => Ok(()),
                FULL_DUPLEX_STREAMED => {
                    self.place(Part::RequestHeaders, BodyState::Held, true).await
                }
                _ => self.place(Part::RequestBody, BodyState::Held, false).await,
            };
        }
        if mode == FULL_DUPLEX_STREAMED {
            self.out.extend(pieces(Part::RequestBody, body.body, body.end_of_stream));
        } else {
            self.go_on(Part::RequestBody);
        }
        Ok(())
    }

    /// Has the request placed and says where it goes, in answer to `which`. A body that was held follows the head
    /// where it is passed on piece by piece; `is_end` says that no trailers come after it.
    async fn place(&mut self, which: Part, state: BodyState, is_end: bool) -> Result<(), Stopped> {
        self.is_holding = false;
        let Some(request) = &mut self.request else { return Ok(()) };
        let placed = tokio::select! {
            biased;
            placed = self.picking.place(request, state) => placed,
            () = self.inbox.closed() => {
                // The client left while it waited.
                self.end();
                return Ok(());
            }
        };
        let to = placed?;
        self.out.push_back(destination(which, &to));
        if let (Part::RequestHeaders, Some(body)) = (which, to.body) {
            self.out.extend(pieces(Part::RequestBody, body, is_end));
        }
        Ok(())
    }

    fn on_answer_head(
        &mut self,
        mode: i32,
        message: &ProcessingRequest,
        head: HttpHeaders,
    ) -> Result<(), Stopped> {
        let is_end = head.end_of_stream || mode == NONE;
        let (status, headers) = answer_head(head.headers);
        let Some(request) = &mut self.request else {
            // The proxy answers a request that was never placed.
            self.go_on(Part::ResponseHeaders);
            return Ok(());
        };
        let changes = request.on_head(status, &headers, failure(message, status, &headers))?;
        self.out.push_back(changed(Part::ResponseHeaders, changes));
        if is_end {
            self.on_answer_end();
        }
        Ok(())
    }

    fn on_answer_body(&mut self, mode: i32, body: HttpBody) {
        if let Some(request) = &mut self.request {
            request.on_piece(&body.body);
        }
        let is_end = body.end_of_stream;
        if mode == FULL_DUPLEX_STREAMED {
            self.out.extend(pieces(Part::ResponseBody, body.body, is_end));
        } else {
            self.go_on(Part::ResponseBody);
        }
        if is_end {
            self.on_answer_end();
        }
    }

    /// Settles the request: its answer is whole.
    fn on_answer_end(&mut self) {
        if let Some(mut request) = self.request.take() {
            request.on_end();
        }
    }
}
