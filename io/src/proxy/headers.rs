//! Which headers pass, in both directions. Those that speak of one connection do not (RFC 9110,
//! section 7.6.1); lengths are written anew, because a field may have been spliced in. A client's keys
//! and what would steer an engine stay here, unless an operator lets them pass.

use cleave_core::protocol::{engine_header, is_credential};
use cleave_core::queue::{ContractUsage, Work};
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::settings::Passing;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
pub(super) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Headers that may carry an API key, in order.
pub(super) static KEYS: [HeaderName; 3] =
    [header::AUTHORIZATION, API_KEY, HeaderName::from_static("api-key")];
/// Names to a replica the one that served the session before, for engines that can fetch KV from
/// there.
pub(super) const PREVIOUS_REPLICA: HeaderName =
    HeaderName::from_static("x-cleave-previous-replica");
/// Asks for the decision to be kept and shown.
pub(super) const EXPLAIN: HeaderName = HeaderName::from_static("x-cleave-explain");
/// Shows it.
pub(super) const DECISION: HeaderName = HeaderName::from_static("x-cleave-decision");
pub(super) const WAITED_MS: HeaderName = HeaderName::from_static("x-cleave-waited-ms");
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

static HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What the router says to replicas itself, or keeps from them. Each use of a constant makes a name and drops it,
/// so the names that every header is compared with stand here.
static WRITTEN_ANEW: [HeaderName; 6] =
    [header::HOST, header::CONTENT_LENGTH, header::EXPECT, REQUEST_ID, EXPLAIN, PREVIOUS_REPLICA];
/// What is between router and replica alone.
static NOT_FOR_CLIENTS: [HeaderName; 3] = [DECISION, PREVIOUS_REPLICA, header::ALT_SVC];

/// How the body that follows is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framed {
    Length(usize),
    Chunked,
    Nothing,
}

/// Writes the client's headers for the replica, after the request line and the host, with the empty
/// line that ends them. Where `is_traced`, each try names its own span in place of the client's.
pub(super) fn write_for_replica(
    headers: &HeaderMap,
    request_id: &HeaderValue,
    framed: Framed,
    passing: Passing,
    is_traced: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let named = NamedInConnection::of(headers);
    for (name, value) in headers {
        let stays = WRITTEN_ANEW.contains(name)
            || is_traced && *name == TRACEPARENT
            || HOP_BY_HOP.contains(name)
            || named.contains(name);
        if !stays && may_pass(name.as_str(), passing) {
            write_line(&mut out, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    write_line(&mut out, REQUEST_ID.as_str().as_bytes(), request_id.as_bytes());
    match framed {
        Framed::Length(length) => {
            write_line(&mut out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
        }
        Framed::Chunked => write_line(&mut out, b"transfer-encoding", b"chunked"),
        Framed::Nothing => {}
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Lists the headers that another proxy must take out of a request that it sends to a replica. What concerns one
/// connection it leaves out by itself.
pub(super) fn withheld(headers: &HeaderMap, passing: Passing) -> Vec<HeaderName> {
    let is_ours = |it: &&HeaderName| **it == EXPLAIN || **it == PREVIOUS_REPLICA;
    headers.keys().filter(|it| is_ours(it) || !may_pass(it.as_str(), passing)).cloned().collect()
}

/// Tells whether the operator lets a header reach the engines.
fn may_pass(name: &str, passing: Passing) -> bool {
    match engine_header(name) {
        Some(place) => passing.headers.has(place),
        None => passing.credentials || !is_credential(name),
    }
}

fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Says where a tenant stands in its contract, in the words clients know from rate limits.
pub(super) fn write_rate_limits(headers: &mut HeaderMap, usage: &ContractUsage) {
    let mut put = |name: &'static str, value: Option<String>| {
        if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    let mu = |it: Work| format!("{:.3}", it.as_mu());
    put("x-ratelimit-limit-mu", usage.limits.work_per_min.map(mu));
    put("x-ratelimit-remaining-mu", usage.work_remaining.map(mu));
    put("x-ratelimit-limit-tokens", usage.limits.tokens_per_min.map(|it| it.to_string()));
    put("x-ratelimit-remaining-tokens", usage.tokens_remaining.map(|it| it.to_string()));
    put("x-ratelimit-limit-requests", usage.limits.requests_per_min.map(|it| it.to_string()));
    put("x-ratelimit-remaining-requests", usage.requests_remaining.map(|it| it.to_string()));
    put("x-ratelimit-reset", Some(format!("{:.3}", usage.reset_in.as_secs_f64())));
}

/// Gives the values of those of `names` that are there, in the order of the names. A lookup hashes the
/// name, so there is none as long as no header has any of them.
pub(super) fn values_of<'a>(
    headers: &'a HeaderMap,
    names: &'a [HeaderName],
) -> impl Iterator<Item = &'a HeaderValue> {
    let asked = if headers.keys().any(|it| names.contains(it)) { names } else { &[] };
    asked.iter().filter_map(|it| headers.get(it))
}

/// Makes a replica's headers fit for the client.
pub(super) fn clean_for_client(headers: &mut HeaderMap, stream: bool) {
    let named = NamedInConnection::of(headers);
    for name in named.0 {
        headers.remove(&name);
    }
    // Nearly all answers have none of them, which is told without a lookup for each.
    let is_ours = |it: &HeaderName| {
        HOP_BY_HOP.contains(it) || NOT_FOR_CLIENTS.contains(it) || is_credential(it.as_str())
    };
    while let Some(name) = headers.keys().find(|it| is_ours(it)).cloned() {
        headers.remove(name);
    }
    if stream {
        // Proxies in front of the router must not gather what it does not.
        headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
}

pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|it| {
        it.get(..17).is_some_and(|it| it.eq_ignore_ascii_case(b"text/event-stream"))
    })
}

/// Tells whether a server might read the body as JSON: one of its labels says so, or there is none.
pub(super) fn may_be_json(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter().map(HeaderValue::as_bytes);
    let says_so = |kind: &[u8]| {
        kind.trim_ascii().is_empty() || kind.windows(4).any(|it| it.eq_ignore_ascii_case(b"json"))
    };
    !headers.contains_key(header::CONTENT_TYPE) || kinds.any(says_so)
}

/// The headers that a `Connection` header declares to be of this connection only.
struct NamedInConnection(Vec<HeaderName>);

impl NamedInConnection {
    fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::CONNECTION).iter();
        let names = values.flat_map(|it| it.as_bytes().split(|it| *it == b','));
        Self(names.filter_map(|it| HeaderName::from_bytes(it.trim_ascii()).ok()).collect())
    }

    fn contains(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use cleave_core::protocol::{Allowed, ENGINE_HEADERS};

    use super::super::testing::header_map as map;
    use super::*;

    #[test]
    fn what_concerns_one_connection_is_not_passed_on() {
        let headers = map(&[
            ("connection", "keep-alive, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("host", "router"),
            ("content-length", "99"),
            ("expect", "100-continue"),
            ("x-request-id", "theirs"),
            ("x-cleave-explain", "token"),
            ("authorization", "Bearer k"),
            ("x-session-id", "s"),
        ]);
        let own = "x-session-id: s\r\nx-request-id: r\r\ncontent-length: 7\r\n\r\n";
        assert_eq!(written(&headers, Passing::default()), own);
        let keys = Passing { credentials: true, ..Passing::default() };
        assert_eq!(written(&headers, keys), format!("authorization: Bearer k\r\n{own}"));
    }

    fn written(headers: &HeaderMap, passing: Passing) -> String {
        let id = HeaderValue::from_static("r");
        String::from_utf8(write_for_replica(headers, &id, Framed::Length(7), passing, false))
            .unwrap()
    }

    #[test]
    fn every_header_that_steers_an_engine_passes_only_if_it_is_allowed() {
        for (place, name) in ENGINE_HEADERS.iter().enumerate() {
            let name: HeaderName = name.replace('*', "any").parse().unwrap();
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("1"))]);
            let line = format!("{name}: 1\r\n");
            assert!(!written(&headers, Passing::default()).contains(&line), "{name}");
            let headers_allowed = Allowed::default().with(place);
            let passing = Passing { headers: headers_allowed, ..Passing::default() };
            assert!(written(&headers, passing).contains(&line), "{name}");
        }
    }

    #[test]
    fn an_answer_keeps_its_own_headers_and_loses_its_connections() {
        let mut headers = map(&[
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("server", "engine"),
            ("upgrade", "h2c"),
        ]);
        clean_for_client(&mut headers, true);
        assert_eq!(headers, map(&[("server", "engine"), ("x-accel-buffering", "no")]));
    }

    #[test]
    fn content_types_are_told_apart() {
        assert!(may_be_json(&map(&[("content-type", "Application/JSON; charset=utf-8")])));
        assert!(may_be_json(&map(&[])));
        assert!(may_be_json(&map(&[("content-type", " ")])), "as if there were none");
        let both = [("content-type", "text/plain"), ("content-type", "application/json")];
        let mut headers = HeaderMap::new();
        for (name, value) in both {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert!(may_be_json(&headers), "servers differ on which they take");
        assert!(!may_be_json(&map(&[("content-type", "multipart/form-data; boundary=x")])));
        assert!(is_event_stream(&map(&[("content-type", "text/event-stream; charset=utf-8")])));
        assert!(!is_event_stream(&map(&[("content-type", "text/html")])));
    }
}
