//! Which requests the admin port does not even look at: those that a page in the operator's browser
//! could have sent. Such a page can reach the port with requests of its own (cross-site), or under a
//! name of its own that it has lead here (DNS rebinding). The first are known by `Origin` and
//! `Sec-Fetch-Site`, the second by `Host`. Orders must be JSON besides, which no page may send to
//! another site unasked.

use std::net::IpAddr;

use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// By which names the port is known.
#[derive(Clone, Debug, Default)]
pub(super) struct OriginCheck {
    /// Besides its addresses and `localhost`.
    hosts: Vec<String>,
    /// Where a token is asked for, any name will do: no page knows the token.
    any_host: bool,
}

/// Why a request is turned away.
pub(super) type Refusal = (StatusCode, &'static str);

impl OriginCheck {
    pub(super) fn new(hosts: &[String], has_token: bool) -> Self {
        Self { hosts: hosts.to_vec(), any_host: has_token }
    }

    /// Turns a request away that a foreign page may have sent.
    pub(super) fn check(&self, request: &Parts) -> Result<(), Refusal> {
        let headers = &request.headers;
        let host = host_of(request)?;
        if let Some(host) = &host
            && !self.any_host
            && !self.is_known(host.host())
        {
            let why = "this name is not one of the admin port's: use its address, or list the name \
                       in admin.hosts\n";
            return Err((StatusCode::FORBIDDEN, why));
        }
        if !is_own_page(headers, host.as_ref()) || is_cross_site(request) {
            return Err((
                StatusCode::FORBIDDEN,
                "the admin port takes no requests of other sites\n",
            ));
        }
        if !matches!(request.method, Method::GET | Method::HEAD) && !is_json(headers) {
            let why = "send orders with the header `content-type: application/json`\n";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        Ok(())
    }

    fn is_known(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        bare.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|it| host.eq_ignore_ascii_case(it))
    }
}

/// Finds the name that was asked for. None is fine: a browser always gives one.
fn host_of(request: &Parts) -> Result<Option<Authority>, Refusal> {
    let mut given = request.headers.get_all(HOST).iter();
    let (first, second) = (given.next(), given.next());
    if second.is_some() {
        return Err((StatusCode::BAD_REQUEST, "give one Host\n"));
    }
    let read = |it: &HeaderValue| it.to_str().ok()?.parse::<Authority>().ok();
    let host = first.map(|it| read(it).ok_or((StatusCode::BAD_REQUEST, "the Host is none\n")));
    // A whole address in place of a path has the last word.
    Ok(request.uri.authority().cloned().or(host.transpose()?))
}

/// Tells whether the page that sends it, if it is one, came from here.
fn is_own_page(headers: &HeaderMap, host: Option<&Authority>) -> bool {
    headers.get_all(ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let site = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        site.zip(host).is_some_and(|(site, host)| site.eq_ignore_ascii_case(host.as_str()))
    })
}

/// Tells whether a browser says that another site sends it. To follow a link to a page is no harm.
fn is_cross_site(request: &Parts) -> bool {
    let says = |name, word: &str| request.headers.get(name).is_some_and(|it| it == word);
    let follows_link = request.method == Method::GET && says(FETCH_MODE, "navigate");
    let from_elsewhere = says(FETCH_SITE, "cross-site") || says(FETCH_SITE, "same-site");
    from_elsewhere && !follows_link
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let kind = kind.and_then(|it| it.split(';').next());
    kind.is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn status(origin: &OriginCheck, method: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri("/status");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let checked = origin.check(&request.body(()).unwrap().into_parts().0);
        checked.map_or_else(|it| it.0.as_u16(), |()| 200)
    }

    #[test]
    fn the_port_is_known_by_address_localhost_and_listed_names() {
        let origin = OriginCheck::new(&["router.internal".to_owned()], false);
        for (host, want) in [
            ("127.0.0.1:9090", 200),
            ("10.1.2.3", 200),
            ("[::1]:9090", 200),
            ("localhost:9090", 200),
            ("LocalHost", 200),
            ("Router.Internal:9090", 200),
            ("evil.example:9090", 403),
            ("localhost.evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("router.internal.evil.example", 403),
            ("", 400),
            ("a b", 400),
        ] {
            assert_eq!(status(&origin, "GET", &[("host", host)]), want, "{host}");
        }
        assert_eq!(status(&origin, "GET", &[]), 200);
        assert_eq!(status(&origin, "GET", &[("host", "localhost"), ("host", "localhost")]), 400);
        let guarded = OriginCheck::new(&[], true);
        assert_eq!(status(&guarded, "GET", &[("host", "evil.example")]), 200, "it has no token");
    }

    #[test]
    fn pages_of_other_sites_are_turned_away() {
        for origin in [OriginCheck::new(&[], false), OriginCheck::new(&[], true)] {
            let of = |headers: &[(&str, &str)]| {
                let mut all =
                    vec![("host", "127.0.0.1:9090"), ("content-type", "application/json")];
                all.extend_from_slice(headers);
                (status(&origin, "GET", &all), status(&origin, "POST", &all))
            };
            assert_eq!(of(&[]), (200, 200));
            assert_eq!(of(&[("origin", "http://127.0.0.1:9090")]), (200, 200));
            assert_eq!(of(&[("sec-fetch-site", "same-origin")]), (200, 200));
            for origin in ["http://evil.example", "null", "http://127.0.0.1:3000", ""] {
                assert_eq!(of(&[("origin", origin)]), (403, 403), "{origin}");
            }
            for site in ["cross-site", "same-site"] {
                assert_eq!(of(&[("sec-fetch-site", site)]), (403, 403), "{site}");
                let link = [("sec-fetch-site", site), ("sec-fetch-mode", "navigate")];
                assert_eq!(of(&link), (200, 403), "a link, and a form");
            }
        }
    }

    #[test]
    fn orders_are_json() {
        let origin = OriginCheck::default();
        let post = |kind: &str| status(&origin, "POST", &[("content-type", kind)]);
        assert_eq!(post("application/json"), 200);
        assert_eq!(post("Application/JSON; charset=utf-8"), 200);
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
            assert_eq!(post(kind), 415, "{kind}");
        }
        assert_eq!(status(&origin, "POST", &[]), 415);
        assert_eq!(status(&origin, "DELETE", &[]), 415);
        assert_eq!(status(&origin, "GET", &[("content-type", "text/plain")]), 200);
    }
}
