//! Between the messages of external processing and HTTP as the data plane knows it.

use std::net::IpAddr;

use bytes::Bytes;
use cleave_core::brain::Failure;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version, header};

use super::messages::{
    BodyChange, BodyMutation, CommonResponse, HeaderField, HeaderList, HeaderMutation,
    HeaderOption, HttpBody, HttpStatus, ImmediateResponse, OVERWRITE, PartResponse, PickerMessage,
    ProcessingRequest, ProcessingResponse, Struct, StructKind, StructValue,
};
use crate::proxy::{Destination, HeaderChanges};

/// Names the replica to the proxy, in the request's head and in its metadata.
const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Where in the metadata.
const LOAD_BALANCING: &str = "envoy.lb";
/// A larger piece of a body is not taken by every proxy.
const PIECE_BYTES_MAX: usize = 62_000;
/// Where Envoy puts attributes that it was asked for.
const ATTRIBUTES: &str = "envoy.filters.http.ext_proc";
const CODE_DETAILS: &str = "response.code_details";
const SERVICE_TIME: HeaderName = HeaderName::from_static("x-envoy-upstream-service-time");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Reads the head of a request; `None` if it is none.
pub(super) fn request_head(list: Option<HeaderList>) -> Option<Parts> {
    let (mut request, mut authority) = (Request::new(()), None);
    *request.version_mut() = Version::HTTP_2;
    let mut headers = HeaderMap::new();
    for field in list.unwrap_or_default().headers {
        let value = value_of(&field);
        match field.key.as_str() {
            ":method" => *request.method_mut() = value.as_bytes().try_into().ok()?,
            ":path" => *request.uri_mut() = value.to_str().ok()?.parse().ok()?,
            ":authority" => authority = Some(value.clone()),
            name if name.starts_with(':') => {}
            name => _ = headers.append(HeaderName::try_from(name).ok()?, value.clone()),
        }
    }
    if let Some(authority) = authority {
        headers.entry(header::HOST).or_insert(authority);
    }
    *request.headers_mut() = headers;
    Some(request.into_parts().0)
}

/// Reads the head of an answer.
pub(super) fn answer_head(list: Option<HeaderList>) -> (StatusCode, HeaderMap) {
    let (mut status, mut headers) = (StatusCode::OK, HeaderMap::new());
    for field in list.unwrap_or_default().headers {
        let value = value_of(&field);
        if field.key == ":status" {
            status = StatusCode::from_bytes(value.as_bytes()).unwrap_or(status);
        } else if let Ok(name) = HeaderName::try_from(field.key.as_str()) {
            headers.append(name, value);
        }
    }
    (status, headers)
}

fn value_of(field: &HeaderField) -> HeaderValue {
    let raw = &field.raw_value;
    let bytes = if raw.is_empty() { field.value.as_bytes() } else { raw };
    HeaderValue::from_bytes(bytes).unwrap_or(HeaderValue::from_static(""))
}

/// Says where a client is: the last address that it was forwarded for, which the proxy itself has written.
pub(super) fn client_of(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all(FORWARDED_FOR).iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next()?.trim().parse().ok()
}

/// Says why the proxy answered in the replica's place, if it did: by the details of the answer where it was asked to
/// tell them, else by what all its own answers have in common.
pub(super) fn failure(
    message: &ProcessingRequest,
    status: StatusCode,
    headers: &HeaderMap,
) -> Option<Failure> {
    let told = message.attributes.get(ATTRIBUTES).and_then(|it| it.fields.get(CODE_DETAILS));
    if let Some(details) = told.and_then(StructValue::as_text) {
        return failure_in(details);
    }
    let is_text = headers.get(header::CONTENT_TYPE).is_some_and(|it| it == "text/plain");
    if headers.contains_key(SERVICE_TIME) || !is_text {
        return None;
    }
    match status {
        StatusCode::SERVICE_UNAVAILABLE => Some(Failure::Unreachable),
        StatusCode::GATEWAY_TIMEOUT => Some(Failure::Late),
        _ => None,
    }
}

fn failure_in(details: &str) -> Option<Failure> {
    if details == "via_upstream" {
        return None;
    }
    let has = |words: &[&str]| words.iter().any(|it| details.contains(it));
    if has(&["connection_failure", "connection_timeout", "no_healthy_upstream"]) {
        Some(Failure::Unreachable)
    } else if has(&["response_timeout", "per_try_timeout", "max_duration"]) {
        Some(Failure::Late)
    } else if details.starts_with("upstream_reset") || has(&["protocol_error"]) {
        Some(Failure::Lost)
    } else {
        // Another filter of the proxy has answered.
        Some(Failure::Ours)
    }
}

fn field(name: &str, value: Bytes) -> HeaderOption {
    let header = HeaderField { key: name.to_owned(), value: String::new(), raw_value: value };
    HeaderOption { header: Some(header), append_action: OVERWRITE }
}

fn mutation(changes: HeaderChanges) -> HeaderMutation {
    let set = changes.set.iter();
    let set =
        set.map(|(name, value)| field(name.as_str(), Bytes::copy_from_slice(value.as_bytes())));
    let remove = changes.remove.iter().map(|it| it.as_str().to_owned());
    HeaderMutation { set_headers: set.collect(), remove_headers: remove.collect() }
}

/// Which part of the exchange is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    RequestHeaders,
    RequestBody,
    ResponseHeaders,
    ResponseBody,
}

/// Answers a part.
pub(super) fn part(which: Part, response: CommonResponse) -> ProcessingResponse {
    let whole = PartResponse { response: Some(response) };
    let message = match which {
        Part::RequestHeaders => PickerMessage::RequestHeaders(whole),
        Part::RequestBody => PickerMessage::RequestBody(whole),
        Part::ResponseHeaders => PickerMessage::ResponseHeaders(whole),
        Part::ResponseBody => PickerMessage::ResponseBody(whole),
    };
    ProcessingResponse { response: Some(message), dynamic_metadata: None }
}

/// Answers a head with what is to change in it.
pub(super) fn changed(which: Part, changes: HeaderChanges) -> ProcessingResponse {
    let header_mutation = Some(mutation(changes));
    part(which, CommonResponse { header_mutation, ..CommonResponse::default() })
}

/// Says where a request goes, in answer to its head or to its whole body.
pub(super) fn destination(which: Part, to: &Destination) -> ProcessingResponse {
    let mut header_mutation = mutation(to.changes.clone());
    let address = Bytes::copy_from_slice(to.address.as_bytes());
    header_mutation.set_headers.push(field(DESTINATION, address));
    let body_mutation = to.body.clone().filter(|_| to.is_edited && which == Part::RequestBody);
    let body_mutation =
        body_mutation.map(|it| BodyMutation { mutation: Some(BodyChange::Whole(it)) });
    let response = CommonResponse {
        header_mutation: Some(header_mutation),
        body_mutation,
        clear_route_cache: true,
    };
    let named = Struct::with(DESTINATION, StructValue::text(&to.address));
    let metadata =
        Struct::with(LOAD_BALANCING, StructValue { kind: Some(StructKind::Struct(named)) });
    ProcessingResponse { dynamic_metadata: Some(metadata), ..part(which, response) }
}

/// Writes a body on, in pieces; `is_end` says that nothing comes after it.
pub(super) fn pieces(
    which: Part,
    mut body: Bytes,
    is_end: bool,
) -> impl Iterator<Item = ProcessingResponse> {
    let mut is_begun = false;
    std::iter::from_fn(move || {
        if is_begun && body.is_empty() {
            return None;
        }
        is_begun = true;
        let piece = body.split_to(body.len().min(PIECE_BYTES_MAX));
        let streamed = HttpBody { end_of_stream: is_end && body.is_empty(), body: piece };
        let body_mutation = Some(BodyMutation { mutation: Some(BodyChange::Streamed(streamed)) });
        Some(part(which, CommonResponse { body_mutation, ..CommonResponse::default() }))
    })
}

/// Has the proxy answer the client with these words.
pub(super) fn immediate(answer: &Response<Bytes>) -> ProcessingResponse {
    let headers = answer.headers().iter().map(|(name, value)| (name.clone(), value.clone()));
    let changes = HeaderChanges { set: headers.collect(), remove: Vec::new() };
    let immediate = ImmediateResponse {
        status: Some(HttpStatus { code: answer.status().as_u16().into() }),
        headers: Some(mutation(changes)),
        body: answer.body().clone(),
        details: "cleave".to_owned(),
    };
    ProcessingResponse {
        response: Some(PickerMessage::Immediate(immediate)),
        dynamic_metadata: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_passed_on_in_pieces_of_which_the_last_one_ends_it() {
        let shown = |bytes: usize, is_end: bool| -> Vec<(usize, bool)> {
            let all = pieces(Part::RequestBody, Bytes::from(vec![0; bytes]), is_end);
            let piece = |it: ProcessingResponse| match it.response {
                Some(PickerMessage::RequestBody(PartResponse { response: Some(it) })) => {
                    match it.body_mutation.and_then(|it| it.mutation) {
                        Some(BodyChange::Streamed(it)) => (it.body.len(), it.end_of_stream),
                        other => panic!("{other:?}"),
                    }
                }
                other => panic!("{other:?}"),
            };
            all.map(piece).collect()
        };
        assert_eq!(shown(0, true), [(0, true)]);
        assert_eq!(shown(3, false), [(3, false)]);
        assert_eq!(shown(130_000, true), [(62_000, false), (62_000, false), (6_000, true)]);
    }

    #[test]
    fn why_the_proxy_answers_itself_is_read_from_its_details() {
        for (details, want) in [
            ("via_upstream", None),
            (
                "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused}",
                Some(Failure::Unreachable),
            ),
            ("upstream_reset_before_response_started{connection_termination}", Some(Failure::Lost)),
            ("upstream_reset_after_response_started{connection_termination}", Some(Failure::Lost)),
            ("upstream_response_timeout", Some(Failure::Late)),
            ("no_healthy_upstream", Some(Failure::Unreachable)),
            ("ext_authz_denied", Some(Failure::Ours)),
        ] {
            assert_eq!(failure_in(details), want, "{details}");
        }
    }

    #[test]
    fn the_client_is_the_last_one_forwarded_for() {
        let mut headers = HeaderMap::new();
        assert_eq!(client_of(&headers), None);
        headers.append(FORWARDED_FOR, HeaderValue::from_static("9.9.9.9, 10.0.0.7"));
        assert_eq!(client_of(&headers), Some([10, 0, 0, 7].into()));
        headers.append(FORWARDED_FOR, HeaderValue::from_static("unknown"));
        assert_eq!(client_of(&headers), None);
    }
}
