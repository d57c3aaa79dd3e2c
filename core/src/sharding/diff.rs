//! What changed from one assignment to the next, as rows that replace others. A rebalanced fleet of
//! a thousand replicas differs in a few slices; sending the rest again would be most of the traffic.

use thiserror::Error;

use super::assignment::{Assignment, Flaw, Held, Row};
use super::generation::Generation;

/// The rows of `to` that `from` does not have. They cover whole slices of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    pub from: Generation,
    pub to: Generation,
    pub rows: Vec<Row>,
}

/// Why a diff cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// Ask for the whole assignment instead.
    #[error("it continues generation {wanted}, not {found}")]
    Base { wanted: Generation, found: Generation },
    #[error(transparent)]
    Flaw(#[from] Flaw),
}

impl Diff {
    pub fn between(from: &Assignment, to: &Assignment) -> Self {
        let mut old = from.iter().peekable();
        let mut rows = Vec::new();
        for new in to.iter() {
            while old.peek().is_some_and(|it| it.slice.low < new.slice.low) {
                old.next();
            }
            if old.peek() != Some(&new) {
                rows.push(new.to_row());
            }
        }
        Self { from: from.generation(), to: to.generation(), rows }
    }

    /// Makes the next assignment from the one this diff continues.
    pub fn apply(&self, base: &Assignment) -> Result<Assignment, Mismatch> {
        if base.generation() != self.from {
            return Err(Mismatch::Base { wanted: self.from, found: base.generation() });
        }
        let mut kept = base.iter().peekable();
        let mut rows = Vec::with_capacity(base.len() + self.rows.len());
        for row in &self.rows {
            rows.extend(take_before(&mut kept, row.slice.low));
            rows.push(row.clone());
            while kept.next_if(|it| it.slice.low <= row.slice.high).is_some() {}
        }
        rows.extend(kept.map(Held::to_row));
        Ok(Assignment::from_rows(self.to, rows)?)
    }
}

fn take_before<'a>(
    kept: &mut std::iter::Peekable<impl Iterator<Item = Held<'a>>>,
    low: u64,
) -> Vec<Row> {
    std::iter::from_fn(|| kept.next_if(|it| it.slice.low < low)).map(Held::to_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_fits_only_the_generation_it_continues() {
        let base = Assignment::empty();
        let next = Assignment::empty().reborn();
        let diff = Diff::between(&base, &next);
        assert!(diff.rows.is_empty());
        assert_eq!(diff.apply(&base), Ok(next.clone()));
        let (wanted, found) = (base.generation(), next.generation());
        assert_eq!(diff.apply(&next), Err(Mismatch::Base { wanted, found }));
    }

    #[test]
    fn a_diff_with_a_hole_is_refused() {
        let base = Assignment::empty();
        let mut diff = Diff::between(&base, &Assignment::empty().reborn());
        let mut row = base.get(0).to_row();
        row.slice.high = 9;
        diff.rows.push(row);
        assert!(matches!(diff.apply(&base), Err(Mismatch::Flaw(Flaw::Short { .. }))));
    }
}
