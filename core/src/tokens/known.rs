//! How long beginnings of prompts are, for prompts that were counted. A conversation grows at its
//! end, so of its next turn all but the end is known to the token, and only the end must be
//! estimated from its bytes. Beginnings are named by the hash of their last block, at a fixed
//! stride of blocks only: that keeps the search short, and what lies between is shared out evenly
//! over the prompt's own bytes.
//!
//! A beginning is known to the workload that taught it, so that no tenant is taught by another's.

use crate::domain::{Extent, Outline, SliceKey};

use super::ratio::is_text;
use super::recent::Recent;

/// Beginnings that are remembered: about two MiB.
const BEGINNINGS_MAX: usize = 32_768;
/// A beginning is noted, and looked for, at multiples of this many blocks.
const STRIDE_BLOCKS: usize = 16;
/// How many places are looked at, from the end: a turn may add a quarter of a MiB.
const PROBES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct KnownBeginnings(Recent<f64>);

/// A beginning whose length is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Beginning {
    pub(super) bytes: u32,
    pub(super) tokens: f64,
}

impl Default for KnownBeginnings {
    fn default() -> Self {
        Self(Recent::new(BEGINNINGS_MAX))
    }
}

impl KnownBeginnings {
    /// Finds the longest beginning whose length is known.
    pub(super) fn longest(
        &self,
        key: SliceKey,
        extent: &Extent,
        outline: &Outline,
    ) -> Option<Beginning> {
        let last = outline.blocks.len() / STRIDE_BLOCKS;
        (1..=last).rev().take(PROBES_MAX).find_map(|stride| {
            let blocks = stride * STRIDE_BLOCKS;
            let tokens = *self.0.get(name(key, outline.blocks[blocks - 1]))?;
            Some(Beginning { bytes: bytes_in(blocks, extent), tokens })
        })
    }

    /// Notes what a beginning came to.
    pub(super) fn learn(&mut self, key: SliceKey, block: u64, tokens: f64) {
        *self.0.get_or_insert(name(key, block)) = tokens;
    }
}

/// Says what the beginning of a prompt came to, and by which block it is known, if text can come to that.
pub(super) fn beginning(extent: &Extent, outline: &Outline, tokens: u32) -> Option<(u64, f64)> {
    let blocks = outline.blocks.len() / STRIDE_BLOCKS * STRIDE_BLOCKS;
    let last = blocks.checked_sub(1).filter(|_| is_text(extent.text_bytes, tokens))?;
    let share = f64::from(bytes_in(blocks, extent)) / f64::from(extent.text_bytes.max(1));
    Some((outline.blocks[last], f64::from(tokens) * share.min(1.0)))
}

/// Names a beginning of one workload's prompts.
const fn name(key: SliceKey, block: u64) -> u64 {
    /// Odd, so that no two workloads meet.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    block ^ (key.0 >> 32).wrapping_mul(SPREAD)
}

fn bytes_in(blocks: usize, extent: &Extent) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX).saturating_mul(extent.block_bytes)
}
