//! May this replica be sent anything? A breaker per replica, closed by success, opened by failures
//! in a row or by a hang, tried again by one request after a pause that doubles, then filled by a
//! trickle that doubles too. A probe that a busy replica misses is no failure while bytes still come
//! from it: long prefills make engines slow to answer. A replica that flaps finds its pauses growing,
//! because only a long time of being up is forgiveness.

use std::time::Duration;

use crate::domain::Moment;

/// When a replica is taken out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row, of requests or of probes, after which the replica is out.
    pub failures_max: u32,
    /// How long it is out before one request may try it again; doubles at each further failure.
    pub open: Duration,
    /// Where the doubling ends; also how long it must be up for its failures to be forgotten.
    pub open_max: Duration,
}

/// What a replica may have in flight after the request that showed it is back; doubles at each answer.
const TRICKLE_FIRST: u32 = 2;
/// Beyond this it is filled like any other.
const TRICKLE_MAX: u32 = 64;

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
    /// It has work and has shown no sign of it for longer than that work explains.
    Hung,
    /// It writes several times as slowly as its peers.
    Slow,
    /// It lists no model that its pool serves: perhaps another process was given its address.
    WrongModel,
}

impl Reason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Failing => "failing",
            Self::Unhealthy => "unhealthy",
            Self::Hung => "hung",
            Self::Slow => "slow",
            Self::WrongModel => "wrong_model",
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
    /// It could not connect, or was answered with an error.
    Failed,
    /// Nobody listens at its address: the process is gone.
    Refused,
    /// Asked for a token, it gave none in time, and this is when it last sent a byte of anything.
    Mute { asked_at: Moment, last_byte_at: Option<Moment> },
    /// No answer in time, and this is when the replica last sent a byte of anything.
    TimedOut { asked_at: Moment, last_byte_at: Option<Moment> },
}

/// Whether requests may go to the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Known, but nothing has come from it yet. Used only when nobody else is there.
    Joining,
    Up,
    /// Something is wrong with it, perhaps. Used only when nobody else is there.
    Suspect {
        reason: Reason,
    },
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

/// The state machine of one replica.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    standing: Standing,
    /// Failures since the last success.
    failures: u32,
    /// How often it has been put out since it was last up for long.
    strikes: u32,
    up_since: Moment,
    out_since: Moment,
    /// Whether a hung one has given a token since, or cannot be asked for one.
    proved: bool,
    /// What it may have in flight while it is filled again; `None` for any number.
    room: Option<u32>,
}

impl Breaker {
    pub const fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            standing: Standing::Joining,
            failures: 0,
            strikes: 0,
            up_since: Moment::ZERO,
            out_since: Moment::ZERO,
            proved: false,
            room: None,
        }
    }

    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// What may be in flight there while it is filled again; `None` for any number.
    pub const fn room(&self) -> Option<u32> {
        self.room
    }

    /// Tells whether a request may go there as a matter of course, or as the one trial.
    pub fn admits(&self, now: Moment) -> bool {
        match self.standing {
            Standing::Up => true,
            // A trial would only fail too: first it must give a token, or list the right model.
            Standing::Out { reason: Reason::Hung | Reason::WrongModel, until } => {
                until <= now && self.proved
            }
            Standing::Out { until, .. } => until <= now,
            Standing::Joining | Standing::Suspect { .. } | Standing::Trial { .. } => false,
        }
    }

    /// Tells whether it hung, its pause is over, and it should be asked for a token.
    pub fn wants_proof(&self, now: Moment) -> bool {
        matches!(self.standing, Standing::Out { reason: Reason::Hung, until } if until <= now)
            && !self.proved
    }

    /// Notes that a request was sent; on a replica that is out, that request is the trial.
    pub fn on_sent(&mut self) {
        if let Standing::Out { reason, .. } = self.standing {
            self.standing = Standing::Trial { reason };
        }
    }

    /// Notes an answer: whatever it was before, the replica is up. Only where nobody listens, what
    /// still comes was on its way before, and says nothing of who is there now.
    pub fn on_success(&mut self, now: Moment) {
        if let Standing::Out { reason: Reason::Unreachable, .. } = self.standing {
            return;
        }
        self.failures = 0;
        match self.standing {
            Standing::Up => {
                self.room = self.room.map(|it| 2 * it).filter(|it| *it <= TRICKLE_MAX);
                return;
            }
            Standing::Joining => self.up_since = now,
            Standing::Suspect { .. } => {}
            Standing::Out { .. } | Standing::Trial { .. } => {
                self.up_since = now;
                self.room = Some(TRICKLE_FIRST);
            }
        }
        self.standing = Standing::Up;
    }

    pub fn on_failure(&mut self, now: Moment, reason: Reason) {
        self.failures = self.failures.saturating_add(1);
        match self.standing {
            Standing::Up | Standing::Suspect { .. }
                if self.failures < self.settings.failures_max => {}
            Standing::Up | Standing::Suspect { .. } | Standing::Trial { .. } => {
                self.put_out(now, reason);
            }
            // Late news of requests sent before it was put out changes nothing.
            Standing::Joining | Standing::Out { .. } => {}
        }
    }

    /// Notes that something seems wrong, which a sign of life takes back.
    pub fn suspect(&mut self, reason: Reason) {
        if self.standing == Standing::Up {
            self.standing = Standing::Suspect { reason };
        }
    }

    /// Notes a sign of life: it is suspected no more.
    pub fn on_sign(&mut self) {
        if let Standing::Suspect { .. } = self.standing {
            self.standing = Standing::Up;
        }
    }

    /// Puts it out at once, because there is no doubt.
    pub fn condemn(&mut self, now: Moment, reason: Reason) {
        match self.standing {
            Standing::Up | Standing::Suspect { .. } | Standing::Trial { .. } => {
                self.put_out(now, reason);
            }
            Standing::Joining | Standing::Out { .. } => {}
        }
    }

    /// Notes that a new process answers there: its cache is cold, so it is filled slowly.
    pub fn on_restarted(&mut self) {
        self.room = Some(TRICKLE_FIRST);
    }

    /// Notes that the trial was called off before it showed anything.
    pub fn on_trial_abandoned(&mut self, now: Moment) {
        if let Standing::Trial { reason } = self.standing {
            self.standing = Standing::Out { reason, until: now };
        }
    }

    pub fn on_probe(&mut self, now: Moment, probe: Probe) {
        let lives =
            |asked_at, last_byte_at: Option<Moment>| last_byte_at.is_some_and(|at| asked_at <= at);
        match probe {
            Probe::Passed => self.on_probe_passed(now),
            Probe::Generated => self.on_generated(now),
            Probe::Unable => {
                self.proved |= matches!(self.standing, Standing::Out { reason: Reason::Hung, .. });
            }
            Probe::Stranger => self.condemn(now, Reason::WrongModel),
            Probe::Failed | Probe::Refused => self.on_failure(now, Reason::Unhealthy),
            Probe::TimedOut { asked_at, last_byte_at } => {
                if !lives(asked_at, last_byte_at) {
                    self.on_failure(now, Reason::Unhealthy);
                }
            }
            Probe::Mute { asked_at, last_byte_at } => {
                if lives(asked_at, last_byte_at) {
                    return;
                }
                match self.standing {
                    // A question from before it was put out says nothing new.
                    Standing::Out { reason: Reason::Hung, .. } if self.out_since <= asked_at => {
                        self.put_out(now, Reason::Hung);
                    }
                    Standing::Joining
                    | Standing::Up
                    | Standing::Suspect { .. }
                    | Standing::Out { .. }
                    | Standing::Trial { .. } => self.condemn(now, Reason::Hung),
                }
            }
        }
    }

    fn on_generated(&mut self, now: Moment) {
        self.on_sign();
        if let Standing::Out { reason: Reason::Hung, .. } = self.standing {
            self.proved = true;
            self.standing = Standing::Out { reason: Reason::Hung, until: now };
        }
    }

    fn on_probe_passed(&mut self, now: Moment) {
        match self.standing {
            Standing::Joining => self.on_success(now),
            Standing::Out { reason: reason @ Reason::WrongModel, .. } => {
                self.proved = true;
                self.standing = Standing::Out { reason, until: now };
            }
            // Not of one that was lost again and again: it must stay away for its whole pause.
            Standing::Out {
                reason: reason @ (Reason::Unreachable | Reason::Unhealthy), ..
            } if self.strikes <= 1 => {
                self.standing = Standing::Out { reason, until: now };
            }
            // A health check says nothing of a replica that fails requests, hangs or is slow: that
            // pause runs on.
            Standing::Out { .. }
            | Standing::Trial { .. }
            | Standing::Suspect { .. }
            | Standing::Up => {}
        }
    }

    fn put_out(&mut self, now: Moment, reason: Reason) {
        let was_up = matches!(self.standing, Standing::Up | Standing::Suspect { .. });
        if was_up && self.settings.open_max <= now.since(self.up_since) {
            self.strikes = 0;
        }
        let doublings = self.strikes.min(16);
        let pause = (self.settings.open * (1 << doublings)).min(self.settings.open_max);
        self.strikes = self.strikes.saturating_add(1);
        self.proved = false;
        self.out_since = now;
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
    fn what_was_on_its_way_does_not_bring_back_one_that_is_gone() {
        let mut gone = out(Reason::Unreachable);
        gone.on_success(at(10));
        assert_eq!(gone.standing(), Standing::Out { reason: Reason::Unreachable, until: at(12) });
        gone.on_sent();
        gone.on_success(at(13));
        assert_eq!(gone.standing(), Standing::Up, "it answered its trial");
        let mut hung = out(Reason::Hung);
        hung.on_success(at(10));
        assert_eq!(hung.standing(), Standing::Up, "it lives after all");
    }

    #[test]
    fn failures_in_a_row_put_it_out_and_a_success_between_does_not() {
        let mut breaker = up();
        breaker.on_failure(at(1), Reason::Unreachable);
        breaker.on_failure(at(1), Reason::Unreachable);
        breaker.on_success(at(1));
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
        breaker.on_success(at(17));
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

    #[test]
    fn a_suspect_takes_nothing_new_until_it_gives_a_sign() {
        let mut breaker = up();
        breaker.suspect(Reason::Hung);
        assert_eq!((breaker.standing().as_str(), breaker.admits(at(1))), ("suspect", false));
        breaker.on_sign();
        assert!(breaker.admits(at(1)));
    }

    #[test]
    fn a_hung_one_is_asked_for_a_token_before_it_is_tried() {
        let mut breaker = up();
        breaker.condemn(at(10), Reason::Hung);
        breaker.on_probe(at(11), Probe::Passed);
        assert!(!breaker.admits(at(11)), "hung engines pass health checks");
        assert!(!breaker.wants_proof(at(11)) && breaker.wants_proof(at(12)));
        breaker.on_probe(at(13), Probe::Mute { asked_at: at(12), last_byte_at: Some(at(9)) });
        assert!(!breaker.wants_proof(at(16)) && breaker.wants_proof(at(17)));
        let mut unable = up();
        unable.condemn(at(10), Reason::Hung);
        breaker.on_probe(at(17), Probe::Generated);
        unable.on_probe(at(12), Probe::Unable);
        assert!(breaker.admits(at(17)) && unable.admits(at(12)));
    }

    #[test]
    fn a_busy_replica_may_miss_the_request_for_a_token_while_bytes_come_from_it() {
        let mut busy = up();
        busy.on_probe(at(20), Probe::Mute { asked_at: at(10), last_byte_at: Some(at(11)) });
        assert_eq!(busy.standing(), Standing::Up);
        busy.on_probe(at(20), Probe::Mute { asked_at: at(10), last_byte_at: Some(at(9)) });
        assert_eq!(busy.standing().reason(), Some(Reason::Hung));
    }

    #[test]
    fn one_that_comes_back_is_filled_by_a_trickle() {
        let mut breaker = out(Reason::Failing);
        breaker.on_sent();
        let mut rooms = Vec::new();
        for _ in 0..7 {
            breaker.on_success(at(12));
            rooms.push(breaker.room());
        }
        assert_eq!(rooms, [Some(2), Some(4), Some(8), Some(16), Some(32), Some(64), None]);
    }

    #[test]
    fn one_that_flaps_stays_away_longer_each_time() {
        let mut breaker = up();
        let mut now = 100;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            (0..3).for_each(|_| breaker.on_failure(at(now), Reason::Unreachable));
            let back = (now..now + 100).find(|second| breaker.admits(at(*second))).unwrap();
            pauses.push(back - now);
            breaker.on_probe(at(back), Probe::Passed);
            breaker.on_sent();
            breaker.on_success(at(back));
            now = back + 5;
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
        now += 60;
        (0..3).for_each(|_| breaker.on_failure(at(now), Reason::Unreachable));
        assert!(breaker.admits(at(now + 2)), "up for long, it is forgiven");
    }

    #[test]
    fn a_passed_probe_does_not_help_one_that_flaps() {
        let mut breaker = out(Reason::Unreachable);
        breaker.on_sent();
        breaker.on_success(at(12));
        (0..3).for_each(|_| breaker.on_failure(at(13), Reason::Unreachable));
        breaker.on_probe(at(14), Probe::Passed);
        assert!(!breaker.admits(at(16)) && breaker.admits(at(17)));
    }
}
