//! What is cached, and where? An estimate: what was sent to each replica, forgotten oldest first.
//! Nobody tells it what an engine has really kept, and it holds no text, only the chained hashes of
//! blocks. Memory has one limit in bytes for all replicas together; a tree of prompts would hold
//! shared text once, but bounding it and taking a replica out of it cost a walk through all of it.
//!
//! A replica is always believed to hold a block's whole prefix with it: blocks are renewed from the
//! last to the first, so the end of a prompt is forgotten before its beginning. Hence looking up a
//! prompt needs only the few blocks where the number of its holders changes.

mod nodes;
mod shelves;

use rustc_hash::FxHashMap;

use crate::domain::ReplicaId;

use nodes::Nodes;
use shelves::Shelves;

/// How many entries of departed replicas are cleared for each block that is remembered.
const CLEARED_PER_BLOCK: usize = 2;

/// Which replica was sent which blocks.
#[derive(Debug)]
pub struct PrefixIndex {
    bytes_max: usize,
    nodes: Nodes,
    shelves: Shelves,
    slots: FxHashMap<ReplicaId, usize>,
    /// Who has each slot; `None` for those free or being cleared.
    replicas: Vec<Option<ReplicaId>>,
    /// Slots whose replica has left and whose entries are not all cleared yet.
    leaving: Vec<usize>,
    free: Vec<usize>,
    /// Results of the last look-up, by slot; reused by the next.
    depths: Vec<u32>,
    alive: Vec<u64>,
}

impl PrefixIndex {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            nodes: Nodes::default(),
            shelves: Shelves::default(),
            slots: FxHashMap::default(),
            replicas: Vec::new(),
            leaving: Vec::new(),
            free: Vec::new(),
            depths: Vec::new(),
            alive: Vec::new(),
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

    /// Finds who is believed to hold the longest beginning of the prompt, and how many blocks of it;
    /// of several the one with the lowest id.
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
        blocks.partition_point(|it| self.nodes.is_held(*it, slot))
    }

    /// Counts the blocks that a replica is believed to hold.
    pub fn held(&self, replica: ReplicaId) -> usize {
        self.slots.get(&replica).map_or(0, |slot| self.shelves.count(*slot))
    }

    /// Notes that the replica was sent these blocks. It is believed to hold `blocks_max` at most.
    pub fn remember(&mut self, replica: ReplicaId, blocks: &[u64], blocks_max: usize) {
        let slot = self.slot(replica);
        self.clear_departed(CLEARED_PER_BLOCK * blocks.len());
        let entries_max = self.entries_max();
        // What goes beyond the room would only push out its own beginning.
        let blocks = &blocks[..blocks.len().min(blocks_max).min(entries_max)];
        let mut victim = None;
        for block in blocks.iter().rev() {
            let node = self.nodes.find_or_add(*block);
            if self.shelves.renew(node, slot) {
                self.nodes.add_holder(node, slot);
            }
            while entries_max < self.shelves.total() {
                let full = victim.filter(|it| 0 < self.shelves.count(*it));
                let full = full.unwrap_or_else(|| self.fullest());
                self.forget_one(full);
                victim = Some(full);
            }
        }
        while blocks_max < self.shelves.count(slot) {
            self.forget_one(slot);
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
        self.nodes.bytes() + self.shelves.bytes()
    }

    /// Measures for every slot how deep its replica holds the prompt.
    fn descend(&mut self, blocks: &[u64]) {
        self.depths.clear();
        self.depths.resize(self.replicas.len(), 0);
        nodes::all_of(&self.replicas, &mut self.alive);
        let (mut at, mut step) = (0, 1);
        // All that are alive hold everything before `at`; leap as long as all hold where it lands.
        while at < blocks.len() && self.alive.iter().any(|it| *it != 0) {
            let probe = (at + step).min(blocks.len()) - 1;
            if self.nodes.all_hold(blocks[probe], &self.alive) {
                at = probe + 1;
                step *= 2;
            } else if probe == at {
                let depth = u32::try_from(at).unwrap_or(u32::MAX);
                let depths = &mut self.depths;
                self.nodes.keep_holders(blocks[at], &mut self.alive, |slot| depths[slot] = depth);
                (at, step) = (at + 1, 1);
            } else {
                step = (probe + 1 - at) / 2;
            }
        }
        let depth = u32::try_from(at).unwrap_or(u32::MAX);
        nodes::each(&self.alive, |slot| self.depths[slot] = depth);
    }

    fn slot(&mut self, replica: ReplicaId) -> usize {
        if let Some(&slot) = self.slots.get(&replica) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or(self.replicas.len());
        if slot == self.replicas.len() {
            self.replicas.push(None);
            self.shelves.widen();
            self.nodes.widen(self.replicas.len());
        }
        self.replicas[slot] = Some(replica);
        self.slots.insert(replica, slot);
        slot
    }

    /// Divides the bytes by what an entry takes at worst: a node of its own, and every table just
    /// after it doubled.
    fn entries_max(&self) -> usize {
        self.bytes_max / (shelves::ENTRY_BYTES_MAX + self.nodes.node_bytes_max())
    }

    /// Names the slot that should make room: one that is being cleared, else the fullest.
    fn fullest(&self) -> usize {
        let leaving = self.leaving.iter().copied().find(|it| 0 < self.shelves.count(*it));
        let slots = 0..self.replicas.len();
        leaving.or_else(|| slots.max_by_key(|it| self.shelves.count(*it))).unwrap_or(0)
    }

    fn clear_departed(&mut self, entries: usize) {
        for _ in 0..entries {
            let Some(&slot) = self.leaving.last() else { return };
            if self.shelves.count(slot) == 0 {
                self.leaving.pop();
                self.free.push(slot);
            } else {
                self.forget_one(slot);
            }
        }
    }

    fn forget_one(&mut self, slot: usize) {
        if let Some(node) = self.shelves.drop_oldest(slot) {
            self.nodes.remove_holder(node, slot);
        }
    }
}

#[cfg(test)]
mod tests;
