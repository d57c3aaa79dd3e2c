//! How a prompt is recognised when it comes again.

use crate::domain::{Extent, Outline, SliceKey};

/// A prompt of a workload, whatever session it comes in; 0 when nothing is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Marks a request by its workload and its whole prompt; 0 when its prompt is not known.
    pub(in crate::brain) fn of(key: SliceKey, outline: &Outline, extent: &Extent) -> Self {
        let last = outline.blocks.last().copied().unwrap_or(0);
        if last == 0 && extent.digest == 0 {
            return Self(0);
        }
        let parts = [
            u64::from(key.workload()),
            last,
            extent.digest,
            u64::from(extent.text_bytes),
            u64::from(extent.attachment_bytes),
        ];
        let mixed = parts.iter().fold(0x9E37_79B9_7F4A_7C15_u64, |hash, part| {
            (hash.rotate_left(23) ^ part).wrapping_mul(0xD6E8_FEB8_6659_FD93)
        });
        Self(mixed.max(1))
    }
}
