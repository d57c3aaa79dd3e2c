//! How far a quarantine reaches: a prompt, and what is around it.

/// What a quarantine holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineScope {
    Request,
    Session,
    /// Sessions of the workload that were not there before.
    NewSessions,
    Workload,
}

impl QuarantineScope {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Session => "session",
            Self::NewSessions => "new_sessions",
            Self::Workload => "workload",
        }
    }
}
