//! The words for how a replica stands: why it is out, what a probe found, whether it may be used.

use crate::domain::Moment;

/// Why a replica is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It cannot be reached, or hangs up.
    Unreachable,
    /// It answers requests with errors that another replica does not give.
    Failing,
    /// It does not answer its health check, and nothing else comes from it either.
    Unhealthy,
    /// It has work and has shown no sign of it for longer than that work explains.
    Hung,
    /// It writes several times as slowly as its peers.
    Slow,
    /// It lists no model that its pool serves: perhaps another process was given its address.
    WrongModel,
    /// It does not take the router's key, or asks for one that the router does not have.
    Unauthorized,
    /// Its orchestrator says that it is not ready.
    NotReady,
}

impl Reason {
    /// Tells whether the replica works and serves nothing for us: neither a pause nor a token changes that,
    /// only a list of models does.
    pub const fn is_unfit(self) -> bool {
        matches!(self, Self::WrongModel | Self::Unauthorized | Self::NotReady)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Failing => "failing",
            Self::Unhealthy => "unhealthy",
            Self::Hung => "hung",
            Self::Slow => "slow",
            Self::WrongModel => "wrong_model",
            Self::Unauthorized => "unauthorized",
            Self::NotReady => "not_ready",
        }
    }
}

/// What a health check, or the request for one token, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The health check was passed.
    Passed,
    /// Asked for a token, it gave one.
    Generated,
    /// It cannot be asked for a token, so that no answer says anything.
    Unable,
    /// It answers, but serves none of its pool's models.
    Stranger,
    /// It answers, but does not show its models with the router's key.
    Unauthorized,
    /// It was not asked: its orchestrator says that it is not ready.
    Unready,
    /// It could not connect, or was answered with an error.
    Failed,
    /// Nothing listens at its address: the process is gone.
    Refused,
    /// Asked for a token, it gave none in time, and this is when it last sent a byte of anything.
    Mute { asked_at: Moment, last_byte_at: Option<Moment> },
    /// No answer in time, and this is when the replica last sent a byte of anything.
    TimedOut { asked_at: Moment, last_byte_at: Option<Moment> },
}

/// Whether requests may go to the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Known, but nothing has come from it yet. Used only when no other is there.
    Joining,
    Up,
    /// Something is wrong with it, perhaps. Used only when no other is there.
    Suspect {
        reason: Reason,
    },
    Out {
        reason: Reason,
        until: Moment,
    },
    /// One request is on its way to find out whether it is back, because it cannot be asked for a token
    /// or no other is there.
    Trial {
        reason: Reason,
    },
}

impl Standing {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Suspect { .. } => "suspect",
            Self::Out { .. } => "out",
            Self::Trial { .. } => "trial",
        }
    }

    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Joining | Self::Up => None,
            Self::Suspect { reason } | Self::Out { reason, .. } | Self::Trial { reason } => {
                Some(reason)
            }
        }
    }
}
