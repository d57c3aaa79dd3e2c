//! How large a request is as far as its body shows, before its tokens are counted. The room
//! `tokens` learns what bytes are worth and turns an extent into tokens.

/// Sizes of one request. The default says that nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The hash of the model's name; its tokenizer decides how bytes become tokens.
    pub model: u64,
    /// Bytes of the prompt as they stand in the body, those of attachments left out.
    pub text_bytes: u32,
    /// Images, sounds and files that the prompt carries in itself.
    pub attachments: u32,
    /// How many of them are sounds, and how long those last together, as far as it shows.
    pub sounds: u32,
    pub sound_ms: u32,
    /// Bytes of the attachments.
    pub attachment_bytes: u32,
    /// Bytes of the text that has no blanks, as hashes and keys have: it has more tokens than prose.
    pub dense_bytes: u32,
    /// Bytes of all that the body says, attachments left out; 0 when unknown.
    pub body_bytes: u32,
    /// Images, sounds and files that the prompt names, those it carries in itself included.
    pub media: u32,
    /// Whether some of the prompt is kept at the engine, so that the body does not show its length.
    pub is_continued: bool,
    /// Bytes behind each block of the outline; 0 when it has none.
    pub block_bytes: u32,
    /// How many answers the request asks for at once; 0 when unknown, which is one.
    pub answers: u32,
    /// The most tokens that all of them may have together, where that is known.
    pub output_tokens_max: Option<u32>,
    /// The hash of the whole prompt; 0 when unknown.
    pub digest: u64,
    /// Whether the answer comes token by token, so that its silence means something.
    pub streams: bool,
}

impl Extent {
    /// Counts all bytes of the prompt.
    pub const fn prompt_bytes(&self) -> u32 {
        self.text_bytes.saturating_add(self.attachment_bytes)
    }
}
