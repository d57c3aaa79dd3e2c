//! What a prompt adds behind a beginning that is known: how routers tell each other what lies in a cache without
//! sending a prompt twice.

/// Block hashes behind a block that is named by its own hash. Hashes are chained, so one names all before it too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptTail {
    /// The last block of the known beginning; nothing where `depth` is 0.
    pub parent: u64,
    /// How many blocks that beginning has.
    pub depth: u32,
    /// The blocks behind it.
    pub more: Vec<u64>,
}
