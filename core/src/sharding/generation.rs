//! Which assignment is newer. The number grows with every change; the incarnation only when history
//! begins anew: an operator supersedes whatever is out there, or another router plans from now on. Two routers that
//! begin anew at once, because they cannot talk to each other, never make the same incarnation.

use std::fmt;

/// The part of an incarnation that names its planner, where there are several.
const PLANNER_BITS: u32 = 32;
const PLANNER: u64 = (1 << PLANNER_BITS) - 1;

/// The version of an assignment; the higher one wins everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    pub incarnation: u64,
    pub number: u64,
}

impl Generation {
    #[must_use]
    pub const fn next(self) -> Self {
        Self { incarnation: self.incarnation, number: self.number.saturating_add(1) }
    }

    /// Begins a new history, above everything of the old one.
    #[must_use]
    pub const fn reborn(self) -> Self {
        Self { incarnation: self.incarnation.saturating_add(1), number: 0 }
    }

    /// Begins a new history of one planner, above everything of the old one.
    #[must_use]
    pub fn reborn_by(self, planner: u64) -> Self {
        let term = (self.incarnation >> PLANNER_BITS).saturating_add(1).min(PLANNER);
        Self { incarnation: term << PLANNER_BITS | planner & PLANNER, number: 0 }
    }

    /// Tells whether a planner began this history.
    pub const fn is_by(self, planner: u64) -> bool {
        self.incarnation & PLANNER == planner & PLANNER
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (term, planner) = (self.incarnation >> PLANNER_BITS, self.incarnation & PLANNER);
        if term == 0 {
            return write!(f, "{planner}.{}", self.number);
        }
        write!(f, "{term}-{planner:08x}.{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_history_is_above_the_old_one() {
        let old = Generation { incarnation: 1, number: 1000 };
        assert!(old < old.next());
        assert!(old.next() < old.reborn());
        assert_eq!(old.reborn().to_string(), "2.0");
    }

    #[test]
    fn two_planners_that_begin_anew_at_once_differ_and_one_is_above() {
        let old = Generation { incarnation: 1, number: 1000 };
        let (one, other) = (old.reborn_by(0xAB), old.reborn_by(7));
        assert!(old < other && other < one);
        assert!(one.is_by(0xAB) && !one.next().is_by(7));
        assert!(one < other.reborn_by(1), "a later one is above both");
        assert_eq!(one.next().to_string(), "1-000000ab.1");
    }
}
