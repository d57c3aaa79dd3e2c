//! Blocks by their hash, each with the set of slots that hold it: one bit a slot, as many words as
//! the slots need. A node nobody holds is taken out at once and its place used again.

use rustc_hash::FxHashMap;

use super::shelves::{narrow, wide};
use crate::domain::ReplicaId;

const WORD_BITS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Nodes {
    numbers: FxHashMap<u64, u32>,
    hashes: Vec<u64>,
    /// The holders of each node, `words` words each.
    holders: Vec<u64>,
    words: usize,
    free: Vec<u32>,
}

impl Nodes {
    /// Makes room for one bit per slot in every set.
    pub(super) fn widen(&mut self, slots: usize) {
        let words = slots.div_ceil(WORD_BITS);
        if self.words < words {
            let mut holders = vec![0; self.hashes.len() * words];
            for (node, set) in holders.chunks_exact_mut(words).enumerate() {
                set[..self.words].copy_from_slice(self.set(node));
            }
            (self.holders, self.words) = (holders, words);
        }
    }

    pub(super) fn find_or_add(&mut self, hash: u64) -> u32 {
        if let Some(&node) = self.numbers.get(&hash) {
            return node;
        }
        let node = self.free.pop().unwrap_or_else(|| narrow(self.hashes.len()));
        if wide(node) == self.hashes.len() {
            self.hashes.push(hash);
            self.holders.extend(std::iter::repeat_n(0, self.words));
        } else {
            self.hashes[wide(node)] = hash;
        }
        self.numbers.insert(hash, node);
        node
    }

    pub(super) fn add_holder(&mut self, node: u32, slot: usize) {
        self.holders[wide(node) * self.words + slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
    }

    /// Takes the slot out of the node's holders, and the node out when that was the last.
    pub(super) fn remove_holder(&mut self, node: u32, slot: usize) {
        self.holders[wide(node) * self.words + slot / WORD_BITS] &= !(1 << (slot % WORD_BITS));
        if self.set(wide(node)).iter().all(|it| *it == 0) {
            self.numbers.remove(&self.hashes[wide(node)]);
            self.free.push(node);
        }
    }

    pub(super) fn is_held(&self, hash: u64, slot: usize) -> bool {
        self.find(hash).is_some_and(|set| set[slot / WORD_BITS] & (1 << (slot % WORD_BITS)) != 0)
    }

    /// Tells whether everybody in `slots` holds the block.
    pub(super) fn all_hold(&self, hash: u64, slots: &[u64]) -> bool {
        self.find(hash).is_some_and(|set| slots.iter().zip(set).all(|(some, all)| some & !all == 0))
    }

    /// Leaves in `slots` those that hold the block; calls `lost` for each of the others.
    pub(super) fn keep_holders(&self, hash: u64, slots: &mut [u64], mut lost: impl FnMut(usize)) {
        let set = self.find(hash);
        for (word, bits) in slots.iter_mut().enumerate() {
            let held = set.map_or(0, |set| set[word]);
            each_of_word(word, *bits & !held, &mut lost);
            *bits &= held;
        }
    }

    /// What one node takes at worst, in each table just after it doubled.
    pub(super) fn node_bytes_max(&self) -> usize {
        let arrays = size_of::<u64>() * (1 + self.words) + size_of::<u32>();
        2 * arrays + map_bytes(2)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<u64>() * (self.hashes.capacity() + self.holders.capacity())
            + size_of::<u32>() * self.free.capacity()
            + map_bytes(self.numbers.capacity())
    }

    fn find(&self, hash: u64) -> Option<&[u64]> {
        self.numbers.get(&hash).map(|node| self.set(wide(*node)))
    }

    fn set(&self, node: usize) -> &[u64] {
        &self.holders[node * self.words..(node + 1) * self.words]
    }
}

/// Estimates what a hash table from a word to a number takes: eight buckets for seven entries, and
/// one byte of control for each.
pub(super) fn map_bytes(capacity: usize) -> usize {
    (capacity * 8).div_ceil(7) * (size_of::<(u64, u32)>() + 1)
}

/// Makes the set of the slots that somebody has.
pub(super) fn all_of(replicas: &[Option<ReplicaId>], set: &mut Vec<u64>) {
    set.clear();
    set.resize(replicas.len().div_ceil(WORD_BITS), 0);
    for (slot, _) in replicas.iter().enumerate().filter(|(_, it)| it.is_some()) {
        set[slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
    }
}

/// Calls `found` for every slot in the set.
pub(super) fn each(set: &[u64], mut found: impl FnMut(usize)) {
    for (word, bits) in set.iter().enumerate() {
        each_of_word(word, *bits, &mut found);
    }
}

fn each_of_word(word: usize, mut bits: u64, found: &mut impl FnMut(usize)) {
    while bits != 0 {
        found(word * WORD_BITS + wide(bits.trailing_zeros()));
        bits &= bits - 1;
    }
}
