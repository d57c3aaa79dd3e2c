//! May this replica be sent anything? A breaker per replica, closed by success, opened by failures
//! in a row, tried again by one request after a pause that doubles. A probe that a busy replica
//! misses is no failure while bytes still come from it: long prefills make engines slow to answer.

use std::time::Duration;

use crate::domain::Moment;

/// When a replica is taken out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row, of requests or of probes, after which the replica is out.
    pub failures_max: u32,
    /// How long it is out before one request may try it again; doubles at each further failure.
    pub open: Duration,
    /// Where the doubling ends.
    pub open_max: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures_max: 3, open: Duration::from_secs(2), open_max: Duration::from_secs(60) }
    }
}

/// Why a replica is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It cannot be reached, or hangs up.
    Unreachable,
    /// It answers requests with errors that another replica does not give.
    Failing,
    /// It does not answer its health check, and nothing else comes from it either.
    Unhealthy,
}

impl Reason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Failing => "failing",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// What a health check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Passed,
    /// It could not connect, or was answered with an error.
    Failed,
    /// No answer in time, and this is when the replica last sent a byte of anything.
    TimedOut {
        asked_at: Moment,
        last_byte_at: Option<Moment>,
    },
}

/// Whether requests may go to the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Known, but nothing has come from it yet. Used only when nobody else is there.
    Joining,
    Up,
    Out {
        reason: Reason,
        until: Moment,
    },
    /// One request is on its way to find out whether it is back.
    Trial {
        reason: Reason,
    },
}

impl Standing {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Out { .. } => "out",
            Self::Trial { .. } => "trial",
        }
    }

    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Joining | Self::Up => None,
            Self::Out { reason, .. } | Self::Trial { reason } => Some(reason),
        }
    }
}

/// The state machine of one replica.
#[derive(Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    standing: Standing,
    /// Failures since the last success.
    failures: u32,
    /// How often it has been put out since it was last up.
    strikes: u32,
}

impl Breaker {
    pub const fn new(settings: BreakerSettings) -> Self {
        Self { settings, standing: Standing::Joining, failures: 0, strikes: 0 }
    }

    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// Tells whether a request may go there as a matter of course, or as the one trial.
    pub fn admits(&self, now: Moment) -> bool {
        match self.standing {
            Standing::Up => true,
            Standing::Out { until, .. } => until <= now,
            Standing::Joining | Standing::Trial { .. } => false,
        }
    }

    /// Notes that a request was sent; on a replica that is out, that request is the trial.
    pub fn on_sent(&mut self) {
        if let Standing::Out { reason, .. } = self.standing {
            self.standing = Standing::Trial { reason };
        }
    }

    /// Notes an answer: whatever it was before, the replica is up.
    pub fn on_success(&mut self) {
        self.standing = Standing::Up;
        self.failures = 0;
        self.strikes = 0;
    }

    pub fn on_failure(&mut self, now: Moment, reason: Reason) {
        self.failures = self.failures.saturating_add(1);
        match self.standing {
            Standing::Up if self.failures < self.settings.failures_max => {}
            Standing::Up | Standing::Trial { .. } => self.put_out(now, reason),
            // Late news of requests sent before it was put out changes nothing.
            Standing::Joining | Standing::Out { .. } => {}
        }
    }

    /// Notes that the trial was called off before it showed anything.
    pub fn on_trial_abandoned(&mut self, now: Moment) {
        if let Standing::Trial { reason } = self.standing {
            self.standing = Standing::Out { reason, until: now };
        }
    }

    pub fn on_probe(&mut self, now: Moment, probe: Probe) {
        match probe {
            Probe::Passed => self.on_probe_passed(now),
            Probe::Failed => self.on_failure(now, Reason::Unhealthy),
            Probe::TimedOut { asked_at, last_byte_at } => {
                let alive = last_byte_at.is_some_and(|at| asked_at <= at);
                if !alive {
                    self.on_failure(now, Reason::Unhealthy);
                }
            }
        }
    }

    fn on_probe_passed(&mut self, now: Moment) {
        match self.standing {
            Standing::Joining => self.on_success(),
            // A health check says nothing of a replica that fails requests: that pause runs on.
            Standing::Out {
                reason: reason @ (Reason::Unreachable | Reason::Unhealthy), ..
            } => {
                self.standing = Standing::Out { reason, until: now };
            }
            Standing::Out { reason: Reason::Failing, .. }
            | Standing::Trial { .. }
            | Standing::Up => {}
        }
    }

    fn put_out(&mut self, now: Moment, reason: Reason) {
        let doublings = self.strikes.min(16);
        let pause = (self.settings.open * (1 << doublings)).min(self.settings.open_max);
        self.strikes = self.strikes.saturating_add(1);
        self.standing = Standing::Out { reason, until: now + pause };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn up() -> Breaker {
        let mut breaker = Breaker::new(BreakerSettings::default());
        breaker.on_probe(at(0), Probe::Passed);
        breaker
    }

    fn out(reason: Reason) -> Breaker {
        let mut breaker = up();
        (0..3).for_each(|_| breaker.on_failure(at(10), reason));
        breaker
    }

    #[test]
    fn a_new_replica_waits_for_its_first_sign_of_life() {
        let mut breaker = Breaker::new(BreakerSettings::default());
        breaker.on_probe(at(0), Probe::Failed);
        assert_eq!(breaker.standing(), Standing::Joining);
        assert!(!breaker.admits(at(1)));
        breaker.on_probe(at(2), Probe::Passed);
        assert!(breaker.admits(at(2)));
    }

    #[test]
    fn failures_in_a_row_put_it_out_and_a_success_between_does_not() {
        let mut breaker = up();
        breaker.on_failure(at(1), Reason::Unreachable);
        breaker.on_failure(at(1), Reason::Unreachable);
        breaker.on_success();
        breaker.on_failure(at(1), Reason::Unreachable);
        breaker.on_failure(at(1), Reason::Unreachable);
        assert_eq!(breaker.standing(), Standing::Up);
        breaker.on_failure(at(1), Reason::Unreachable);
        assert_eq!(breaker.standing(), Standing::Out { reason: Reason::Unreachable, until: at(3) });
    }

    #[test]
    fn one_request_tries_it_after_a_pause_that_doubles() {
        let mut breaker = out(Reason::Failing);
        assert!(!breaker.admits(at(11)));
        assert!(breaker.admits(at(12)));
        breaker.on_sent();
        assert!(!breaker.admits(at(12)), "one trial at a time");
        breaker.on_failure(at(13), Reason::Failing);
        assert!(!breaker.admits(at(16)));
        assert!(breaker.admits(at(17)));
        breaker.on_sent();
        breaker.on_success();
        assert!(breaker.admits(at(17)));
    }

    #[test]
    fn the_pause_has_an_end() {
        let mut breaker = up();
        for _ in 0..100 {
            breaker.on_failure(at(0), Reason::Failing);
            breaker.on_sent();
        }
        breaker.on_failure(at(0), Reason::Failing);
        assert!(breaker.admits(at(60)));
    }

    #[test]
    fn an_abandoned_trial_leaves_the_place_free() {
        let mut breaker = out(Reason::Failing);
        breaker.on_sent();
        breaker.on_trial_abandoned(at(20));
        assert!(breaker.admits(at(20)));
    }

    #[test]
    fn a_passed_probe_ends_the_pause_of_a_lost_replica_but_not_of_a_failing_one() {
        let mut lost = out(Reason::Unreachable);
        lost.on_probe(at(11), Probe::Passed);
        assert!(lost.admits(at(11)));
        let mut failing = out(Reason::Failing);
        failing.on_probe(at(11), Probe::Passed);
        assert!(!failing.admits(at(11)));
    }

    #[test]
    fn a_busy_replica_passes_a_probe_it_misses_while_bytes_come_from_it() {
        let probe = |last_byte_at| Probe::TimedOut { asked_at: at(5), last_byte_at };
        let mut busy = up();
        (0..9).for_each(|_| busy.on_probe(at(10), probe(Some(at(6)))));
        assert_eq!(busy.standing(), Standing::Up);
        for last_byte_at in [None, Some(at(4))] {
            let mut silent = up();
            (0..3).for_each(|_| silent.on_probe(at(10), probe(last_byte_at)));
            assert_eq!(silent.standing().reason(), Some(Reason::Unhealthy));
        }
    }
}
