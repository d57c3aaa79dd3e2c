//! What this router sent to a replica, in numbers.

/// The requests that this router sent to a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    in_flight: u32,
    total: u64,
    failed_total: u64,
}

impl Sent {
    /// Those that have not ended.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub const fn total(&self) -> u64 {
        self.total
    }

    pub const fn failed_total(&self) -> u64 {
        self.failed_total
    }

    pub(super) const fn on_sent(&mut self) {
        self.in_flight += 1;
        self.total += 1;
    }

    pub(super) const fn on_ended(&mut self) {
        self.in_flight -= 1;
    }

    pub(super) const fn on_failed(&mut self) {
        self.failed_total += 1;
    }
}
