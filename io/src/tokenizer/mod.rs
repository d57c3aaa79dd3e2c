//! How many tokens has this prompt, counted by the tokenizer that its engine runs? For pools that name
//! one. A decision waits for the count a few milliseconds at most, and goes by the estimate otherwise.
//!
//! It counts the texts of a prompt. What a chat template puts around them only the engine knows.
//! What counts is a crate of its own, and part of builds with the feature `tokenizer`.

#[cfg(not(feature = "tokenizer"))]
mod absent;
#[cfg(feature = "tokenizer")]
mod present;

#[cfg(not(feature = "tokenizer"))]
pub use absent::Tokenizer;
#[cfg(feature = "tokenizer")]
pub use present::Tokenizer;

/// Why a tokenizer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    #[error("this build counts no tokens")]
    Absent,
    #[error("it is no tokenizer: {0}")]
    Unreadable(String),
}

/// What came of counting one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Tokens(u32),
    /// It will be known, but not in time for this decision.
    Late,
    /// Not counted: the counter is busy, or the prompt too long.
    Skipped,
}

impl Count {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokens(_) => "in_time",
            Self::Late => "late",
            Self::Skipped => "skipped",
        }
    }
}
