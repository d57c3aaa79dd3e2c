//! What opens a replica: the key that its engine asks for, and TLS. Both are the operator's. They go out
//! with everything that is sent there, and come back to no client and into no log.

use std::fmt;
use std::sync::Arc;

use crate::tls::EngineTls;

use super::settings::Origin;

/// A key of an engine, as the header line that carries it.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineKey(String);

impl EngineKey {
    /// Takes a key of visible ASCII characters; `None` for any other, which could not be sent.
    pub fn new(key: &str) -> Option<Self> {
        let is_sound = !key.is_empty() && key.bytes().all(|it| it.is_ascii_graphic());
        is_sound.then(|| Self(format!("authorization: Bearer {key}\r\n")))
    }
}

impl fmt::Debug for EngineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineKey(…)")
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    pub key: Option<EngineKey>,
    /// Needed for `https://` only.
    pub tls: Option<Arc<EngineTls>>,
}

impl Access {
    /// The value of the header that carries the key.
    pub fn bearer(&self) -> Option<&str> {
        self.line().strip_prefix("authorization: ")?.strip_suffix("\r\n")
    }

    /// The header line with the key; empty without one.
    pub fn line(&self) -> &str {
        self.key.as_ref().map_or("", |it| &it.0)
    }
}

/// Where a replica is, and what opens it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub origin: &'a Origin,
    pub access: &'a Access,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_sent_and_never_shown() {
        let key = EngineKey::new("sk-1").unwrap();
        assert_eq!(format!("{key:?}"), "EngineKey(…)");
        let access = Access { key: Some(key), tls: None };
        assert_eq!(access.line(), "authorization: Bearer sk-1\r\n");
        assert_eq!(access.bearer(), Some("Bearer sk-1"));
        assert_eq!((Access::default().line(), Access::default().bearer()), ("", None));
        for bad in ["", "a b", "a\r\nx: y", "é"] {
            assert_eq!(EngineKey::new(bad), None, "{bad}");
        }
    }
}
