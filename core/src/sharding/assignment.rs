//! Slices to replicas, in one generation. Every key has exactly one slice; an assignment that was
//! not made by the planner is held to that by [`Assignment::from_rows`]. Loads are no part of it:
//! they change all the time, and an assignment that changes all the time cannot be told by its
//! differences.

use thiserror::Error;

use crate::domain::{Moment, Place, SliceKey};

use super::generation::Generation;
use super::numbers::{at, short};
use super::slice::Slice;

/// Why a slice is as it is: what was done to it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SliceReason {
    /// Nothing was there before.
    First,
    /// A rule or a neighbour's load drew a new border; nothing moved.
    Split,
    Merged,
    /// A holder was above its band and this one below.
    Moved,
    /// As moved, but nothing smaller fitted, so another slice went the other way.
    Swapped,
    /// Too hot for its holders and not to be split.
    Replicated,
    Dereplicated,
    /// A holder is gone.
    Rehomed,
    /// A holder is leaving.
    Drained,
    /// A new replica was filled to the mean.
    Filled,
    /// The rule for these keys wants more or fewer replicas, or keeps others away.
    Ruled,
}

impl SliceReason {
    pub const ALL: [Self; 11] = [
        Self::First,
        Self::Split,
        Self::Merged,
        Self::Moved,
        Self::Swapped,
        Self::Replicated,
        Self::Dereplicated,
        Self::Rehomed,
        Self::Drained,
        Self::Filled,
        Self::Ruled,
    ];

    /// Reads what [`Self::as_str`] writes.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Split => "split",
            Self::Merged => "merged",
            Self::Moved => "moved",
            Self::Swapped => "swapped",
            Self::Replicated => "replicated",
            Self::Dereplicated => "dereplicated",
            Self::Rehomed => "rehomed",
            Self::Drained => "drained",
            Self::Filled => "filled",
            Self::Ruled => "ruled",
        }
    }
}

/// One slice and its holders, as given and taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub slice: Slice,
    /// In order of place.
    pub holders: Vec<Place>,
    pub why: SliceReason,
    /// Number of the generation in which it became so.
    pub since: u64,
    /// When its holders last changed; a slice that just moved is left alone for a while.
    pub settled_at: Moment,
    /// The replica that held the state of these keys before the last change of holders, and may
    /// still have it.
    pub previous: Option<Place>,
}

/// What is wrong with rows that were read or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Flaw {
    #[error("there is no slice")]
    Empty,
    #[error("the slice from {low:016x} leaves a gap or an overlap before it")]
    Gap { low: u64 },
    #[error("the slice from {low:016x} ends before it begins")]
    Backwards { low: u64 },
    #[error("the keys after {high:016x} have no slice")]
    Short { high: u64 },
    #[error("the slice from {low:016x} names a replica twice or out of order")]
    Holders { low: u64 },
}

/// The holders of every key. Cheap to look up, costly to change: it is made whole and then shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub(super) generation: Generation,
    pub(super) lows: Vec<u64>,
    /// Where each slice's holders begin in `holders`; one more than there are slices.
    pub(super) firsts: Vec<u32>,
    pub(super) holders: Vec<Place>,
    pub(super) notes: Vec<Note>,
}

/// What is known of a slice beyond its range and holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) why: SliceReason,
    pub(super) since: u64,
    pub(super) settled_at: Moment,
    pub(super) previous: Option<Place>,
}

/// One slice of an assignment, looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    pub slice: Slice,
    pub holders: &'a [Place],
    pub why: SliceReason,
    pub since: u64,
    pub settled_at: Moment,
    pub previous: Option<Place>,
}

impl Held<'_> {
    pub fn to_row(self) -> Row {
        let Self { slice, holders, why, since, settled_at, previous } = self;
        Row { slice, holders: holders.to_vec(), why, since, settled_at, previous }
    }
}

impl Default for Assignment {
    fn default() -> Self {
        Self::empty()
    }
}

impl Assignment {
    /// Makes the assignment that everything begins from: all keys, without holders.
    pub fn empty() -> Self {
        let note =
            Note { why: SliceReason::First, since: 0, settled_at: Moment::ZERO, previous: None };
        Self {
            generation: Generation::default(),
            lows: vec![0],
            firsts: vec![0, 0],
            holders: Vec::new(),
            notes: vec![note],
        }
    }

    /// Takes rows in order of key; they must cover every key once.
    pub fn from_rows(
        generation: Generation,
        rows: impl IntoIterator<Item = Row>,
    ) -> Result<Self, Flaw> {
        let mut it = Self::builder(generation, 0);
        let mut next = Some(0);
        for row in rows {
            let low = row.slice.low;
            if next != Some(low) {
                return Err(Flaw::Gap { low });
            }
            if row.slice.high < low {
                return Err(Flaw::Backwards { low });
            }
            if !row.holders.is_sorted_by(|a, b| a < b) {
                return Err(Flaw::Holders { low });
            }
            next = row.slice.high.checked_add(1);
            let Row { why, since, settled_at, previous, .. } = row;
            it.push(low, row.holders, Note { why, since, settled_at, previous });
        }
        match next {
            None => Ok(it),
            Some(0) => Err(Flaw::Empty),
            Some(next) => Err(Flaw::Short { high: next - 1 }),
        }
    }

    pub(super) fn builder(generation: Generation, slices: usize) -> Self {
        let mut firsts = Vec::with_capacity(slices + 1);
        firsts.push(0);
        Self {
            generation,
            lows: Vec::with_capacity(slices),
            firsts,
            holders: Vec::with_capacity(slices),
            notes: Vec::with_capacity(slices),
        }
    }

    pub(super) fn push(&mut self, low: u64, holders: impl IntoIterator<Item = Place>, note: Note) {
        self.lows.push(low);
        self.holders.extend(holders);
        self.firsts.push(short(self.holders.len()));
        self.notes.push(note);
    }

    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the same assignment as the first of a new history.
    #[must_use]
    pub fn reborn(mut self) -> Self {
        self.generation = self.generation.reborn();
        self
    }

    /// Returns the same assignment as the first of a planner's history.
    #[must_use]
    pub fn reborn_by(mut self, planner: u64) -> Self {
        self.generation = self.generation.reborn_by(planner);
        self
    }

    /// Dates the slices of an assignment that was told: those that are as in a known one by that, others by `now`.
    #[must_use]
    pub fn settled_like(mut self, known: &Self, now: Moment) -> Self {
        for position in 0..self.len() {
            let (own, before) = (self.get(position), known.find(SliceKey(self.lows[position])));
            let is_same = (own.slice, own.holders) == (before.slice, before.holders);
            self.notes[position].settled_at = if is_same { before.settled_at } else { now };
        }
        self
    }

    /// Counts the slices.
    pub const fn len(&self) -> usize {
        self.lows.len()
    }

    /// Tells whether no slice has a holder.
    pub const fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Counts holders over all slices.
    pub const fn holders_total(&self) -> usize {
        self.holders.len()
    }

    pub fn get(&self, position: usize) -> Held<'_> {
        let high = self.lows.get(position + 1).map_or(u64::MAX, |next| next - 1);
        let Note { why, since, settled_at, previous } = self.notes[position];
        Held {
            slice: Slice { low: self.lows[position], high },
            holders: self.holders_at(position),
            why,
            since,
            settled_at,
            previous,
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Held<'_>> + Clone {
        (0..self.len()).map(|it| self.get(it))
    }

    /// Finds the slice of a key. For frequent look-ups there is [`super::Lookup`].
    pub fn position(&self, key: SliceKey) -> usize {
        self.lows.partition_point(|low| *low <= key.0) - 1
    }

    pub fn find(&self, key: SliceKey) -> Held<'_> {
        self.get(self.position(key))
    }

    pub(super) fn holders_at(&self, position: usize) -> &[Place] {
        &self.holders[at(self.firsts[position])..at(self.firsts[position + 1])]
    }

    /// Lists every replica that holds anything, in order of place.
    pub fn all_holders(&self) -> Vec<Place> {
        let mut places = self.holders.clone();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// Tells whether every key has exactly one slice.
pub fn covers_every_key_once(assignment: &Assignment) -> bool {
    let lows = &assignment.lows;
    lows.first() == Some(&0)
        && lows.is_sorted_by(|a, b| a < b)
        && assignment.firsts.len() == lows.len() + 1
        && assignment.notes.len() == lows.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(low: u64, high: u64, holders: &[u64]) -> Row {
        let holders = holders.iter().map(|it| Place(*it)).collect();
        let settled_at = Moment::ZERO;
        let slice = Slice { low, high };
        Row { slice, holders, why: SliceReason::First, since: 1, settled_at, previous: None }
    }

    #[test]
    fn rows_that_cover_every_key_once_become_an_assignment() {
        let rows = [row(0, 9, &[1, 2]), row(10, u64::MAX, &[3])];
        let it = Assignment::from_rows(Generation::default(), rows.clone()).unwrap();
        assert!(covers_every_key_once(&it));
        assert_eq!(it.iter().map(Held::to_row).collect::<Vec<_>>(), rows);
        assert_eq!(it.find(SliceKey(9)).holders, [Place(1), Place(2)]);
        assert_eq!(it.find(SliceKey(10)).holders, [Place(3)]);
        assert_eq!(it.all_holders().len(), 3);
    }

    #[test]
    fn rows_with_a_flaw_are_refused() {
        let make = |rows: &[Row]| Assignment::from_rows(Generation::default(), rows.to_vec());
        assert_eq!(make(&[]), Err(Flaw::Empty));
        assert_eq!(make(&[row(1, u64::MAX, &[])]), Err(Flaw::Gap { low: 1 }));
        assert_eq!(make(&[row(0, 9, &[])]), Err(Flaw::Short { high: 9 }));
        assert_eq!(make(&[row(0, 9, &[]), row(9, u64::MAX, &[])]), Err(Flaw::Gap { low: 9 }));
        assert_eq!(make(&[row(0, u64::MAX, &[2, 1])]), Err(Flaw::Holders { low: 0 }));
        let backwards = make(&[row(0, 9, &[]), row(10, 5, &[])]);
        assert_eq!(backwards, Err(Flaw::Backwards { low: 10 }));
    }
}
