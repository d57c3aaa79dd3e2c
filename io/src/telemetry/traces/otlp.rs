//! The messages of OTLP, as far as traces of requests use them: field numbers and types are those of
//! opentelemetry-proto 1. Its own crate would bring the whole SDK for these few.

use prost::Message;

/// What a collector takes.
#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// Empty for one that has none above.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    /// One of [`INTERNAL`], [`SERVER`] and [`CLIENT`].
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

pub const INTERNAL: i32 = 1;
pub const SERVER: i32 = 2;
pub const CLIENT: i32 = 3;
/// The code of a status that is an error.
pub const ERROR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(int32, tag = "3")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Real(f64),
}

impl From<&str> for Value {
    fn from(it: &str) -> Self {
        Self::Text(it.to_owned())
    }
}

impl From<u32> for Value {
    fn from(it: u32) -> Self {
        Self::Int(it.into())
    }
}

impl From<f64> for Value {
    fn from(it: f64) -> Self {
        Self::Real(it)
    }
}

impl From<bool> for Value {
    fn from(it: bool) -> Self {
        Self::Flag(it)
    }
}

impl KeyValue {
    pub fn new(key: &str, value: impl Into<Value>) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(value.into()) }) }
    }
}

impl ExportRequest {
    /// Reads what a collector gets; for tests of the other end.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).ok()
    }

    /// Lists all spans in it.
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        let scopes = self.resource_spans.iter().flat_map(|it| &it.scope_spans);
        scopes.flat_map(|it| &it.spans)
    }
}

impl Span {
    /// Appends it as one of the spans of a [`ScopeSpans`].
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        field(2, self.encoded_len(), out);
        self.encode_raw(out);
    }

    /// Finds an attribute.
    pub fn attribute(&self, key: &str) -> Option<&Value> {
        self.attributes.iter().find(|it| it.key == key)?.value.as_ref()?.value.as_ref()
    }
}

/// Puts spans that were appended before into an [`ExportRequest`], without reading them again.
pub(super) fn envelope(service: &str, spans: &[u8]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let attributes =
        vec![KeyValue::new("service.name", service), KeyValue::new("service.version", version)];
    let resource = Resource { attributes };
    let scope = Scope { name: "cleave".to_owned(), version: version.to_owned() };
    let mut scoped = Vec::with_capacity(spans.len() + 64);
    field(1, scope.encoded_len(), &mut scoped);
    scope.encode_raw(&mut scoped);
    scoped.extend_from_slice(spans);
    let mut of_resource = Vec::with_capacity(scoped.len() + 128);
    field(1, resource.encoded_len(), &mut of_resource);
    resource.encode_raw(&mut of_resource);
    field(2, scoped.len(), &mut of_resource);
    of_resource.extend_from_slice(&scoped);
    let mut request = Vec::with_capacity(of_resource.len() + 16);
    field(1, of_resource.len(), &mut request);
    request.extend_from_slice(&of_resource);
    request
}

/// Begins a field that holds a message of that length.
fn field(tag: u8, length: usize, out: &mut Vec<u8>) {
    out.push(tag << 3 | 2);
    // A vector has room for as much as is asked for.
    _ = prost::encode_length_delimiter(length, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_together_reads_like_what_is_encoded_whole() {
        let span = |name: &str| Span {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            name: name.to_owned(),
            kind: SERVER,
            start_time_unix_nano: 7,
            end_time_unix_nano: 9,
            attributes: vec![
                KeyValue::new("a", 3_u32),
                KeyValue::new("b", "c".repeat(300).as_str()),
            ],
            ..Span::default()
        };
        let mut bytes = Vec::new();
        span("one").append(&mut bytes);
        span("two").append(&mut bytes);
        let whole = envelope("svc", &bytes);
        let read = ExportRequest::read(&whole).unwrap();
        assert_eq!(read.spans().cloned().collect::<Vec<_>>(), [span("one"), span("two")]);
        let resource = read.resource_spans[0].resource.as_ref().unwrap();
        assert_eq!(resource.attributes[0], KeyValue::new("service.name", "svc"));
        assert_eq!(read.encode_to_vec(), whole, "byte for byte");
    }

    #[test]
    fn the_bytes_are_those_of_the_published_schema() {
        // As the `opentelemetry-proto` package for Python writes the same span.
        let span = Span {
            trace_id: vec![1, 2],
            span_id: vec![3],
            parent_span_id: vec![4],
            name: "n".to_owned(),
            kind: CLIENT,
            start_time_unix_nano: 5,
            end_time_unix_nano: 6,
            attributes: vec![
                KeyValue::new("i", 7_u32),
                KeyValue::new("d", 0.5),
                KeyValue::new("f", true),
            ],
            status: Some(Status { message: "m".to_owned(), code: ERROR }),
            flags: 1,
        };
        let golden = "0a0201021201032201042a016e30033905000000000000004106000000000000004a070a0169120218074a0e0a0164120921000000000000e03f4a070a0166120210017a0512016d1802850101000000";
        let digits = span.encode_to_vec().into_iter().flat_map(|it| [it >> 4, it & 15]);
        let hex: String = digits.filter_map(|it| char::from_digit(it.into(), 16)).collect();
        assert_eq!(hex, golden);
    }
}
