//! What is cached, and where? An estimate: the prompts sent to each replica, forgotten oldest
//! first. Engines do not report what they have really kept. The index holds no text, only the
//! chained hashes of blocks. Memory has one limit in bytes for all replicas together.
//!
//! A replica is always believed to hold a block's whole prefix with it: a prompt is renewed from its
//! last block to its first, so the end of a prompt is forgotten before its beginning. Hence blocks
//! that were sent together age together, and are kept as one stretch with one place in the order of
//! each replica; a table of single blocks would cost a probe and two links for each of thousands.

mod anchors;
mod lru;
mod stretches;
mod told;

use rustc_hash::FxHashMap;

use crate::domain::ReplicaId;

use anchors::Anchors;
use lru::{LruOrder, wide};
use stretches::{BLOCK_BYTES, HOLDER_BYTES, Stretches};
pub use told::likeness;

/// How many blocks of departed replicas are cleared for each block that is remembered.
const CLEARED_PER_BLOCK: usize = 2;

/// Tables begin with a few places; below that they cannot be bounded, and nothing is remembered.
const ENTRIES_MIN: usize = 4;

/// Which replica was sent which blocks.
#[derive(Debug)]
pub struct PrefixIndex {
    bytes_max: usize,
    stretches: Stretches,
    lru: LruOrder,
    slots: FxHashMap<ReplicaId, usize>,
    /// The replica of each slot; `None` for slots that are free or being cleared.
    replicas: Vec<Option<ReplicaId>>,
    /// Slots whose replica has left and whose blocks are not all cleared yet.
    leaving: Vec<usize>,
    free: Vec<usize>,
    /// Results of the last look-up, by slot; reused by the next.
    depths: Vec<u32>,
    /// The stretches of the prompt that is being remembered; reused by the next.
    path: Vec<u32>,
    /// Where blocks are found by their hash alone; empty unless other routers tell of theirs.
    anchors: Anchors,
}

/// What a prompt needs that is not there yet.
#[derive(Clone, Copy, Debug)]
struct Need {
    entries: usize,
    heap_bytes: usize,
}

/// How far a prompt is known, along `path`.
#[derive(Clone, Copy, Debug)]
struct KnownPart {
    blocks: usize,
    /// Those of them that lie in the last stretch of the path.
    in_last: usize,
}

impl PrefixIndex {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            stretches: Stretches::default(),
            lru: LruOrder::default(),
            slots: FxHashMap::default(),
            replicas: Vec::new(),
            leaving: Vec::new(),
            free: Vec::new(),
            depths: Vec::new(),
            path: Vec::new(),
            anchors: Anchors::default(),
        }
    }

    /// Counts, for each of `replicas` in turn, the leading blocks it is believed to hold.
    pub fn look_up(
        &mut self,
        blocks: &[u64],
        replicas: impl Iterator<Item = ReplicaId>,
        depths: &mut Vec<u32>,
    ) {
        self.descend(blocks);
        depths.clear();
        depths.extend(replicas.map(|it| self.slots.get(&it).map_or(0, |slot| self.depths[*slot])));
    }

    /// Finds the replica that is believed to hold the longest beginning of the prompt, and how many
    /// blocks of it. Of several, the one with the lowest id.
    pub fn deepest(&mut self, blocks: &[u64]) -> Option<(ReplicaId, u32)> {
        self.descend(blocks);
        let held = self.replicas.iter().zip(&self.depths);
        let held = held.filter_map(|(replica, depth)| replica.map(|it| (it, *depth)));
        let deepest = held.min_by_key(|(replica, depth)| (u32::MAX - depth, *replica));
        deepest.filter(|(_, depth)| 0 < *depth)
    }

    /// Counts the leading blocks that one replica is believed to hold.
    pub fn depth(&self, blocks: &[u64], replica: ReplicaId) -> usize {
        let Some(&slot) = self.slots.get(&replica) else { return 0 };
        let mut depth = 0;
        self.stretches.walk(blocks, |_, stretch, before, alike| {
            if depth == before {
                depth += stretch.holder(slot).map_or(0, |it| wide(it.held).min(alike));
            }
        });
        depth
    }

    /// Counts the blocks that a replica is believed to hold.
    pub fn held(&self, replica: ReplicaId) -> usize {
        self.slots.get(&replica).map_or(0, |slot| self.lru.blocks(*slot))
    }

    /// Notes that the replica was sent these blocks. It is believed to hold `blocks_max` at most.
    pub fn remember(&mut self, replica: ReplicaId, blocks: &[u64], blocks_max: usize) {
        let slot = self.slot(replica);
        self.clear_departed(CLEARED_PER_BLOCK * blocks.len());
        // What goes beyond the room would only push out its own beginning.
        let room = self.heap_bytes_max().saturating_sub(HOLDER_BYTES) / BLOCK_BYTES;
        let blocks = &blocks[..blocks.len().min(blocks_max).min(room)];
        if blocks.is_empty() || self.entries_max() < ENTRIES_MIN {
            return;
        }
        let known = self.make_room(slot, blocks);
        self.insert(slot, blocks, known);
        while blocks_max < self.lru.blocks(slot) {
            self.forget_oldest(slot, self.lru.blocks(slot) - blocks_max);
        }
    }

    /// Forgets all about a replica; what it held is cleared bit by bit as others are remembered.
    pub fn forget(&mut self, replica: ReplicaId) {
        if let Some(slot) = self.slots.remove(&replica) {
            self.replicas[slot] = None;
            self.leaving.push(slot);
        }
    }

    /// Measures the memory it has taken.
    pub fn bytes(&self) -> usize {
        self.stretches.bytes() + self.lru.bytes() + self.anchors.bytes()
    }

    /// Measures for every slot how deep its replica holds the prompt.
    fn descend(&mut self, blocks: &[u64]) {
        let depths = &mut self.depths;
        depths.clear();
        depths.resize(self.replicas.len(), 0);
        self.stretches.walk(blocks, |_, stretch, before, alike| {
            for holder in stretch.holders() {
                let depth = &mut depths[wide(holder.slot)];
                // A replica that lacks some of what came before has lost all of this.
                if wide(*depth) == before {
                    *depth += holder.held.min(u32::try_from(alike).unwrap_or(u32::MAX));
                }
            }
        });
    }

    fn slot(&mut self, replica: ReplicaId) -> usize {
        if let Some(&slot) = self.slots.get(&replica) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or(self.replicas.len());
        if slot == self.replicas.len() {
            self.replicas.push(None);
            self.lru.widen();
        }
        self.replicas[slot] = Some(replica);
        self.slots.insert(replica, slot);
        slot
    }

    /// Forgets until what the prompt needs fits, and follows the prompt along what is left.
    fn make_room(&mut self, slot: usize, blocks: &[u64]) -> KnownPart {
        loop {
            let (known, need) = self.follow(slot, blocks);
            let mut is_changed = false;
            while let Some(blocks) = self.lacking(need)
                && let Some(full) = self.fullest()
            {
                self.forget_oldest(full, blocks);
                is_changed = true;
            }
            // What was forgotten may have been part of this prompt.
            if !is_changed {
                return known;
            }
        }
    }

    /// Follows the prompt along `path`, and counts what remembering it for the slot will take.
    fn follow(&mut self, slot: usize, blocks: &[u64]) -> (KnownPart, Need) {
        self.path.clear();
        let path = &mut self.path;
        let (mut in_last, mut entries) = (0, 0);
        let known = self.stretches.walk(blocks, |number, stretch, _, alike| {
            path.push(number);
            in_last = alike;
            entries += usize::from(stretch.holder(slot).is_none());
        });
        let known = KnownPart { blocks: known, in_last };
        if self.is_cut(slot, blocks, known) {
            let last = *self.path.last().expect("what is cut was found");
            entries += self.stretches.get(last).holders().len();
        }
        // The rest of the prompt is one stretch at most.
        entries += usize::from(known.blocks < blocks.len());
        let more_blocks = blocks.len() - known.blocks;
        let heap_bytes = more_blocks * BLOCK_BYTES + entries * HOLDER_BYTES;
        (known, Need { entries, heap_bytes })
    }

    /// Tells whether the last stretch of the path must be cut: the prompt parts from it, or ends within
    /// what the slot holds of it, so that its two parts will not be equally old.
    fn is_cut(&self, slot: usize, blocks: &[u64], known: KnownPart) -> bool {
        let Some(last) = self.path.last().map(|it| self.stretches.get(*it)) else { return false };
        let held = last.holder(slot).map_or(0, |it| wide(it.held));
        known.in_last < last.len() && (known.blocks < blocks.len() || known.in_last < held)
    }

    /// Writes the prompt along the path it was followed on, and makes it the slot's newest.
    fn insert(&mut self, slot: usize, blocks: &[u64], known: KnownPart) {
        let mut in_last = known.in_last;
        if self.is_cut(slot, blocks, known) {
            let last = self.path.pop().expect("what is cut was found");
            let upper = self.cut(last, known.in_last);
            self.path.push(upper);
        }
        if known.blocks < blocks.len() {
            let before = self.path.last().copied();
            let last = self.stretches.append(before, &blocks[known.blocks..]);
            if before != Some(last) {
                self.path.push(last);
            }
            in_last = self.stretches.get(last).len();
        }
        self.note_anchors(blocks, known.blocks);
        let Self { stretches, lru, path, .. } = self;
        for (position, stretch) in path.iter().enumerate().rev() {
            let is_end = position + 1 == path.len();
            let count = if is_end { in_last } else { stretches.get(*stretch).len() };
            let (entry, more) = stretches.hold(*stretch, slot, count, || lru.enter(*stretch, slot));
            lru.add_blocks(slot, more);
            lru.renew(entry, slot);
        }
    }

    /// Cuts a stretch, and the order of every slot with it: the upper part is next newer than the
    /// lower.
    fn cut(&mut self, stretch: u32, count: usize) -> u32 {
        let lru = &mut self.lru;
        self.stretches.cut(stretch, count, |holder, upper, holds_lower| {
            if holds_lower {
                lru.enter_before(upper, wide(holder.slot), holder.entry)
            } else {
                lru.rename(holder.entry, upper);
                holder.entry
            }
        })
    }

    /// Counts the blocks that should go so that there is room; `None` when there is.
    fn lacking(&self, need: Need) -> Option<usize> {
        if self.entries_max() < self.lru.entries() + need.entries {
            return Some(usize::MAX);
        }
        let over = self.stretches.heap_bytes() + need.heap_bytes;
        let over = over.saturating_sub(self.heap_bytes_max());
        (0 < over).then(|| over.div_ceil(BLOCK_BYTES))
    }

    /// One half of the bytes is for tables, which hold an entry and a stretch of its own at worst; the
    /// other for what stretches consist of.
    fn entries_max(&self) -> usize {
        self.bytes_max / 2 / (lru::ENTRY_BYTES_MAX + stretches::TABLE_BYTES_MAX)
    }

    fn heap_bytes_max(&self) -> usize {
        self.bytes_max / 2
    }

    /// Names the slot that should make room: one that is being cleared, else the fullest.
    fn fullest(&self) -> Option<usize> {
        let leaving = self.leaving.iter().copied().find(|it| 0 < self.lru.blocks(*it));
        let slots = 0..self.replicas.len();
        let fullest = leaving.or_else(|| slots.max_by_key(|it| self.lru.blocks(*it)));
        fullest.filter(|it| 0 < self.lru.blocks(*it))
    }

    fn clear_departed(&mut self, mut blocks: usize) {
        while 0 < blocks {
            let Some(&slot) = self.leaving.last() else { return };
            if self.lru.blocks(slot) == 0 {
                self.leaving.pop();
                self.free.push(slot);
            }
            blocks -= self.forget_oldest(slot, blocks).clamp(1, blocks);
        }
    }

    /// Forgets up to `blocks` blocks, those that were sent to the slot longest ago; returns how
    /// many.
    fn forget_oldest(&mut self, slot: usize, blocks: usize) -> usize {
        let Some((entry, stretch)) = self.lru.oldest(slot) else { return 0 };
        let gone = self.stretches.let_go(stretch, slot, blocks);
        self.lru.take_blocks(slot, gone.blocks);
        if gone.is_all {
            self.lru.remove(entry, slot);
        }
        wide(gone.blocks)
    }
}

#[cfg(test)]
mod tests;
