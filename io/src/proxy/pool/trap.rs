//! For tests: has the brain panic at an event of some kind, as a mistake in it would.

use cleave_core::brain::Event;

/// When a panic comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum When {
    /// Nothing was changed yet.
    Before,
    /// All is changed, and nothing was told.
    After,
}

/// Panics that are to come.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Trap {
    /// The kind of event, when, how many of its kind pass before, and how many panics come then.
    pub(in crate::proxy) set: Option<(&'static str, When)>,
    pub(in crate::proxy) passes: u32,
    pub(in crate::proxy) panics: u32,
    /// Panics that building a brain anew brings.
    pub(in crate::proxy) rebuilds: u32,
    /// Panics that came.
    pub(in crate::proxy) sprung: u32,
}

/// All kinds of events, and time.
pub(in crate::proxy) const KINDS: [&str; 19] = [
    "arrived",
    "failed",
    "answering",
    "streamed",
    "ended",
    "joined",
    "weighed",
    "classed",
    "leaving",
    "contracted",
    "probed",
    "ordered",
    "reported",
    "sign",
    "unawaited",
    "restarted",
    "heard",
    "parted",
    "time",
];

impl Trap {
    pub(in crate::proxy) fn new(kind: &'static str, when: When, passes: u32, panics: u32) -> Self {
        Self { set: Some((kind, when)), passes, panics, ..Self::default() }
    }

    pub(super) fn before(&mut self, event: &Event) -> &'static str {
        let kind = kind_of(event);
        self.spring(kind, When::Before);
        kind
    }

    pub(super) fn after(&mut self, kind: &'static str) {
        self.spring(kind, When::After);
    }

    pub(super) fn at_time(&mut self) {
        self.spring("time", When::Before);
    }

    pub(super) fn at_rebuild(&mut self) {
        if 0 < self.rebuilds {
            self.rebuilds -= 1;
            panic!("a trap at rebuilding");
        }
    }

    fn spring(&mut self, kind: &'static str, when: When) {
        if self.set != Some((kind, when)) || self.panics == 0 {
            return;
        }
        if 0 < self.passes {
            self.passes -= 1;
            return;
        }
        self.panics -= 1;
        self.sprung += 1;
        panic!("a trap at {kind}");
    }
}

fn kind_of(event: &Event) -> &'static str {
    match event {
        Event::Arrived { .. } => "arrived",
        Event::Failed { .. } => "failed",
        Event::Answering { .. } => "answering",
        Event::Streamed { .. } => "streamed",
        Event::Ended { .. } => "ended",
        Event::Joined { .. } => "joined",
        Event::Weighed { .. } => "weighed",
        Event::Classed { .. } => "classed",
        Event::Leaving { .. } => "leaving",
        Event::Contracted { .. } => "contracted",
        Event::Probed { .. } => "probed",
        Event::Ordered(_) => "ordered",
        Event::Reported { .. } => "reported",
        Event::Sign { .. } => "sign",
        Event::Unawaited { .. } => "unawaited",
        Event::Restarted { .. } => "restarted",
        Event::Heard { .. } => "heard",
        Event::Parted { .. } => "parted",
        Event::Recalled { .. } => "recalled",
        Event::Elected { .. } => "elected",
        Event::Scaling { .. } => "scaling",
    }
}
