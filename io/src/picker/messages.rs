//! The messages of Envoy's external processing, of `google.protobuf.Struct` and of gRPC health, as far as picking uses
//! them: field numbers and types are those of `envoy.service.ext_proc.v3`. A crate of all of Envoy's messages has
//! ninety thousand lines for these few.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Message, Oneof};

/// How bodies are sent, as numbered in `ProcessingMode.BodySendMode`.
pub(super) const NONE: i32 = 0;
pub(super) const BUFFERED: i32 = 2;
pub(super) const BUFFERED_PARTIAL: i32 = 3;
pub(super) const FULL_DUPLEX_STREAMED: i32 = 4;

/// Puts a header in place of all that have its name.
pub(super) const OVERWRITE: i32 = 2;

/// What the proxy tells.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessingRequest {
    #[prost(oneof = "ProxyMessage", tags = "2, 3, 4, 5, 6, 7")]
    pub request: Option<ProxyMessage>,
    #[prost(message, optional, tag = "8")]
    pub metadata_context: Option<FilterMetadata>,
    #[prost(btree_map = "string, message", tag = "9")]
    pub attributes: BTreeMap<String, Struct>,
    #[prost(message, optional, tag = "11")]
    pub protocol_config: Option<ProtocolConfiguration>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum ProxyMessage {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    #[prost(message, tag = "6")]
    RequestTrailers(HttpTrailers),
    #[prost(message, tag = "7")]
    ResponseTrailers(HttpTrailers),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ProtocolConfiguration {
    #[prost(int32, tag = "1")]
    pub request_body_mode: i32,
    #[prost(int32, tag = "2")]
    pub response_body_mode: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FilterMetadata {
    #[prost(btree_map = "string, message", tag = "1")]
    pub filter_metadata: BTreeMap<String, Struct>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderList>,
    #[prost(bool, tag = "3")]
    pub end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpBody {
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpTrailers {
    #[prost(message, optional, tag = "1")]
    pub trailers: Option<HeaderList>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderList {
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderField>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderField {
    #[prost(string, tag = "1")]
    pub key: String,
    /// Older proxies write text here.
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

/// What the proxy is told.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessingResponse {
    #[prost(oneof = "PickerMessage", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub response: Option<PickerMessage>,
    #[prost(message, optional, tag = "8")]
    pub dynamic_metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum PickerMessage {
    #[prost(message, tag = "1")]
    RequestHeaders(PartResponse),
    #[prost(message, tag = "2")]
    ResponseHeaders(PartResponse),
    #[prost(message, tag = "3")]
    RequestBody(PartResponse),
    #[prost(message, tag = "4")]
    ResponseBody(PartResponse),
    #[prost(message, tag = "5")]
    RequestTrailers(TrailersResponse),
    #[prost(message, tag = "6")]
    ResponseTrailers(TrailersResponse),
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

/// The answer to headers or to a piece of a body: both have the same form.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PartResponse {
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    pub body_mutation: Option<BodyMutation>,
    /// Has the route found anew, with the headers as they are now.
    #[prost(bool, tag = "5")]
    pub clear_route_cache: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrailersResponse {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub headers: Option<HeaderMutation>,
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
    #[prost(string, tag = "5")]
    pub details: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderOption>,
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderField>,
    #[prost(int32, tag = "3")]
    pub append_action: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BodyMutation {
    #[prost(oneof = "BodyChange", tags = "1, 3")]
    pub mutation: Option<BodyChange>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum BodyChange {
    /// Puts another body in place of one that was sent whole.
    #[prost(bytes = "bytes", tag = "1")]
    Whole(Bytes),
    #[prost(message, tag = "3")]
    Streamed(HttpBody),
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, StructValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StructValue {
    #[prost(oneof = "StructKind", tags = "3, 5, 6")]
    pub kind: Option<StructKind>,
}

/// The kinds of values that are read; others are none.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum StructKind {
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(StructList),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StructList {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<StructValue>,
}

impl StructValue {
    pub(super) fn text(text: &str) -> Self {
        Self { kind: Some(StructKind::Text(text.to_owned())) }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Some(StructKind::Text(text)) => Some(text),
            Some(StructKind::Struct(_) | StructKind::List(_)) | None => None,
        }
    }
}

impl Struct {
    /// Makes one with a single field.
    pub(super) fn with(name: &str, value: StructValue) -> Self {
        Self { fields: [(name.to_owned(), value)].into() }
    }
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HealthCheck {
    #[prost(string, tag = "1")]
    pub service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct HealthStatus {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

pub(super) const SERVING: i32 = 1;
pub(super) const NOT_SERVING: i32 = 2;
pub(super) const SERVICE_UNKNOWN: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_written_as_the_protocol_has_it() {
        let lb = Struct::with("x", StructValue::text("1.2.3.4:8000"));
        let whole = Struct::with("envoy.lb", StructValue { kind: Some(StructKind::Struct(lb)) });
        let message = ProcessingResponse { response: None, dynamic_metadata: Some(whole) };
        // dynamic_metadata (8), fields (1), key (1), value (2), struct_value (5), and once more to string_value (3).
        let inner = b"\x0a\x01x\x12\x0e\x1a\x0c1.2.3.4:8000";
        let mut want = b"\x42\x25\x0a\x23\x0a\x08envoy.lb\x12\x17\x2a\x15\x0a\x13".to_vec();
        want.extend(inner);
        assert_eq!(message.encode_to_vec(), want);
    }

    #[test]
    fn what_is_not_known_of_a_message_is_left_out() {
        // A window update (13) beside a body (4) of two bytes that ends the stream.
        let bytes = b"\x22\x06\x0a\x02hi\x10\x01\x6a\x02\x08\x05";
        let read = ProcessingRequest::decode(&bytes[..]).unwrap();
        let body = HttpBody { body: Bytes::from_static(b"hi"), end_of_stream: true };
        assert_eq!(read.request, Some(ProxyMessage::RequestBody(body)));
    }
}
