//! Why a replica cannot be used, in a word for machines and a sentence for people. An operator reads it where
//! the replica never came up, and where it was up and is out: a mistyped name, a port where nothing listens, a
//! certificate, a key.

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

    /// The detail as it stands beside a reason: with its own word before it, where the reason is another one.
    pub fn beside(&self, reason: Option<&str>) -> String {
        let Self { word, detail } = self;
        match reason {
            Some(other) if other != *word => format!("{word}: {detail}"),
            Some(_) | None => detail.clone(),
        }
    }

    /// Reads it off a try for which no connection could be made; `None` where one could.
    pub fn of_try(error: &SendError) -> Option<Self> {
        match error {
            // A failed look-up has no number of the operating system's.
            SendError::Connect(error) if error.raw_os_error().is_none() => {
                Some(Self::new("name_unknown", format!("its name is not known: {error}")))
            }
            SendError::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Some(Self::new("refused", "nothing listens there: the connection was refused"))
            }
            SendError::Connect(error) => Some(Self::new("unreachable", error.to_string())),
            SendError::Tls(error) => Some(Self::new("tls", error.to_string())),
            SendError::ConnectTimeout => {
                Some(Self::new("timeout", "it takes no connection in time"))
            }
            SendError::NoAnswer
            | SendError::BadAnswer(_)
            | SendError::Exhausted(_)
            | SendError::Lost(_)
            | SendError::Died(_)
            | SendError::BrokenOff(_)
            | SendError::GivenUp
            | SendError::Body(_) => None,
        }
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
        Self::of_try(error).or_else(|| Some(Self::of_question(path, error)))
    }

    /// Reads it off a question for `path` that was not answered though a connection stood.
    fn of_question(path: &str, error: &SendError) -> Self {
        match error {
            SendError::NoAnswer => Self::new("timeout", format!("no answer to GET {path} in time")),
            SendError::BadAnswer(error) => Self::new("not_http", error.to_string()),
            SendError::Exhausted(error) => Self::new("router_full", error.to_string()),
            SendError::Connect(_)
            | SendError::Tls(_)
            | SendError::ConnectTimeout
            | SendError::Lost(_)
            | SendError::Died(_)
            | SendError::BrokenOff(_)
            | SendError::GivenUp
            | SendError::Body(_) => Self::new("hung_up", format!("it hung up on GET {path}")),
        }
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
        assert_eq!(Trouble::of_try(&SendError::NoAnswer), None, "it was connected");
        assert_eq!(of(SendError::GivenUp).word, "hung_up");
        let answered = |status| Trouble::of("/health", &Ok((status, ())));
        assert_eq!(answered(StatusCode::OK), None);
        assert_eq!(answered(StatusCode::FORBIDDEN).unwrap().word, "unauthorized");
        let starting = answered(StatusCode::SERVICE_UNAVAILABLE).unwrap();
        assert_eq!(starting.word, "unhealthy");
        assert!(starting.detail.contains("503"), "{starting:?}");
    }

    #[test]
    fn beside_another_reason_the_word_is_told_too() {
        let trouble = Trouble::new("tls", "certificate expired");
        assert_eq!(trouble.beside(Some("unhealthy")), "tls: certificate expired");
        assert_eq!(trouble.beside(Some("tls")), "certificate expired");
        assert_eq!(trouble.beside(None), "certificate expired");
    }
}
