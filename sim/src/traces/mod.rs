//! Where requests come from: recorded traces, tenants composed over recorded content, generators. Everything
//! becomes a [`Workload`] that the world pulls one request at a time, in virtual time and by seed.
//! This room never judges a policy and never runs an engine, and it keeps no text: prompts are
//! block ids, which is all a prefix cache can see.

mod arrivals;
mod draw;
mod format;
mod group;
mod lengths;
mod lines;
mod mix;
mod player;
mod prompt;
mod readers;
mod recording;
mod replay;
mod request;
mod seen;
mod source;
mod summary;
mod synthetic;
mod tenants;
mod ties;
mod workload;

#[cfg(test)]
mod tests;

pub use draw::Spread;
pub use format::{Format, UnknownName};
pub use lines::TraceError;
pub use mix::{ClassShare, Mix};
pub use prompt::{Prompt, Run, Runs};
pub use readers::servegen::{Client, Clients, Pattern, Window};
pub use recording::{RecordedRequest, Recording};
pub use replay::{Loop, Replay, Scale, Starts};
pub use request::{Class, Request, Session, Tenant, Ticket, Turn};
pub use seen::Seen;
pub use source::{Requests, Sessions, Source};
pub use summary::{Lengths, TraceSummary};
pub use synthetic::{HeavyTail, MultiTurn, SharedPrefix, Stage, SubAgents, Synthetic, presets};
pub use workload::{Workload, format_of};
