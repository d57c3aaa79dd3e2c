//! What the operator may set about logs.

/// How the router speaks of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    pub format: LogFormat,
    /// A filter as `tracing` reads it: `info`, or `info,cleave_io::proxy=debug`.
    pub level: String,
    /// One line per request.
    pub access_log: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned(), access_log: true }
    }
}
