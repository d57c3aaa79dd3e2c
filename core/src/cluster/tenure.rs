//! Which router leads, where a store says so: one key in it, the seat, that lives as long as the lease of the router that
//! took it. This is what to ask the store next and what its answers mean, as a state machine; the driver asks.
//!
//! A lease is no fence: a router that was stopped for a while may still believe in one that is long gone. So a lease counts
//! from when it was asked for, not from when the answer came; a victory counts only while the lease that won it does; and
//! whatever the leader writes is compared with the revision at which it took the seat ([`Tenure::fence`]), in the store.
//! What is kept there is read before a router leads, so that it goes on from it.

use std::time::Duration;

use crate::domain::{Moment, RouterId};

/// How many rounds of questions fit into the time of a lease.
const ROUNDS_PER_LEASE: u32 = 5;

/// What a store says of the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreWord {
    /// There is no store, or it does not answer.
    #[default]
    Silent,
    /// It answers, and no router leads.
    Vacant,
    Leader(RouterId),
}

/// What to ask the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreQuestion {
    /// A lease for this long.
    Grant { ttl: Duration },
    /// To let a lease live on.
    Renew { lease: i64 },
    /// To take the seat under a lease if it is free, and which router has it.
    Campaign { lease: i64 },
    /// All that is kept.
    Read,
}

/// What the store answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    Granted {
        lease: i64,
        ttl: Duration,
    },
    /// The lease lives for that long; not at all where it is over.
    Renewed {
        ttl: Duration,
    },
    /// There is no such lease.
    NoLease,
    Seat(Option<SeatHolder>),
    /// All that is kept was taken in.
    Read,
    /// No answer, or none that helps.
    Failed,
}

/// The router that has the seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatHolder {
    pub router: RouterId,
    /// The revision of the store at which it took the seat.
    pub revision: i64,
    pub lease: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TenureStep {
    Lease,
    Seat,
    Read,
}

/// What one router knows of the seat.
#[derive(Debug)]
pub struct Tenure {
    own: RouterId,
    ttl: Duration,
    /// Until when the first answer is waited for.
    patience: Moment,
    step: TenureStep,
    ask_at: Moment,
    /// This router's lease, and until when it surely lives.
    lease: Option<(i64, Moment)>,
    /// Which router had the seat when the store answered last, and until when that counts.
    seat: Option<(Option<SeatHolder>, Moment)>,
    /// Whether all that is kept was read, and the revision of the own tenure in which it was.
    has_read: bool,
    read_in: Option<i64>,
}

impl Tenure {
    /// Begins without a word of the store; leases are asked for this long.
    pub fn new(now: Moment, own: RouterId, ttl: Duration) -> Self {
        let (patience, step) = (now + ttl, TenureStep::Lease);
        Self {
            own,
            ttl,
            patience,
            step,
            ask_at: now,
            lease: None,
            seat: None,
            has_read: false,
            read_in: None,
        }
    }

    /// What to ask the store now, if anything.
    pub fn next(&self, now: Moment) -> Option<StoreQuestion> {
        if now < self.ask_at {
            return None;
        }
        Some(match (self.step, self.lease) {
            (TenureStep::Read, _) => StoreQuestion::Read,
            (TenureStep::Lease, Some((lease, _))) => StoreQuestion::Renew { lease },
            (TenureStep::Seat, Some((lease, _))) => StoreQuestion::Campaign { lease },
            (TenureStep::Lease | TenureStep::Seat, None) => StoreQuestion::Grant { ttl: self.ttl },
        })
    }

    /// When there is something to ask.
    pub const fn next_wakeup(&self) -> Moment {
        self.ask_at
    }

    /// Takes in the answer to what was asked at `asked`. `sees`: whether this router talks to another one.
    pub fn on_answer(
        &mut self,
        asked: Moment,
        now: Moment,
        answer: StoreAnswer,
        sees: impl Fn(RouterId) -> bool,
    ) {
        match answer {
            StoreAnswer::Granted { lease, ttl } => {
                self.lease = Some((lease, asked + ttl));
                self.step = TenureStep::Seat;
            }
            StoreAnswer::Renewed { ttl } if ttl.is_zero() => self.lose(now),
            StoreAnswer::Renewed { ttl } => {
                if let Some((_, until)) = &mut self.lease {
                    *until = asked + ttl;
                }
                self.step = TenureStep::Seat;
            }
            StoreAnswer::NoLease => self.lose(now),
            StoreAnswer::Seat(holder) => {
                self.seat = Some((holder, asked + self.ttl));
                // A leader that this router does not talk to tells it nothing: what it writes is read.
                let is_apart = holder.is_some_and(|it| it.router != self.own && !sees(it.router));
                if is_apart || !self.has_read || self.is_read_stale() {
                    self.step = TenureStep::Read;
                } else {
                    self.rest(now);
                }
            }
            StoreAnswer::Read => {
                (self.has_read, self.read_in) = (true, self.own_revision());
                self.rest(now);
            }
            StoreAnswer::Failed => self.rest(now),
        }
    }

    /// Notes that something was not written, because the seat is another's by now.
    pub fn on_fenced_out(&mut self, now: Moment) {
        if let Some((holder, _)) = &mut self.seat {
            *holder = None;
        }
        (self.step, self.ask_at) = (TenureStep::Lease, now);
    }

    /// What the store says of the leader, as far as it is known first-hand and still counts.
    pub fn word(&self, now: Moment) -> StoreWord {
        match self.seat {
            Some((holder, until)) if now < until => match holder {
                Some(it) if it.router != self.own => StoreWord::Leader(it.router),
                Some(_) if self.fence(now).is_some() => StoreWord::Leader(self.own),
                Some(_) | None => StoreWord::Vacant,
            },
            Some(_) | None => StoreWord::Silent,
        }
    }

    /// Tells whether the store was not heard of yet and may still be.
    pub fn is_waiting(&self, now: Moment) -> bool {
        self.seat.is_none() && now < self.patience
    }

    /// The revision that what this router writes as the leader is compared with; none where it does not lead.
    pub fn fence(&self, now: Moment) -> Option<i64> {
        let ((lease, alive_until), (holder, known_until)) = (self.lease?, self.seat?);
        let holder = holder.filter(|it| it.router == self.own && it.lease == lease)?;
        let is_known = now < alive_until && now < known_until;
        (is_known && !self.is_read_stale()).then_some(holder.revision)
    }

    /// The lease to give back at the end.
    pub fn lease(&self) -> Option<i64> {
        self.lease.map(|it| it.0)
    }

    fn own_revision(&self) -> Option<i64> {
        let (holder, _) = self.seat?;
        holder.filter(|it| it.router == self.own).map(|it| it.revision)
    }

    /// Tells whether this router has the seat and has not read what was kept before it had.
    fn is_read_stale(&self) -> bool {
        self.own_revision().is_some_and(|it| self.read_in != Some(it))
    }

    fn lose(&mut self, now: Moment) {
        self.lease = None;
        if self.own_revision().is_some()
            && let Some((holder, _)) = &mut self.seat
        {
            *holder = None;
        }
        // Soon, but never in a loop.
        (self.step, self.ask_at) = (TenureStep::Lease, now + self.pause() / 4);
    }

    fn rest(&mut self, now: Moment) {
        (self.step, self.ask_at) = (TenureStep::Lease, now + self.pause());
    }

    fn pause(&self) -> Duration {
        self.ttl / ROUNDS_PER_LEASE
    }
}

#[cfg(test)]
mod tests;
