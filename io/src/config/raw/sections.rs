//! The sections that need a restart to change: listeners, limits, timeouts and the rules every
//! pool starts with. Each default is taken from the settled type it becomes, so a knob has one
//! default; the comments are what the schema and the reference page say.

use std::time::Duration;

use cleave_core::brain::{QuarantineSettings, RetrySettings, SessionSettings, WatchSettings};
use cleave_core::fleet::BreakerSettings;
use http::HeaderName;
use http::uri::PathAndQuery;
use schemars::JsonSchema;
use serde::Deserialize;

use super::text::{LogFilter, Text};
use super::{Slots, slots};
use crate::replicas::ProbeSettings;
use crate::telemetry::LogFormat;
use crate::{proxy, telemetry};

const MIB: usize = 1 << 20;

/// Bounds on what clients can make the router hold.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct LimitsSection {
    /// Largest request body in MiB; a larger one is answered with 413.
    #[schemars(range(min = 1, max = 4096))]
    pub body_mib_max: usize,
    /// Request bodies held at once over all requests, in MiB; beyond it reading waits.
    /// One tenant, or one client address where there are no tenants, may hold about half of it, and
    /// each further one about half of what is left.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub buffered_mib_max: usize,
    /// Open client connections; beyond it the ones that are idle longest make room for new ones, which
    /// wait in the listener's backlog while none is idle.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub connections_max: usize,
    /// Slowest rate at which a client may send a body or take an answer, in KiB a second on the average.
    /// It applies once `timeouts.body` or `timeouts.write` has passed.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub client_kib_per_s_min: u64,
}

impl Default for LimitsSection {
    fn default() -> Self {
        let settled = proxy::Limits::default();
        Self {
            body_mib_max: settled.body_bytes_max / MIB,
            buffered_mib_max: settled.buffered_bytes_max / MIB,
            connections_max: settled.connections_max,
            client_kib_per_s_min: settled.client_bytes_per_s_min >> 10,
        }
    }
}

impl From<LimitsSection> for proxy::Limits {
    fn from(raw: LimitsSection) -> Self {
        Self {
            body_bytes_max: raw.body_mib_max.saturating_mul(MIB),
            buffered_bytes_max: raw.buffered_mib_max.saturating_mul(MIB),
            connections_max: raw.connections_max,
            client_bytes_per_s_min: raw.client_kib_per_s_min << 10,
        }
    }
}

/// How long each stage of a request may take.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct TimeoutsSection {
    /// For a client to send a request's head, or to finish its TLS handshake.
    pub header: Text<Duration>,
    /// Between two pieces of a request body. A piece that comes too late is answered with 408.
    pub body: Text<Duration>,
    /// For a whole request body, however steadily it comes.
    pub body_whole: Text<Duration>,
    /// For a client to take anything of what it is sent. A client that takes nothing for this time
    /// is treated as one that left: its request is cancelled at the replica. A caller with many
    /// such answers has five seconds for most of them.
    pub write: Text<Duration>,
    /// To connect to a replica.
    pub connect: Text<Duration>,
    /// From sending a request to a replica to the first byte of its answer, after the head.
    /// Engines answer a non-streaming request only when all of it is generated: leave room.
    pub first_byte: Text<Duration>,
    /// Between two pieces of an answer.
    pub idle: Text<Duration>,
    /// For streams to finish when the router is told to stop; what is left then is cut.
    pub drain: Text<Duration>,
    /// How long the router goes on accepting connections after SIGTERM, while it already says that it is not
    /// ready, so that load balancers notice before it closes. SIGINT does not wait.
    #[schemars(extend("x-default" = "none"))]
    pub drain_delay: Option<Text<Duration>>,
}

impl Default for TimeoutsSection {
    fn default() -> Self {
        let proxy::Timeouts {
            header,
            body,
            body_whole,
            write,
            connect,
            first_byte,
            idle,
            drain,
            drain_delay,
        } = proxy::Timeouts::default();
        Self {
            header: Text(header),
            body: Text(body),
            body_whole: Text(body_whole),
            write: Text(write),
            connect: Text(connect),
            first_byte: Text(first_byte),
            idle: Text(idle),
            drain: Text(drain),
            drain_delay: drain_delay.map(Text),
        }
    }
}

impl From<TimeoutsSection> for proxy::Timeouts {
    fn from(raw: TimeoutsSection) -> Self {
        Self {
            header: raw.header.0,
            body: raw.body.0,
            body_whole: raw.body_whole.0,
            write: raw.write.0,
            connect: raw.connect.0,
            first_byte: raw.first_byte.0,
            idle: raw.idle.0,
            drain: raw.drain.0,
            drain_delay: raw.drain_delay.map(|it| it.0),
        }
    }
}

/// How a session is recognised, and how much is remembered of sessions.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct SessionsSection {
    /// Headers that may carry a session id, in order; `x-session-id` always comes first.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<Text<HeaderName>>")]
    pub headers: Slots<Text<HeaderName>>,
    /// Memory for what is remembered of sessions, in MiB per pool; bounded, whatever clients send.
    #[schemars(range(min = 1, max = 65_536))]
    pub table_mib: usize,
    /// Memory for the ids of what engines keep (responses, conversations, files, batches) and the replicas that
    /// keep it, in MiB; bounded, whatever engines answer.
    #[schemars(range(min = 1, max = 65_536))]
    pub ids_mib: usize,
    /// How long a session may be idle before it is forgotten.
    pub ttl: Text<Duration>,
}

impl Default for SessionsSection {
    fn default() -> Self {
        let SessionSettings { bytes_max, ttl } = SessionSettings::default();
        let headers = proxy::default_session_headers();
        Self {
            headers: headers.into_iter().map(|it| Some(Text(it))).collect(),
            table_mib: bytes_max / MIB,
            ids_mib: 16,
            ttl: Text(ttl),
        }
    }
}

impl SessionsSection {
    pub(in crate::config) fn settings(&self) -> SessionSettings {
        SessionSettings { bytes_max: self.table_mib.saturating_mul(MIB), ttl: self.ttl.0 }
    }
}

/// How often a request may go to another replica before its first byte.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RetriesSection {
    /// Tries of one request in all, the first included.
    #[schemars(range(min = 1, max = 16))]
    pub tries_max: u32,
    /// Retries allowed per request that arrives, in the long run.
    /// This keeps retries from melting a fleet that is already in trouble.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub share: f64,
    /// Retries allowed in a burst on top of that.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub reserve: u32,
}

impl Default for RetriesSection {
    fn default() -> Self {
        let RetrySettings { tries_max, share, reserve } = RetrySettings::default();
        Self { tries_max, share, reserve }
    }
}

impl From<RetriesSection> for RetrySettings {
    fn from(RetriesSection { tries_max, share, reserve }: RetriesSection) -> Self {
        Self { tries_max, share, reserve }
    }
}

/// When a failing replica is taken out, and for how long.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct BreakerSection {
    /// Failures in a row, of requests or of health checks, after which the replica is out.
    #[schemars(range(min = 1, max = 1000))]
    pub failures_max: u32,
    /// How long it is out before one request may try it again; doubles at each further failure.
    pub open: Text<Duration>,
    /// Where the doubling ends.
    pub open_max: Text<Duration>,
}

impl Default for BreakerSection {
    fn default() -> Self {
        let BreakerSettings { failures_max, open, open_max } = BreakerSettings::default();
        Self { failures_max, open: Text(open), open_max: Text(open_max) }
    }
}

impl From<BreakerSection> for BreakerSettings {
    fn from(raw: BreakerSection) -> Self {
        Self { failures_max: raw.failures_max, open: raw.open.0, open_max: raw.open_max.0 }
    }
}

/// How replicas are asked whether they live and how loaded they are.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct HealthSection {
    /// Path that answers 200 when the replica can serve.
    pub path: Text<PathAndQuery>,
    /// Time between two checks of one replica.
    pub interval: Text<Duration>,
    /// How long a check may take. A busy replica answers late: be generous.
    pub timeout: Text<Duration>,
    /// Time between two looks at an engine's metrics page, for its queue and its KV memory.
    /// A replica without one is asked less and less often.
    pub report_interval: Text<Duration>,
    /// How long an idle replica may show no sign before it is asked for one token, end to end.
    pub token_after: Text<Duration>,
}

impl Default for HealthSection {
    fn default() -> Self {
        let ProbeSettings { path, interval, timeout, report_interval } = ProbeSettings::default();
        let path = path.parse().expect("the default is a path");
        Self {
            path: Text(path),
            interval: Text(interval),
            timeout: Text(timeout),
            report_interval: Text(report_interval),
            token_after: Text(WatchSettings::default().idle),
        }
    }
}

impl From<HealthSection> for ProbeSettings {
    fn from(raw: HealthSection) -> Self {
        Self {
            path: raw.path.0.to_string(),
            interval: raw.interval.0,
            timeout: raw.timeout.0,
            report_interval: raw.report_interval.0,
        }
    }
}

/// Which decisions are kept, for `cleave explain` and `/explain` on the admin port.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ExplainSection {
    /// The share of requests whose decision is kept with its reasons. Requests that failed, were tried again,
    /// were slow, held or moved are always kept, with what is known of them.
    /// One whose header `x-cleave-explain` carries the admin token is always kept, and its answer shows
    /// the decision in `x-cleave-decision`.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample: f64,
    /// How many decisions of each kind are kept; the oldest makes room. Each takes a few KiB at most.
    #[schemars(range(min = 1, max = 100_000))]
    pub kept_max: usize,
    /// Lets any client have its decision kept, by the header `x-cleave-explain: 1`. Its answer then shows
    /// what is its own: neither replicas nor what is cached there for others.
    pub clients: bool,
}

impl Default for ExplainSection {
    fn default() -> Self {
        let proxy::ExplainSettings { sample, kept_max, clients, token: _ } =
            proxy::ExplainSettings::default();
        Self { sample, kept_max, clients }
    }
}

/// What is done about requests that bring replicas down.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct QuarantineSection {
    /// Whether such requests are found and refused at all.
    pub enabled: bool,
    /// How long a request is refused that was in flight when two replicas went down.
    pub ttl: Text<Duration>,
}

impl Default for QuarantineSection {
    fn default() -> Self {
        let QuarantineSettings { enabled, ttl } = QuarantineSettings::default();
        Self { enabled, ttl: Text(ttl) }
    }
}

impl From<QuarantineSection> for QuarantineSettings {
    fn from(raw: QuarantineSection) -> Self {
        Self { enabled: raw.enabled, ttl: raw.ttl.0 }
    }
}

/// What the router says of itself.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct LogSection {
    /// Lines for people, or one JSON object per line for machines.
    pub format: Text<LogFormat>,
    /// The least level that is logged, or a filter by module.
    pub level: Text<LogFilter>,
    /// Whether every request gets a line when it ends.
    pub access: bool,
}

impl Default for LogSection {
    fn default() -> Self {
        let telemetry::LogSettings { format, level, access_log } =
            telemetry::LogSettings::default();
        Self { format: Text(format), level: Text(LogFilter(level)), access: access_log }
    }
}

impl From<LogSection> for telemetry::LogSettings {
    fn from(raw: LogSection) -> Self {
        Self { format: raw.format.0, level: raw.level.0.0, access_log: raw.access }
    }
}
