//! How often did a brain panic lately? A pool is rebuilt at once after a panic. If panics repeat, the
//! new brain inherits less each time, because what it inherits may be the cause; and past some number
//! the pool places nothing for a moment, so that rebuilding does not take the processor. The pause stays
//! short: a client that can cause panics must not shut the pool for others for longer than that.

use std::time::Duration;

use crate::domain::Moment;

use super::record::Inherit;

/// After this time without a panic, the earlier ones are forgotten.
const CALM: Duration = Duration::from_secs(10);
/// Panics in a row after which a new brain inherits all, and then at least the books.
const INHERIT_ALL_MAX: u32 = 2;
const INHERIT_BOOKS_MAX: u32 = 4;
/// The most panics in a row without a pause.
const FREE_MAX: u32 = 8;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The panics of one pool's brains.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relapses {
    in_row: u32,
    last: Moment,
    closed_until: Option<Moment>,
}

/// What is done about a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    pub inherit: Inherit,
    /// For how long nothing is placed.
    pub pause: Option<Duration>,
    /// How many panics came in a row, this one included.
    pub in_row: u32,
}

impl Relapses {
    pub fn on_panic(&mut self, now: Moment) -> Remedy {
        if CALM <= now.since(self.last) {
            self.in_row = 0;
        }
        self.in_row = self.in_row.saturating_add(1);
        self.last = now;
        let beyond = self.in_row.checked_sub(FREE_MAX + 1);
        let pause = beyond.map(|it| (PAUSE_MIN * (1 << it.min(16))).min(PAUSE_MAX));
        self.closed_until = pause.map(|it| now + it);
        let inherit = match self.in_row {
            it if it <= INHERIT_ALL_MAX => Inherit::All,
            it if it <= INHERIT_BOOKS_MAX => Inherit::Books,
            _ => Inherit::Nothing,
        };
        Remedy { inherit, pause, in_row: self.in_row }
    }

    /// Has nothing placed for the longest pause, because no brain could be built.
    pub fn rest(&mut self, now: Moment) {
        self.closed_until = Some(now + PAUSE_MAX);
    }

    /// Says until when nothing is placed, while that is so.
    pub const fn closed_until(&self) -> Option<Moment> {
        self.closed_until
    }

    /// Ends the pause if it is over; tells whether it did.
    pub fn reopen(&mut self, now: Moment) -> bool {
        self.closed_until.take_if(|until| *until <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn less_is_inherited_each_time_and_then_there_are_pauses_that_end() {
        let mut relapses = Relapses::default();
        let first: Vec<Remedy> = (0..20).map(|_| relapses.on_panic(at_ms(20_000))).collect();
        let kinds = [Inherit::All, Inherit::All, Inherit::Books, Inherit::Books, Inherit::Nothing];
        assert_eq!(first[..5].iter().map(|it| it.inherit).collect::<Vec<_>>(), kinds);
        assert!(first[..8].iter().all(|it| it.pause.is_none()), "{first:?}");
        assert_eq!(first[8].pause, Some(PAUSE_MIN));
        assert_eq!(first[9].pause, Some(2 * PAUSE_MIN));
        assert_eq!((first[19].pause, first[19].in_row), (Some(PAUSE_MAX), 20));
        assert_eq!(relapses.closed_until(), Some(at_ms(21_000)));
        assert!(!relapses.reopen(at_ms(20_999)));
        assert!(relapses.reopen(at_ms(21_000)) && !relapses.reopen(at_ms(21_000)));
        assert_eq!(relapses.closed_until(), None);
    }

    #[test]
    fn a_calm_time_is_forgiveness() {
        let mut relapses = Relapses::default();
        (0..20).for_each(|_| _ = relapses.on_panic(at_ms(20_000)));
        let later = relapses.on_panic(at_ms(30_000));
        assert_eq!(later, Remedy { inherit: Inherit::All, pause: None, in_row: 1 });
        assert_eq!(relapses.closed_until(), None);
    }
}
