//! What a request came to in the end.

/// Tokens as the engine counted them, as far as it told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: Option<u32>,
    pub output: Option<u32>,
    /// The part of `input` that was in the replica's cache.
    pub cached: Option<u32>,
}
