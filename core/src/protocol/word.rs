//! A key or a short value of a JSON text that comes in pieces. Only words that are looked for matter, so a longer
//! one is not kept: it is none of them.

/// A word of up to `MAX` bytes, or a longer one that is not kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<const MAX: usize> {
    bytes: [u8; MAX],
    /// More than fit for a word that is none of those looked for.
    length: usize,
}

impl<const MAX: usize> Default for Word<MAX> {
    fn default() -> Self {
        Self { bytes: [0; MAX], length: 0 }
    }
}

impl<const MAX: usize> Word<MAX> {
    pub(super) fn push(&mut self, text: &[u8]) {
        let end = self.length.saturating_add(text.len());
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(text);
        }
        self.length = end;
    }

    pub(super) fn is(&self, name: &[u8]) -> bool {
        self.known() == Some(name)
    }

    /// The word, if it is short enough to be one that is looked for.
    pub(super) fn known(&self) -> Option<&[u8]> {
        self.bytes.get(..self.length)
    }
}
