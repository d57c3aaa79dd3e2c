//! For each slot the nodes it holds, from the newest to the oldest. All lists live in one slab, and
//! one table finds the entry of a node and a slot, so that memory has one measure and one limit. Most
//! nodes are renewed by the slot that had them last, so each remembers that entry and spares the table.

use rustc_hash::FxHashMap;

use super::nodes::map_bytes;

const NOBODY: u32 = u32::MAX;

/// What one entry takes at worst, in each table just after it doubled.
pub(super) const ENTRY_BYTES_MAX: usize =
    2 * (size_of::<Entry>() + 2 * size_of::<u32>()) + 2 * 8 * (size_of::<(u64, u32)>() + 1) / 7 + 2;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// `NOBODY` in an entry that is free.
    node: u32,
    slot: u32,
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: u32,
    oldest: u32,
    count: usize,
}

#[derive(Debug, Default)]
pub(super) struct Shelves {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// The entry of a node in the high half and a slot in the low half.
    found: FxHashMap<u64, u32>,
    /// For each node the entry that was renewed last.
    latest: Vec<u32>,
    ends: Vec<Ends>,
}

impl Shelves {
    /// Adds a slot.
    pub(super) fn widen(&mut self) {
        self.ends.push(Ends { newest: NOBODY, oldest: NOBODY, count: 0 });
    }

    pub(super) fn count(&self, slot: usize) -> usize {
        self.ends[slot].count
    }

    pub(super) fn total(&self) -> usize {
        self.found.len()
    }

    /// Makes the node the newest of the slot; tells whether the slot did not have it before.
    pub(super) fn renew(&mut self, node: u32, slot: usize) -> bool {
        if let Some(entry) = self.find(node, slot) {
            self.latest[wide(node)] = entry;
            if self.ends[slot].newest != entry {
                self.unlink(entry, slot);
                self.link(entry, slot);
            }
            return false;
        }
        let fresh = Entry { node, slot: narrow(slot), newer: NOBODY, older: NOBODY };
        let entry = self.free.pop().unwrap_or_else(|| narrow(self.entries.len()));
        if wide(entry) == self.entries.len() {
            self.entries.push(fresh);
        } else {
            self.entries[wide(entry)] = fresh;
        }
        self.found.insert(key(node, slot), entry);
        if self.latest.len() <= wide(node) {
            self.latest.resize(wide(node) + 1, NOBODY);
        }
        self.latest[wide(node)] = entry;
        self.link(entry, slot);
        self.ends[slot].count += 1;
        true
    }

    /// Takes the oldest node off the slot and names it.
    pub(super) fn drop_oldest(&mut self, slot: usize) -> Option<u32> {
        let entry = self.ends[slot].oldest;
        let node = self.entries.get(wide(entry))?.node;
        self.unlink(entry, slot);
        self.ends[slot].count -= 1;
        self.found.remove(&key(node, slot));
        self.entries[wide(entry)].node = NOBODY;
        self.free.push(entry);
        Some(node)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Entry>() * self.entries.capacity()
            + size_of::<u32>() * (self.free.capacity() + self.latest.capacity())
            + map_bytes(self.found.capacity())
    }

    fn find(&self, node: u32, slot: usize) -> Option<u32> {
        let latest = *self.latest.get(wide(node))?;
        let is_it = |it: &Entry| it.node == node && wide(it.slot) == slot;
        if self.entries.get(wide(latest)).is_some_and(is_it) {
            return Some(latest);
        }
        self.found.get(&key(node, slot)).copied()
    }

    fn link(&mut self, entry: u32, slot: usize) {
        let ends = &mut self.ends[slot];
        let before = std::mem::replace(&mut ends.newest, entry);
        if before == NOBODY {
            ends.oldest = entry;
        } else {
            self.entries[wide(before)].newer = entry;
        }
        self.entries[wide(entry)].newer = NOBODY;
        self.entries[wide(entry)].older = before;
    }

    fn unlink(&mut self, entry: u32, slot: usize) {
        let Entry { newer, older, .. } = self.entries[wide(entry)];
        match newer {
            NOBODY => self.ends[slot].newest = older,
            newer => self.entries[wide(newer)].older = older,
        }
        match older {
            NOBODY => self.ends[slot].oldest = newer,
            older => self.entries[wide(older)].newer = newer,
        }
    }
}

fn key(node: u32, slot: usize) -> u64 {
    (u64::from(node) << 32) | u64::from(narrow(slot))
}

/// Shortens an index. The limit in bytes keeps tables far below what this can name.
pub(super) fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("tables are far smaller than that")
}

pub(super) fn wide(index: u32) -> usize {
    usize::try_from(index).expect("an address has at least 32 bits")
}
