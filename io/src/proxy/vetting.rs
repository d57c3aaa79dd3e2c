//! What of a replica's answer must not reach a client as it is: addresses of replicas in its head, and
//! the demand for a key that the router keeps to itself.

use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use tracing::warn;

use crate::replicas::{Answer, Origin};

use super::rescue::ServeError;
use super::router::Router;
use super::settings::Passing;

/// Where an address in a head leads.
#[derive(Debug, PartialEq, Eq)]
enum Leads {
    /// To a path, wherever it was asked for.
    ToPath,
    /// To a path of the replica that names itself.
    Back(String),
    Elsewhere,
}

/// Makes an answer fit for the client, or says why it is not.
pub(super) fn vet(
    router: &Router,
    mut answer: Answer,
    origin: Option<&Origin>,
    passing: Passing,
) -> Result<Answer, ServeError> {
    if answer.status == StatusCode::UNAUTHORIZED && !passing.credentials {
        tell_operator(router, origin);
        return Err(ServeError::ReplicaUnauthorized);
    }
    let redirects = answer.status.is_redirection();
    for name in [header::LOCATION, header::CONTENT_LOCATION] {
        if !relocate(&mut answer.headers, &name, origin) && redirects && name == header::LOCATION {
            return Err(ServeError::Redirected);
        }
    }
    Ok(answer)
}

/// Logs once what no client can correct.
fn tell_operator(router: &Router, origin: Option<&Origin>) {
    if !router.told_of_keys.swap(true, Relaxed) {
        let replica = origin.map(Origin::as_str);
        warn!(
            replica,
            "a replica asks for a key: clients' keys are not passed on unless forward_credentials is \
             set"
        );
    }
}

/// Rewrites a header that names the replica, and takes out one that names another address. Tells whether
/// it led where the client can go.
fn relocate(headers: &mut HeaderMap, name: &header::HeaderName, origin: Option<&Origin>) -> bool {
    let Some(value) = headers.get(name) else { return true };
    let authority = origin.map_or("", Origin::authority);
    let leads = value.to_str().map_or(Leads::Elsewhere, |it| read(it, authority));
    let back = match leads {
        Leads::ToPath => return true,
        Leads::Back(path) => HeaderValue::try_from(path).ok(),
        Leads::Elsewhere => None,
    };
    headers.remove(name);
    let Some(back) = back else { return false };
    headers.insert(name, back);
    true
}

/// Reads where an address leads, as browsers do: they take a backslash for a slash and leave blanks out.
fn read(address: &str, authority: &str) -> Leads {
    if !address.bytes().all(|it| it.is_ascii_graphic() && it != b'\\') {
        return Leads::Elsewhere;
    }
    let rest = match address.split_once("//") {
        Some((scheme, rest)) if ["", "http:"].iter().any(|it| scheme.eq_ignore_ascii_case(it)) => {
            rest
        }
        _ if is_bare(address) => return Leads::ToPath,
        _ => return Leads::Elsewhere,
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    if !host.eq_ignore_ascii_case(authority) || path.starts_with("//") {
        return Leads::Elsewhere;
    }
    let root = if path.starts_with('/') { "" } else { "/" };
    Leads::Back(format!("{root}{path}"))
}

/// Tells whether an address has neither a scheme nor a host.
fn is_bare(address: &str) -> bool {
    let first = address.split(['/', '?', '#']).next().unwrap_or_default();
    !address.starts_with("//") && !first.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_a_path_back_to_the_replica_or_elsewhere() {
        let here = "gpu-0:8000";
        for path in
            ["/docs/", "docs", "../x", "?a=http://x", "/a:b", "#top", "/x?u=http://y//z", ""]
        {
            assert_eq!(read(path, here), Leads::ToPath, "{path}");
        }
        for (address, path) in [
            ("http://gpu-0:8000/docs/?a=1#b", "/docs/?a=1#b"),
            ("HTTP://GPU-0:8000", "/"),
            ("//gpu-0:8000?x", "/?x"),
        ] {
            assert_eq!(read(address, here), Leads::Back(path.to_owned()), "{address}");
        }
        for address in [
            "http://gpu-1:8000/",
            "https://gpu-0:8000/",
            "http://gpu-0:8000@gpu-1/",
            "http://gpu-0:8000//gpu-1/",
            "//gpu-1/",
            "/\\gpu-1/",
            "\\\\gpu-1",
            "/\t/gpu-1",
            "ftp:gpu-1",
            "javascript:alert(1)",
            "http:gpu-1",
            "x y",
        ] {
            assert_eq!(read(address, here), Leads::Elsewhere, "{address}");
        }
        assert_eq!(read("http:///x", ""), Leads::Back("/x".to_owned()));
    }
}
