//! Addresses of replicas, and how they are probed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::uri::{Authority, Uri};

/// Scheme, host and port of one replica: HTTP/1.1, as engines serve it, plain or under TLS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(String);

/// The text is no replica address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOrigin {
    #[error("not a URL; write it as http://HOST:PORT")]
    NotUrl,
    #[error("replicas speak http:// or https://; write it as http://HOST:PORT")]
    Scheme,
    #[error("a replica is an address without path or query; write it as http://HOST:PORT")]
    Path,
    #[error("credentials do not belong in a replica's address")]
    Credentials,
}

impl Origin {
    /// Host and port, as the `Host` header and the resolver want them.
    pub fn authority(&self) -> &str {
        self.split().1
    }

    /// The host alone, in brackets if it is an IPv6 address.
    pub fn host(&self) -> &str {
        let authority = self.authority();
        authority.rsplit_once(':').map_or(authority, |it| it.0)
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &str {
        self.split().0
    }

    pub fn is_secure(&self) -> bool {
        self.scheme() == "https"
    }

    fn split(&self) -> (&str, &str) {
        // Each request asks for it, and looking for the colon where it may be takes the least.
        let end = if self.0.as_bytes().get(4) == Some(&b':') { 4 } else { 5 };
        (&self.0[..end], &self.0[end + 3..])
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = BadOrigin;

    fn from_str(text: &str) -> Result<Self, BadOrigin> {
        let uri: Uri = text.parse().map_err(|_| BadOrigin::NotUrl)?;
        let (scheme, usual) = match uri.scheme_str() {
            Some("http") => ("http", "80"),
            Some("https") => ("https", "443"),
            Some(_) => return Err(BadOrigin::Scheme),
            None => return Err(BadOrigin::NotUrl),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(BadOrigin::Path);
        }
        let authority: &Authority = uri.authority().ok_or(BadOrigin::NotUrl)?;
        if authority.as_str().contains('@') {
            return Err(BadOrigin::Credentials);
        }
        let port = match authority.port() {
            Some(port) => port.as_u16().to_string(),
            None if authority.as_str().ends_with(':') => return Err(BadOrigin::NotUrl),
            None => usual.to_owned(),
        };
        Ok(Self(format!("{scheme}://{}:{port}", authority.host().to_ascii_lowercase())))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a replica is asked whether it lives and how loaded it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSettings {
    /// Path that answers 200 when the replica can serve.
    pub path: String,
    pub interval: Duration,
    pub timeout: Duration,
    /// Time between two looks at its engine's metrics.
    pub report_interval: Duration,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        Self {
            path: "/health".to_owned(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            report_interval: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_normalised_so_that_all_routers_hash_it_alike() {
        let check = |text: &str, want: &str| {
            assert_eq!(text.parse::<Origin>().unwrap().as_str(), want, "{text}");
        };
        check("http://GPU-0:8000", "http://gpu-0:8000");
        check("http://gpu-0:8000/", "http://gpu-0:8000");
        check("http://gpu-0", "http://gpu-0:80");
        check("http://[::1]:9", "http://[::1]:9");
        check("HTTPS://GPU-0", "https://gpu-0:443");
    }

    #[test]
    fn an_origin_falls_into_scheme_host_and_port() {
        let origin: Origin = "https://[::1]:9".parse().unwrap();
        assert_eq!((origin.scheme(), origin.host()), ("https", "[::1]"));
        assert_eq!((origin.authority(), origin.is_secure()), ("[::1]:9", true));
    }

    #[test]
    fn what_is_no_origin_is_refused_with_its_remedy() {
        let check = |text: &str, want: BadOrigin| {
            assert_eq!(text.parse::<Origin>(), Err(want), "{text}");
        };
        check("gpu-0:8000", BadOrigin::NotUrl);
        check("", BadOrigin::NotUrl);
        check("ftp://gpu-0:8000", BadOrigin::Scheme);
        check("http://gpu-0:8000/v1", BadOrigin::Path);
        check("http://me:secret@gpu-0:8000", BadOrigin::Credentials);
    }
}
