//! Finds blocks by their hash alone. Walking from the beginning needs the whole prompt, and another router that
//! tells of a prompt sends only what is new of it. Every sixteenth block of a prompt is an anchor, so that routers
//! choose the same ones without asking. The table has a fixed size and forgets what it has no place for; then the
//! beginning of a prompt is asked for once more.

use super::lru::wide;

/// How many blocks lie between two anchors. A message repeats up to this many less one.
pub(super) const STEP: usize = 16;
/// Places in the table: four million blocks have an anchor each sixteenth.
const PLACES: usize = 1 << 18;

/// Each place holds a hash and the stretch that it was last seen in. The block may be in a stretch above that by
/// now, and the stretch may be another: what is found must be checked.
#[derive(Debug, Default)]
pub(super) struct Anchors(Vec<(u64, u32)>);

impl Anchors {
    pub(super) fn turn_on(&mut self) {
        if self.0.is_empty() {
            self.0 = vec![(0, 0); PLACES];
        }
    }

    pub(super) fn turn_off(&mut self) {
        self.0 = Vec::new();
    }

    pub(super) fn is_on(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn note(&mut self, hash: u64, stretch: u32) {
        let at = place(hash);
        if let Some(it) = self.0.get_mut(at) {
            *it = (hash, stretch);
        }
    }

    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        self.0.get(place(hash)).filter(|it| it.0 == hash).map(|it| it.1)
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<(u64, u32)>()
    }
}

fn place(hash: u64) -> usize {
    // The high bits of a product are the well-mixed ones.
    let spread = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 46;
    wide(u32::try_from(spread).unwrap_or(0)) & (PLACES - 1)
}
