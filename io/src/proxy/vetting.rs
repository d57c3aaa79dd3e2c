//! What of a replica's answer must not reach a client as it is: addresses of replicas in its head, and
//! the demand for a key that the router keeps to itself.

use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::replicas::Origin;

use super::pool::KeyUse;
use super::rescue::ServeError;
use super::settings::Passing;
use super::visit::Visit;

/// Where an address in a head leads.
#[derive(Debug, PartialEq, Eq)]
enum Leads {
    /// To a path, wherever it was asked for.
    ToPath,
    /// To a path of the replica that names itself.
    Back(String),
    Elsewhere,
}

/// Makes the head of an answer fit for the client, or says why it is not.
pub(super) fn vet(
    visit: &Visit,
    status: StatusCode,
    headers: &mut HeaderMap,
    passing: Passing,
) -> Result<(), ServeError> {
    let member = visit.member();
    let has_key = || member.is_some_and(|it| it.access().key.is_some());
    let is_denied = match status {
        StatusCode::UNAUTHORIZED => !passing.credentials,
        StatusCode::FORBIDDEN => has_key(),
        _ => false,
    };
    if is_denied {
        visit.on_denied();
        return Err(ServeError::ReplicaUnauthorized);
    }
    if let Some(member) = member.filter(|_| status.is_success()) {
        member.on_granted(KeyUse::Requests);
    }
    let origin = member.map(|it| &it.origin);
    let redirects = status.is_redirection();
    for name in [header::LOCATION, header::CONTENT_LOCATION] {
        if !relocate(headers, &name, origin) && redirects && name == header::LOCATION {
            return Err(ServeError::Redirected);
        }
    }
    Ok(())
}

/// Rewrites a header that names the replica, and takes out one that names another address. Tells whether
/// it led where the client can go.
fn relocate(headers: &mut HeaderMap, name: &header::HeaderName, origin: Option<&Origin>) -> bool {
    let Some(value) = headers.get(name) else { return true };
    let own = origin.map_or(("http", ""), |it| (it.scheme(), it.authority()));
    let leads = value.to_str().map_or(Leads::Elsewhere, |it| read(it, own));
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
fn read(address: &str, (own_scheme, authority): (&str, &str)) -> Leads {
    if !address.bytes().all(|it| it.is_ascii_graphic() && it != b'\\') {
        return Leads::Elsewhere;
    }
    let rest = match address.split_once("//") {
        Some(("", rest)) => rest,
        Some((scheme, rest))
            if scheme.strip_suffix(':').is_some_and(|it| it.eq_ignore_ascii_case(own_scheme)) =>
        {
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
        let here = ("http", "gpu-0:8000");
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
        assert_eq!(read("http:///x", ("http", "")), Leads::Back("/x".to_owned()));
        let under_tls = ("https", "gpu-0:8000");
        assert_eq!(read("https://gpu-0:8000/x", under_tls), Leads::Back("/x".to_owned()));
        assert_eq!(read("http://gpu-0:8000/x", under_tls), Leads::Elsewhere);
    }
}
