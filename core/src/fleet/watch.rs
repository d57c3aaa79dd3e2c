//! What is known of how a replica does its work, beside what is booked there.

use std::time::Duration;

use crate::domain::{Moment, Report};

use super::{Tempo, Vigil};

/// For so long a report is believed that shows an engine at work; one that never changes again is
/// frozen, and says nothing.
const WORKING_FOR: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    pub vigil: Vigil,
    pub tempo: Tempo,
    /// When it was last asked for a token, and how long that may take; `None` once it is told.
    pub asked: Option<(Moment, Duration)>,
    pub last_asked: Moment,
    /// Whether nobody listened at its address when it was last looked at.
    pub was_refused: bool,
    /// When its engine was last seen at work by its reports.
    worked_at: Option<Moment>,
}

impl Watch {
    /// Compares what an engine says with what it said before; returns whether it was at work.
    pub fn on_report(&mut self, report: &Report, before: Option<&Report>) -> bool {
        // What waits may grow in front of a hung engine; what it holds and runs does not change.
        let worked = before.is_some_and(|it| {
            let moved = (it.kv_used_share - report.kv_used_share).abs();
            it.running != report.running || f64::EPSILON < moved
        });
        if worked {
            self.worked_at = Some(report.taken_at);
        }
        worked
    }

    pub fn is_working(&self, now: Moment) -> bool {
        self.worked_at.is_some_and(|at| now.since(at) < WORKING_FOR)
    }
}
