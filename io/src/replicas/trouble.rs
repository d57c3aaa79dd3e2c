//! Why a replica cannot be used, in a word for machines and a sentence for people. An operator reads it where
//! the replica never came up: a mistyped name, a port where nothing listens, a certificate, a key.

use std::io;

use http::StatusCode;

use super::connection::SendError;

/// What is wrong with a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub word: &'static str,
    pub detail: String,
}

impl Trouble {
    pub fn new(word: &'static str, detail: impl Into<String>) -> Self {
        Self { word, detail: detail.into() }
    }

    /// Reads it off the answer to a question for `path`; `None` for a good one.
    pub(super) fn of<T>(path: &str, answered: &Result<(StatusCode, T), SendError>) -> Option<Self> {
        let error = match answered {
            Ok((status, _)) if status.is_success() => return None,
            Ok((status, _)) => {
                let is_key = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(status);
                let word = if is_key { "unauthorized" } else { "unhealthy" };
                return Some(Self::new(word, format!("GET {path} was answered with {status}")));
            }
            Err(error) => error,
        };
        Some(match error {
            // A failed look-up has no number of the operating system's.
            SendError::Connect(error) if error.raw_os_error().is_none() => {
                Self::new("name_unknown", format!("its name is not known: {error}"))
            }
            SendError::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Self::new("refused", "nothing listens there: the connection was refused")
            }
            SendError::Connect(error) => Self::new("unreachable", error.to_string()),
            SendError::Tls(error) => Self::new("tls", error.to_string()),
            SendError::ConnectTimeout => Self::new("timeout", "it takes no connection in time"),
            SendError::NoAnswer => Self::new("timeout", format!("no answer to GET {path} in time")),
            SendError::BadAnswer(error) => Self::new("not_http", error.to_string()),
            SendError::Exhausted(error) => Self::new("router_full", error.to_string()),
            SendError::Lost(_)
            | SendError::Died(_)
            | SendError::BrokenOff(_)
            | SendError::GivenUp
            | SendError::Body(_) => Self::new("hung_up", format!("it hung up on GET {path}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_a_word_and_names_what_was_asked() {
        let of = |error| Trouble::of::<()>("/health", &Err(error)).unwrap();
        let lookup = io::Error::other("failed to lookup address information");
        assert_eq!(of(SendError::Connect(lookup)).word, "name_unknown");
        assert_eq!(of(SendError::Connect(io::Error::from_raw_os_error(111))).word, "refused");
        assert_eq!(of(SendError::Connect(io::Error::from_raw_os_error(113))).word, "unreachable");
        assert_eq!(of(SendError::Tls(io::Error::other("expired"))).word, "tls");
        assert_eq!(of(SendError::NoAnswer).detail, "no answer to GET /health in time");
        let answered = |status| Trouble::of("/health", &Ok((status, ())));
        assert_eq!(answered(StatusCode::OK), None);
        assert_eq!(answered(StatusCode::FORBIDDEN).unwrap().word, "unauthorized");
        let starting = answered(StatusCode::SERVICE_UNAVAILABLE).unwrap();
        assert_eq!(starting.word, "unhealthy");
        assert!(starting.detail.contains("503"), "{starting:?}");
    }
}
