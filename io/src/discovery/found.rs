//! What discovery tells: which replicas are there, with all that their source says of them, and what is wrong with
//! the source itself.

use std::sync::Arc;

use crate::replicas::Origin;

/// A replica that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundReplica {
    pub origin: Origin,
    /// Its share of sessions, if the source says it.
    pub weight: f64,
    /// The class of its hardware, if the source says it.
    pub class: Option<String>,
    pub zone: Option<String>,
    /// What runs there, for sources that know: another one at the same address is another replica.
    pub unit: Option<Arc<str>>,
    /// What its orchestrator calls it.
    pub name: Option<Arc<str>>,
    /// Which process of it runs: another one has a cold cache.
    pub process: Option<Arc<str>>,
    /// Whether it may be sent new work.
    pub is_ready: bool,
}

impl FoundReplica {
    /// A replica of which only the address is known.
    pub(super) const fn at(origin: Origin) -> Self {
        let (class, zone, unit, name, process) = (None, None, None, None, None);
        Self { origin, weight: 1.0, class, zone, unit, name, process, is_ready: true }
    }
}

/// What a source has to say.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEvent {
    /// These are all replicas that are there.
    Found(Vec<FoundReplica>),
    /// The source cannot be read, and nothing changes. Told at the first failure, then after twice as many each time.
    Failed(SourceTrouble),
    /// The source is read, but something that it says cannot be meant.
    Doubtful(SourceTrouble),
    /// The source is read again.
    Mended,
}

/// What is wrong with a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTrouble {
    /// One word for it, for alerts.
    pub word: &'static str,
    /// What was seen and what to do, for people.
    pub detail: String,
}

impl SourceTrouble {
    pub(super) fn new(word: &'static str, detail: impl Into<String>) -> Self {
        Self { word, detail: detail.into() }
    }
}

/// Decides which failures in a row are told.
#[derive(Debug, Default)]
pub(super) struct Failures(u32);

impl Failures {
    /// Counts one more; tells whether it is to be told.
    pub(super) const fn on_failure(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        self.0.is_power_of_two()
    }

    /// Notes that it works; tells whether it did not before.
    pub(super) const fn on_success(&mut self) -> bool {
        std::mem::replace(&mut self.0, 0) != 0
    }

    #[cfg(feature = "kubernetes")]
    pub(super) const fn count(&self) -> u32 {
        self.0
    }
}
