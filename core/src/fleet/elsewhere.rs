//! What other routers have booked on a replica. It stands in the same ledger as what this router booked, so that
//! every prediction counts it alike; beside it this sum says which part is theirs.

use crate::domain::Moment;

use super::Replica;
use super::ledger::Load;

/// The part of a replica's ledger that other routers booked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    load: Load,
    waiting: u32,
    answering: u32,
}

impl Elsewhere {
    pub const fn load(&self) -> Load {
        self.load
    }

    /// Requests whose answer has not begun, and those whose answer is being written.
    pub const fn counts(&self) -> (u32, u32) {
        (self.waiting, self.answering)
    }

    pub const fn in_flight(&self) -> u32 {
        self.waiting + self.answering
    }
}

impl Replica {
    /// Books a request that another router sent here.
    pub fn on_sent_elsewhere(&mut self, now: Moment, charge: Load) {
        self.book(now, charge);
        self.elsewhere.load += charge;
        self.elsewhere.waiting += 1;
    }

    /// Takes the prompt of such a request off the line.
    pub fn on_read_elsewhere(&mut self, now: Moment, charge: &mut Load) {
        let before = *charge;
        self.ledger.begin(now, charge);
        self.elsewhere.load -= before;
        self.elsewhere.load += *charge;
        self.elsewhere.waiting -= 1;
        self.elsewhere.answering += 1;
    }

    /// Puts another charge in the place of one that its router corrected.
    pub fn on_corrected_elsewhere(&mut self, charge: &mut Load, right: Load) {
        self.elsewhere.load -= *charge;
        self.elsewhere.load += right;
        self.ledger.correct(charge, right);
    }

    /// Closes the books on such a request.
    pub fn on_ended_elsewhere(&mut self, now: Moment, charge: Load, is_read: bool) {
        self.ledger.close(now, charge, is_read);
        self.elsewhere.load -= charge;
        *(if is_read { &mut self.elsewhere.answering } else { &mut self.elsewhere.waiting }) -= 1;
    }
}
