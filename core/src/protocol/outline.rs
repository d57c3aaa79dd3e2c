//! What two prompts share, told from the bytes of their bodies: a chain of block hashes over tools,
//! system text and messages, in the order in which chat templates lay them out. Raw bytes, not decoded
//! text: nothing is unescaped or copied, images are covered as they stand, and a client writes the
//! earlier turns of a conversation the same way each time. The bracket that closes the messages is left
//! out, so a later turn has the earlier one as its prefix.
//!
//! Whatever changes bytes breaks the chain from there on, though the engine may see the same
//! tokens: a client that moves its cache markers loses the blocks after the marker, no more. A
//! wrong hint costs time, never correctness. Engines share their cache between tenants, so tenants
//! share the chain, unless the pool keeps them apart. `cache_salt` keeps prompts apart here as it
//! does there, and a tenant that must not share gets a salt of its own, here and in the body that
//! goes out.

mod media;
mod sound;

use std::ops::Range;

use memchr::{memchr, memchr3};
use twox_hash::XxHash3_64;

use crate::domain::{Extent, Outline};

pub(super) use media::Turns;

/// About 64 tokens. Smaller blocks find little more and cost more to look up.
pub(super) const BLOCK_BYTES: usize = 256;

/// Prompts are hashed up to here, which is four MiB or a million tokens.
pub(super) const BLOCKS_MAX: usize = 16_384;

/// How much of a block is looked at byte by byte before it is called text.
const PROBE_BYTES: usize = 16;

/// The parts of a prompt as they stand in the body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prompt<'a> {
    /// Tools, system text, messages.
    pub(super) parts: [&'a str; 3],
    /// How the last of them begins.
    pub(super) turns: Turns,
    /// What must differ for two equal prompts to share nothing.
    pub(super) adapter: &'a str,
    pub(super) salt: &'a str,
}

impl Prompt<'_> {
    /// Hashes the prompt for `model` and measures it; shared only within the tenant, where one is
    /// given. How many tokens it has is left open.
    pub(super) fn outline(&self, model: &str, tenant: Option<u64>) -> (Outline, Extent) {
        let bytes: usize = self.parts.iter().map(|it| it.len()).sum();
        let model = XxHash3_64::oneshot(model.as_bytes());
        let adapter = XxHash3_64::oneshot_with_seed(model, self.adapter.as_bytes());
        let seed = XxHash3_64::oneshot_with_seed(adapter, self.salt.as_bytes());
        let own = |it: u64| XxHash3_64::oneshot_with_seed(seed, &it.to_le_bytes());
        let seed = tenant.map_or(seed, own);
        let mut chain = Chain::new(seed, bytes / BLOCK_BYTES);
        for part in self.parts {
            chain.absorb(part.as_bytes());
        }
        let media = media::find(self.parts[2], self.turns, 0 < chain.data_blocks);
        let text_bytes = narrow(bytes - media.bytes);
        let dense_bytes = (chain.data_blocks * BLOCK_BYTES).saturating_sub(media.bytes);
        let extent = Extent {
            model,
            text_bytes,
            attachments: media.attachments,
            sounds: media.sounds,
            sound_ms: media.sound_ms,
            attachment_bytes: narrow(media.bytes),
            dense_bytes: narrow(dense_bytes).min(text_bytes),
            body_bytes: 0,
            media: media.named,
            is_continued: false,
            block_bytes: narrow(BLOCK_BYTES),
            answers: 1,
            output_tokens_max: None,
            digest: chain.digest(),
            streams: false,
        };
        let worn = if self.adapter.is_empty() { 0 } else { adapter };
        (Outline { blocks: chain.blocks.into(), adapter: worn, ..Outline::default() }, extent)
    }
}

impl Prompt<'_> {
    /// Copies the prompt's text between two blocks, with escapes turned into what they stand for. What
    /// joins texts in JSON stays: it is about as long as what a chat template puts there.
    pub(super) fn text(&self, blocks: Range<usize>) -> String {
        let mut span =
            blocks.start.saturating_mul(BLOCK_BYTES)..blocks.end.saturating_mul(BLOCK_BYTES);
        let mut text = Vec::new();
        for part in self.parts {
            let part = part.as_bytes();
            let (start, end) = (span.start.min(part.len()), span.end.min(part.len()));
            unescape(&part[start..end], &mut text);
            span = span.start - start..span.end - end;
        }
        // A block may end inside of a letter.
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Appends JSON text with its escapes resolved; a broken one stays as it stands.
fn unescape(mut json: &[u8], into: &mut Vec<u8>) {
    while let Some(at) = memchr(b'\\', json) {
        into.extend_from_slice(&json[..at]);
        let escape = &json[at..];
        let (letter, length) = match escape.get(1) {
            Some(b'n') => (Some('\n'), 2),
            Some(b't') => (Some('\t'), 2),
            Some(b'r') => (Some('\r'), 2),
            Some(&mark @ (b'"' | b'\\' | b'/')) => (Some(char::from(mark)), 2),
            Some(b'u') => (code_unit(escape), 6),
            _ => (None, 1),
        };
        let length = length.min(escape.len());
        match letter {
            Some(letter) => into.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            None => into.extend_from_slice(&escape[..length]),
        }
        json = &escape[length..];
    }
    into.extend_from_slice(json);
}

/// Reads `\uXXXX`. Half of a pair is no letter; pairs are rare enough to stay as they stand.
fn code_unit(escape: &[u8]) -> Option<char> {
    let digits = std::str::from_utf8(escape.get(2..6)?).ok()?;
    char::from_u32(u32::from_str_radix(digits, 16).ok()?)
}

/// Leaves out what closes a list or a text, so that a longer one begins with it.
pub(super) fn open_ended(raw: &str) -> &str {
    raw.strip_suffix([']', '"']).unwrap_or(raw).trim_ascii_end()
}

/// A chain in the making: blocks run on from one part into the next.
struct Chain {
    hash: u64,
    blocks: Vec<u64>,
    /// The beginning of a block whose end has not come yet.
    begun: Vec<u8>,
    /// Blocks without a blank: the data of an attachment, or dense text.
    data_blocks: usize,
}

impl Chain {
    fn new(seed: u64, blocks: usize) -> Self {
        Self {
            hash: seed,
            blocks: Vec::with_capacity(blocks.min(BLOCKS_MAX)),
            begun: Vec::new(),
            data_blocks: 0,
        }
    }

    fn absorb(&mut self, mut bytes: &[u8]) {
        if !self.begun.is_empty() {
            let missing = (BLOCK_BYTES - self.begun.len()).min(bytes.len());
            let (end, rest) = bytes.split_at(missing);
            self.begun.extend_from_slice(end);
            bytes = rest;
            if self.begun.len() < BLOCK_BYTES {
                return;
            }
            let mut block = std::mem::take(&mut self.begun);
            self.add(&block);
            block.clear();
            self.begun = block;
        }
        let blocks = bytes.chunks_exact(BLOCK_BYTES);
        self.begun.extend_from_slice(blocks.remainder());
        for block in blocks {
            self.add(block);
        }
    }

    /// Hashes all of the prompt, what follows the last whole block included; never 0.
    fn digest(&self) -> u64 {
        XxHash3_64::oneshot_with_seed(self.hash, &self.begun).max(1)
    }

    /// Adds a whole block.
    fn add(&mut self, block: &[u8]) {
        if self.blocks.len() < BLOCKS_MAX {
            // Hashed without a seed and then joined: with a seed this length costs two thirds more.
            let own = XxHash3_64::oneshot(block);
            self.hash = XxHash3_64::oneshot_with_seed(self.hash, &own.to_le_bytes());
            self.blocks.push(self.hash);
        }
        self.data_blocks += usize::from(is_data(block));
    }
}

/// Tells base64 and its like from prose: no prose in any script or programming language goes on for a
/// whole block without a blank, a mark or a letter beyond ASCII.
fn is_data(block: &[u8]) -> bool {
    let is_base64 = |it: &u8| it.is_ascii_alphanumeric() || b"+/=-_".contains(it);
    let (probe, rest) = block.split_at(PROBE_BYTES.min(block.len()));
    // Text ends the probe at its first blank; only what passes is looked at whole.
    probe.iter().all(is_base64) && memchr3(b' ', b'"', b',', rest).is_none()
}

fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
