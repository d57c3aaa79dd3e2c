//! What was seen of a request's times, kept until the engine has said what the request came to: how many
//! tokens of its prompt were cached is known only then.

use crate::cost::learned::Sighting;
use crate::domain::Moment;

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::brain) struct Seen {
    /// How long its prompt took from when its turn came, and what was written beside it. Its own tokens are
    /// still missing.
    pub(in crate::brain) first: Option<Sighting>,
    /// How things stood when its tokens were last counted, or when it was sent.
    pub(in crate::brain) mark: Option<Mark>,
}

/// How things stood at a replica.
#[derive(Clone, Copy, Debug)]
pub(in crate::brain) struct Mark {
    pub(in crate::brain) at: Moment,
    /// Tokens of the answer by then.
    pub(in crate::brain) tokens: u32,
    /// Answers that were being written.
    pub(in crate::brain) batch: f64,
    /// Tokens of their contexts.
    pub(in crate::brain) context: f64,
    /// What the replica had read by then.
    pub(in crate::brain) read: Read,
}

/// Prompts that a replica has read, from zero again when that is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::brain) struct Read {
    pub(in crate::brain) prompts: u64,
    pub(in crate::brain) tokens: u64,
    /// Pairs of attending tokens.
    pub(in crate::brain) pairs: u64,
}

impl Read {
    /// Adds a prompt of which `new` tokens were computed over `cached` ones.
    pub(in crate::brain) fn add(&mut self, new: u32, cached: u32) {
        let (new, cached) = (u64::from(new), u64::from(cached));
        let pairs = new.saturating_mul(cached + new / 2);
        self.prompts = self.prompts.wrapping_add(1);
        self.tokens = self.tokens.wrapping_add(new);
        self.pairs = self.pairs.wrapping_add(pairs);
    }

    /// Says what was read since it was `before`.
    pub(in crate::brain) const fn since(&self, before: &Self) -> Self {
        Self {
            prompts: self.prompts.wrapping_sub(before.prompts),
            tokens: self.tokens.wrapping_sub(before.tokens),
            pairs: self.pairs.wrapping_sub(before.pairs),
        }
    }
}
