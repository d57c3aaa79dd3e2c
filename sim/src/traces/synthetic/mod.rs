//! Made-up workloads: shared prefixes, chats and agents, heavy tails. A generator is a few plain
//! numbers; the published recipes are in `presets`. Blocks are of 16 tokens, as engines have them.

mod flat;
mod multi_turn;
pub mod presets;

pub use flat::{HeavyTail, SharedPrefix, Stage};
pub use multi_turn::{MultiTurn, SubAgents};

use std::num::NonZeroU32;

const BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(16).expect("not zero");

/// A generator and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Synthetic {
    SharedPrefix(SharedPrefix),
    MultiTurn(Box<MultiTurn>),
    HeavyTail(HeavyTail),
}
