//! For each slot the stretches it holds, from the newest to the oldest, and how many blocks they are.
//! All lists live in one slab, so that memory has one measure and one limit.

/// No entry, no stretch.
pub(super) const NONE: u32 = u32::MAX;

/// What one entry takes at worst, in each table just after it doubled.
pub(super) const ENTRY_BYTES_MAX: usize = 2 * (size_of::<LruEntry>() + size_of::<u32>());

#[derive(Clone, Copy, Debug)]
struct LruEntry {
    stretch: u32,
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: u32,
    oldest: u32,
    blocks: usize,
}

#[derive(Debug, Default)]
pub(super) struct LruOrder {
    entries: Vec<LruEntry>,
    free: Vec<u32>,
    ends: Vec<Ends>,
}

impl LruOrder {
    /// Adds a slot.
    pub(super) fn widen(&mut self) {
        self.ends.push(Ends { newest: NONE, oldest: NONE, blocks: 0 });
    }

    /// Counts the blocks on a slot.
    pub(super) fn blocks(&self, slot: usize) -> usize {
        self.ends[slot].blocks
    }

    /// Counts the entries of all slots.
    pub(super) fn entries(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Puts a stretch on the slot, as its newest.
    pub(super) fn enter(&mut self, stretch: u32, slot: usize) -> u32 {
        let entry = self.make(stretch);
        self.link(entry, slot, self.ends[slot].newest, NONE);
        entry
    }

    /// Puts a stretch on the slot, next newer than an entry that is there.
    pub(super) fn enter_before(&mut self, stretch: u32, slot: usize, older: u32) -> u32 {
        let entry = self.make(stretch);
        self.link(entry, slot, older, self.entries[wide(older)].newer);
        entry
    }

    /// Makes the entry stand for another stretch.
    pub(super) fn rename(&mut self, entry: u32, stretch: u32) {
        self.entries[wide(entry)].stretch = stretch;
    }

    /// Makes an entry the newest of its slot.
    pub(super) fn renew(&mut self, entry: u32, slot: usize) {
        if self.ends[slot].newest != entry {
            self.unlink(entry, slot);
            self.link(entry, slot, self.ends[slot].newest, NONE);
        }
    }

    /// Counts blocks that came to a slot.
    pub(super) fn add_blocks(&mut self, slot: usize, blocks: u32) {
        self.ends[slot].blocks += wide(blocks);
    }

    /// Counts blocks that left a slot.
    pub(super) fn take_blocks(&mut self, slot: usize, blocks: u32) {
        self.ends[slot].blocks -= wide(blocks);
    }

    /// Names the oldest entry of a slot, and its stretch.
    pub(super) fn oldest(&self, slot: usize) -> Option<(u32, u32)> {
        let entry = self.ends[slot].oldest;
        Some((entry, self.entries.get(wide(entry))?.stretch))
    }

    /// Lists the stretches of a slot, from the oldest to the newest.
    pub(super) fn oldest_first(&self, slot: usize) -> impl Iterator<Item = u32> + '_ {
        let mut entry = self.ends[slot].oldest;
        std::iter::from_fn(move || {
            let it = self.entries.get(wide(entry))?;
            entry = it.newer;
            Some(it.stretch)
        })
    }

    pub(super) fn remove(&mut self, entry: u32, slot: usize) {
        self.unlink(entry, slot);
        self.free.push(entry);
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<LruEntry>() * self.entries.capacity() + size_of::<u32>() * self.free.capacity()
    }

    fn make(&mut self, stretch: u32) -> u32 {
        let fresh = LruEntry { stretch, newer: NONE, older: NONE };
        let entry = self.free.pop().unwrap_or_else(|| narrow(self.entries.len()));
        if wide(entry) == self.entries.len() {
            self.entries.push(fresh);
        } else {
            self.entries[wide(entry)] = fresh;
        }
        entry
    }

    fn link(&mut self, entry: u32, slot: usize, older: u32, newer: u32) {
        let it = &mut self.entries[wide(entry)];
        (it.older, it.newer) = (older, newer);
        *self.newer_of(older, slot) = entry;
        *self.older_of(newer, slot) = entry;
    }

    fn unlink(&mut self, entry: u32, slot: usize) {
        let LruEntry { newer, older, .. } = self.entries[wide(entry)];
        *self.newer_of(older, slot) = newer;
        *self.older_of(newer, slot) = older;
    }

    /// Returns the place that says what is newer than `entry`; of nothing, that is the oldest.
    fn newer_of(&mut self, entry: u32, slot: usize) -> &mut u32 {
        if entry == NONE {
            &mut self.ends[slot].oldest
        } else {
            &mut self.entries[wide(entry)].newer
        }
    }

    fn older_of(&mut self, entry: u32, slot: usize) -> &mut u32 {
        if entry == NONE {
            &mut self.ends[slot].newest
        } else {
            &mut self.entries[wide(entry)].older
        }
    }
}

/// Shortens an index. The limit in bytes keeps tables far below what this can name.
pub(super) fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("tables are far smaller than that")
}

pub(super) fn wide(index: u32) -> usize {
    usize::try_from(index).expect("an address has at least 32 bits")
}
