//! The name of a session, fit to be sent back in a header.

use std::fmt;

use twox_hash::XxHash3_64;

use crate::domain::HexDigits;

/// Longer names are replaced by their digest.
const BYTES_MAX: usize = 256;

/// One to 256 visible ASCII characters. Never printed raw in logs: clients put account names,
/// even addresses, into it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionId(String);

impl SessionId {
    /// Takes a name as it is if it can be echoed, else its digest. So any text names a session, and
    /// the same text always the same one.
    pub fn bounded(name: &[u8]) -> Self {
        let visible = name.iter().all(u8::is_ascii_graphic);
        match std::str::from_utf8(name) {
            Ok(text) if visible && (1..=BYTES_MAX).contains(&name.len()) => Self(text.to_owned()),
            _ => {
                let (high, low) = (digest(name, 1), digest(name, 2));
                Self(format!("h-{high:016x}{low:016x}"))
            }
        }
    }

    /// Names the session by the opening of its prompt.
    pub fn of_opening(fingerprint: u64) -> Self {
        Self(["fp-", HexDigits::of(fingerprint).as_str()].concat())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({:016x})", digest(self.0.as_bytes(), 0))
    }
}

fn digest(name: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_can_be_echoed_is_kept() {
        assert_eq!(SessionId::bounded(b"chat-1").as_str(), "chat-1");
        let long = "x".repeat(256);
        assert_eq!(SessionId::bounded(long.as_bytes()).as_str(), long);
    }

    #[test]
    fn any_other_name_becomes_its_digest() {
        let long = "x".repeat(257);
        for name in [
            &b""[..],
            b"two words",
            b"line\nbreak",
            "gr\u{fc}n".as_bytes(),
            b"\xff",
            long.as_bytes(),
        ] {
            let id = SessionId::bounded(name);
            assert!(id.as_str().starts_with("h-") && id.as_str().len() == 34);
            assert_eq!(id, SessionId::bounded(name));
        }
        assert_ne!(SessionId::bounded(b"a b"), SessionId::bounded(b"a c"));
    }

    #[test]
    fn debug_output_does_not_show_the_name() {
        assert!(!format!("{:?}", SessionId::bounded(b"alice@example.org")).contains("alice"));
    }
}
