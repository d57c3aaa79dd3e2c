//! May this replica be sent anything? A breaker per replica, closed by success, opened by failures
//! in a row or by a hang. After a pause that doubles the router asks it for one token; a replica that
//! gives one is filled by a trickle that doubles too. Clients' requests are no trials, because a client
//! could make them fail; only a replica that cannot be asked for a token is tried by one request. A
//! probe that a busy replica misses is no failure while bytes still come from it: long prefills make
//! engines slow to answer. A replica that flaps finds its pauses growing, because only a long time of
//! being up is forgiveness.
//!
//! A lost connection is no failure yet. It is one once the question for a token fails too; a token
//! shows that the request broke its own connection.

mod standing;

use std::time::Duration;

use crate::domain::Moment;

pub use standing::{Probe, Reason, Standing};

/// When a replica is taken out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row, of requests or of probes, after which the replica is out.
    pub failures_max: u32,
    /// How long it is out before it is tried again; doubles each time it is put out.
    pub open: Duration,
    /// Where the doubling ends; also how long it must be up for its failures to be forgotten.
    pub open_max: Duration,
}

/// What a replica may have in flight after the request that showed it is back; doubles at each answer.
const TRICKLE_FIRST: u32 = 2;
/// It is put out for one death within this time.
const ONE_DEATH: Duration = Duration::from_secs(2);
/// How long it is out when a request brought it down: it comes back as soon as it is started again.
const EXCUSED_PAUSE: Duration = Duration::from_millis(500);
/// From this many on there is no limit on what it has in flight.
const TRICKLE_MAX: u32 = 64;

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures_max: 3, open: Duration::from_secs(2), open_max: Duration::from_secs(60) }
    }
}

/// The state machine of one replica.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    standing: Standing,
    /// Failures since the last success.
    failures: u32,
    /// Connections lost since the last success or token, of which the cause is not known yet.
    losses: u32,
    /// How often it has been put out since it was last up for long.
    strikes: u32,
    up_since: Moment,
    out_since: Moment,
    /// Whether one request may try it: it cannot be asked for a token, or lists the right model again.
    proved: bool,
    /// Whether it could not be asked for a token when it was asked last.
    is_unable: bool,
    /// When it was last shown that a request brought it down.
    excused_at: Option<Moment>,
    /// What it may have in flight while it is filled again; `None` for any number.
    room: Option<u32>,
}

impl Breaker {
    pub const fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            standing: Standing::Joining,
            failures: 0,
            losses: 0,
            strikes: 0,
            up_since: Moment::ZERO,
            out_since: Moment::ZERO,
            proved: false,
            is_unable: false,
            excused_at: None,
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

    /// Tells whether it could not be asked for a token when it was asked last.
    pub const fn is_unable(&self) -> bool {
        self.is_unable
    }

    /// Tells whether a request may go there as a matter of course, or as the one trial of a replica that
    /// cannot be asked for a token.
    pub fn admits(&self, now: Moment) -> bool {
        match self.standing {
            Standing::Up => true,
            Standing::Out { until, .. } => until <= now && self.proved,
            Standing::Joining | Standing::Suspect { .. } | Standing::Trial { .. } => false,
        }
    }

    /// Tells whether a request may go there when no other replica is left: its pause is over, though it
    /// has not given a token yet. Where a request would only fail too, it first must.
    pub fn admits_at_need(&self, now: Moment) -> bool {
        let is_hopeless = matches!(
            self.standing,
            Standing::Out { reason, .. } if reason == Reason::Hung || reason.is_unfit()
        );
        let is_rested = matches!(self.standing, Standing::Out { until, .. } if until <= now);
        self.admits(now) || is_rested && !is_hopeless
    }

    /// Tells whether a token could bring it back, whatever is left of its pause.
    pub fn may_come_back(&self) -> bool {
        let reason = match self.standing {
            Standing::Out { reason, .. } => Some(reason),
            Standing::Joining
            | Standing::Up
            | Standing::Suspect { .. }
            | Standing::Trial { .. } => None,
        };
        !self.proved && reason.is_some_and(|it| !it.is_unfit())
    }

    /// Tells whether it should be asked for a token: its pause is over, or it lost connections.
    pub fn wants_proof(&self, now: Moment) -> bool {
        match self.standing {
            Standing::Out { reason, until } => until <= now && !self.proved && !reason.is_unfit(),
            // A trial lasts as long as its client keeps the request open.
            Standing::Trial { .. } => !self.proved,
            Standing::Up | Standing::Suspect { .. } => 0 < self.losses,
            Standing::Joining => false,
        }
    }

    /// Notes that a request was sent; on a replica that is out, that request is the trial.
    pub fn on_sent(&mut self) {
        if let Standing::Out { reason, .. } = self.standing {
            self.standing = Standing::Trial { reason };
        }
    }

    /// Notes an answer: whatever it was before, the replica is up. Only where nothing listens, or its
    /// orchestrator wants no new work there, what still comes was on its way before, and says nothing of now.
    pub fn on_success(&mut self, now: Moment) {
        if let Standing::Out { reason: Reason::Unreachable | Reason::NotReady, .. } = self.standing
        {
            return;
        }
        (self.failures, self.losses) = (0, 0);
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

    /// Notes a lost connection, of which the cause is not known yet. That holds for a lost trial too, but
    /// where there is no other way to test the replica it counts.
    pub fn on_loss(&mut self, now: Moment) {
        self.losses = self.losses.saturating_add(1);
        match self.standing {
            Standing::Trial { reason } if self.proved => self.put_out(now, reason),
            Standing::Trial { .. } => self.on_trial_abandoned(now),
            Standing::Joining | Standing::Up | Standing::Suspect { .. } | Standing::Out { .. } => {}
        }
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
            Probe::Generated => self.on_generated(now, now, false),
            Probe::Unable => self.on_unable(),
            Probe::Stranger => self.condemn(now, Reason::WrongModel),
            Probe::Unauthorized => self.condemn(now, Reason::Unauthorized),
            Probe::Unready => self.condemn(now, Reason::NotReady),
            Probe::Failed => self.on_probe_failed(now, false),
            Probe::Refused => self.on_probe_failed(now, true),
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
                    Standing::Out { reason, .. } if reason.is_unfit() => {}
                    // A question from before it was put out says nothing new.
                    Standing::Out { .. } if self.out_since <= asked_at => {
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

    /// Notes that it gave a token for the probe sent at `asked_at`: it is back, unless that was before it was
    /// put out, or its pause is not over and others are there. A hung one that gives a token hangs no more.
    /// It is on probation: its first failure puts it out again, its first answer ends that.
    pub fn on_generated(&mut self, now: Moment, asked_at: Moment, is_needed: bool) {
        (self.losses, self.is_unable) = (0, false);
        let is_back = match self.standing {
            Standing::Out { reason, until } => {
                let is_over = is_needed || until <= now;
                reason == Reason::Hung || is_over && !reason.is_unfit()
            }
            Standing::Trial { .. } => true,
            Standing::Joining | Standing::Up | Standing::Suspect { .. } => false,
        };
        if is_back && self.out_since <= asked_at {
            self.failures = self.settings.failures_max.saturating_sub(1);
            self.up_since = now;
            self.room = Some(TRICKLE_FIRST);
            self.standing = Standing::Up;
        }
        self.on_sign();
    }

    fn on_unable(&mut self) {
        (self.losses, self.is_unable) = (0, true);
        if let Standing::Out { reason, .. } = self.standing {
            self.proved |= !reason.is_unfit();
        }
    }

    /// Notes that it could not be asked, or answered with an error: that is a failure, and so are the
    /// connections it lost before. If nothing listens there, they were lost by its death. One that is out
    /// is asked again soon, because asking costs nothing.
    fn on_probe_failed(&mut self, now: Moment, is_refused: bool) {
        let losses = std::mem::take(&mut self.losses);
        match self.standing {
            Standing::Out { until, .. } if until <= now => self.proved = false,
            Standing::Up | Standing::Suspect { .. } if is_refused && 0 < losses => {
                self.put_out(now, Reason::Unreachable);
            }
            Standing::Joining
            | Standing::Up
            | Standing::Suspect { .. }
            | Standing::Out { .. }
            | Standing::Trial { .. } => {
                self.failures = self.failures.saturating_add(losses);
                let is_reached = losses == 0 && !is_refused;
                let reason = if is_reached { Reason::Unhealthy } else { Reason::Unreachable };
                self.on_failure(now, reason);
            }
        }
    }

    /// Notes that a request brought it down: that is no strike, and it may come back soon.
    pub fn excuse(&mut self, now: Moment) {
        self.excused_at = Some(now);
        if let Standing::Out { reason: reason @ (Reason::Unreachable | Reason::Unhealthy), until } =
            self.standing
            && now.since(self.out_since) < ONE_DEATH
        {
            self.strikes = self.strikes.saturating_sub(1);
            let until = until.min(self.out_since + EXCUSED_PAUSE);
            self.standing = Standing::Out { reason, until };
        }
    }

    fn on_probe_passed(&mut self, now: Moment) {
        match self.standing {
            Standing::Joining => self.on_success(now),
            // It was well all the time, and now it lists its models: a request shows nothing more. It may be cold.
            Standing::Out { reason, .. } if reason.is_unfit() => {
                (self.up_since, self.room) = (now, Some(TRICKLE_FIRST));
                self.standing = Standing::Up;
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
        let is_excused = self.excused_at.is_some_and(|at| now.since(at) < ONE_DEATH);
        let pause = self.pause(self.strikes);
        let pause = if is_excused { pause.min(EXCUSED_PAUSE) } else { pause };
        self.strikes = self.strikes.saturating_add(u32::from(!is_excused));
        (self.proved, self.losses) = (false, 0);
        self.out_since = now;
        self.standing = Standing::Out { reason, until: now + pause };
    }

    fn pause(&self, doublings: u32) -> Duration {
        (self.settings.open * (1 << doublings.min(16))).min(self.settings.open_max)
    }
}

#[cfg(test)]
mod tests;
