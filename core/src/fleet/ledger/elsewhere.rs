//! What other routers have booked on a replica. It stands in the same ledger as what this router booked, so that
//! every prediction counts it alike; beside it this sum says which part is theirs.

use crate::domain::Moment;

use super::{Ledger, Load};

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

impl Ledger {
    /// The part of it that other routers booked.
    pub const fn elsewhere(&self) -> Elsewhere {
        self.elsewhere
    }

    /// What this router booked.
    pub fn own_load(&self) -> Load {
        let mut own = self.load;
        own -= self.elsewhere.load;
        own
    }

    /// Books a request that another router sent.
    pub fn book_elsewhere(&mut self, now: Moment, charge: Load) {
        self.book(now, charge);
        self.elsewhere.load += charge;
        self.elsewhere.waiting += 1;
    }

    /// Takes the prompt of such a request off the line.
    pub fn begin_elsewhere(&mut self, now: Moment, charge: &mut Load) {
        let before = *charge;
        self.begin(now, charge);
        self.elsewhere.load -= before;
        self.elsewhere.load += *charge;
        self.elsewhere.waiting -= 1;
        self.elsewhere.answering += 1;
    }

    /// Puts another charge in the place of one that its router corrected.
    pub fn correct_elsewhere(&mut self, charge: &mut Load, right: Load) {
        self.elsewhere.load -= *charge;
        self.elsewhere.load += right;
        self.correct(charge, right);
    }

    /// Closes the books on such a request.
    pub fn close_elsewhere(&mut self, now: Moment, charge: Load, is_read: bool) {
        self.close(now, charge, is_read);
        self.elsewhere.load -= charge;
        *(if is_read { &mut self.elsewhere.answering } else { &mut self.elsewhere.waiting }) -= 1;
    }
}
