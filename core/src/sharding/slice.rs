//! A range of keys. Both ends belong to it, so that the last key of all needs no special case.

use std::fmt;

use crate::domain::float;

/// The keys from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    pub low: u64,
    pub high: u64,
}

impl Slice {
    pub const ALL: Self = Self { low: 0, high: u64::MAX };

    /// Makes the slice of one key.
    pub const fn of_key(key: u64) -> Self {
        Self { low: key, high: key }
    }

    /// Makes the slice of all keys that begin with these 32 bits: of one workload, where keys are
    /// `hash32(workload) ‖ hash32(session)`.
    pub const fn of_prefix(prefix: u32) -> Self {
        let low = u64::from_be_bytes({
            let it = prefix.to_be_bytes();
            [it[0], it[1], it[2], it[3], 0, 0, 0, 0]
        });
        Self { low, high: low | 0xFFFF_FFFF }
    }

    pub const fn contains(&self, key: u64) -> bool {
        self.low <= key && key <= self.high
    }

    pub const fn is_one_key(&self) -> bool {
        self.low == self.high
    }

    /// Counts its keys.
    pub fn width(&self) -> f64 {
        float(self.high - self.low) + 1.0
    }

    /// Returns what two slices have in common.
    pub fn overlap(&self, other: &Self) -> Option<Self> {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (low <= high).then_some(Self { low, high })
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_two_to_the_32_keys() {
        let slice = Slice::of_prefix(0x0102_0304);
        assert_eq!(slice.low, 0x0102_0304_0000_0000);
        assert!((slice.width() - 32_f64.exp2()).abs() < 0.5);
        assert_eq!(Slice::of_prefix(u32::MAX).high, u64::MAX);
    }

    #[test]
    fn slices_overlap_in_what_both_contain() {
        let (one, other) = (Slice { low: 1, high: 5 }, Slice { low: 5, high: 9 });
        assert_eq!(one.overlap(&other), Some(Slice::of_key(5)));
        assert_eq!(one.overlap(&Slice { low: 6, high: 9 }), None);
        assert_eq!(Slice::ALL.overlap(&one), Some(one));
    }
}
