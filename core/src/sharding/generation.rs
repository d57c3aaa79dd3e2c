//! Which assignment is newer. The number grows with every change; the incarnation only when history
//! begins anew, so that an operator can supersede whatever is out there.

use std::fmt;

/// The version of an assignment; the higher one wins everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    pub incarnation: u64,
    pub number: u64,
}

impl Generation {
    #[must_use]
    pub const fn next(self) -> Self {
        Self { incarnation: self.incarnation, number: self.number + 1 }
    }

    /// Begins a new history, above everything of the old one.
    #[must_use]
    pub const fn reborn(self) -> Self {
        Self { incarnation: self.incarnation + 1, number: 0 }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.incarnation, self.number)
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
}
