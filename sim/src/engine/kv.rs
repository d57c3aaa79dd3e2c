//! Paged KV memory: blocks with reference counts, found by the hash of their prefix. Blocks without
//! a holder stay in one list, worthless ones at its front and cached ones behind in the order of
//! their last use, so that allocating takes the front and evicting costs nothing extra. The list
//! runs through the blocks themselves: no allocation after the start, memory fixed.

use rustc_hash::FxHashMap;

use super::sequence::index;

/// The number of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockId(u32);

/// What became findable, or ceased to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvChange {
    Stored(u64),
    Evicted(u64),
}

/// How much of a prompt is in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixHit {
    pub(crate) blocks: u32,
    /// Those among them without a holder; holding them makes them unavailable to others.
    pub(super) unheld_blocks: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    hash: Option<u64>,
    refs: u32,
    before: u32,
    after: u32,
}

#[derive(Debug)]
pub(crate) struct KvPool {
    blocks: Vec<Block>,
    by_hash: FxHashMap<u64, u32>,
    first: u32,
    last: u32,
    available: u32,
    releases: u64,
    /// What has changed since it was last read; kept only if it will be read.
    journal: Option<Vec<KvChange>>,
}

impl KvPool {
    pub(crate) fn new(total: u32) -> Self {
        assert!(total < NONE, "block numbers are 32 bits");
        let empty = Block { hash: None, refs: 0, before: NONE, after: NONE };
        let mut pool = Self {
            blocks: vec![empty; index(total)],
            by_hash: FxHashMap::default(),
            first: NONE,
            last: NONE,
            available: 0,
            releases: 0,
            journal: None,
        };
        (0..total).for_each(|block| pool.push_last(block));
        pool
    }

    pub(super) fn total(&self) -> u32 {
        u32::try_from(self.blocks.len()).expect("checked when the pool was made")
    }

    /// Counts the blocks without a holder, cached ones included.
    pub(super) fn available(&self) -> u32 {
        self.available
    }

    pub(super) fn held(&self) -> u32 {
        self.total() - self.available
    }

    /// Counts how often a block was given back so far.
    pub(super) fn releases(&self) -> u64 {
        self.releases
    }

    /// Finds the longest run of leading blocks that are in the cache.
    pub(crate) fn find_prefix(&self, hashes: &[u64]) -> PrefixHit {
        let mut hit = PrefixHit::default();
        for block in hashes.iter().map_while(|hash| self.by_hash.get(hash)) {
            hit.blocks += 1;
            hit.unheld_blocks += u32::from(self.blocks[index(*block)].refs == 0);
        }
        hit
    }

    /// Holds the cached block with this name.
    pub(crate) fn hold(&mut self, hash: u64) -> Option<BlockId> {
        let block = *self.by_hash.get(&hash)?;
        if self.blocks[index(block)].refs == 0 {
            self.unlink(block);
        }
        self.blocks[index(block)].refs += 1;
        Some(BlockId(block))
    }

    /// Takes the block whose content is missed least, and forgets that content.
    pub(crate) fn allocate(&mut self) -> Option<BlockId> {
        let block = Some(self.first).filter(|first| *first != NONE)?;
        self.unlink(block);
        let it = &mut self.blocks[index(block)];
        it.refs = 1;
        if let Some(hash) = it.hash.take() {
            self.by_hash.remove(&hash);
            if let Some(journal) = &mut self.journal {
                journal.push(KvChange::Evicted(hash));
            }
        }
        Some(BlockId(block))
    }

    /// Makes a held block findable. When another block already has this name, the copy stays
    /// nameless and goes first when it is given back.
    pub(crate) fn name(&mut self, BlockId(block): BlockId, hash: u64) {
        let it = &mut self.blocks[index(block)];
        assert!(0 < it.refs && it.hash.is_none(), "only a fresh block is named");
        if let std::collections::hash_map::Entry::Vacant(place) = self.by_hash.entry(hash) {
            place.insert(block);
            it.hash = Some(hash);
            if let Some(journal) = &mut self.journal {
                journal.push(KvChange::Stored(hash));
            }
        }
    }

    pub(crate) fn release(&mut self, BlockId(block): BlockId) {
        let it = &mut self.blocks[index(block)];
        assert!(0 < it.refs, "block {block} is given back more often than it was taken");
        it.refs -= 1;
        self.releases += 1;
        match (it.refs, it.hash) {
            (0, Some(_)) => self.push_last(block),
            (0, None) => self.push_first(block),
            (_, _) => {}
        }
    }

    /// Starts to note what becomes findable and what ceases to be.
    pub(super) fn keep_journal(&mut self) {
        self.journal.get_or_insert_default();
    }

    /// Takes what was noted since the last call.
    pub(super) fn drain_journal(&mut self) -> impl Iterator<Item = KvChange> {
        self.journal.as_mut().map(|it| it.drain(..)).into_iter().flatten()
    }

    fn push_last(&mut self, block: u32) {
        self.link(block, self.last, NONE);
    }

    fn push_first(&mut self, block: u32) {
        self.link(block, NONE, self.first);
    }

    fn link(&mut self, block: u32, before: u32, after: u32) {
        let it = &mut self.blocks[index(block)];
        (it.before, it.after) = (before, after);
        *self.after_of(before) = block;
        *self.before_of(after) = block;
        self.available += 1;
    }

    fn unlink(&mut self, block: u32) {
        let Block { before, after, .. } = self.blocks[index(block)];
        *self.after_of(before) = after;
        *self.before_of(after) = before;
        self.available -= 1;
    }

    /// Returns the place that says what follows `block`; of nothing, that is the list's head.
    fn after_of(&mut self, block: u32) -> &mut u32 {
        if block == NONE { &mut self.first } else { &mut self.blocks[index(block)].after }
    }

    fn before_of(&mut self, block: u32) -> &mut u32 {
        if block == NONE { &mut self.last } else { &mut self.blocks[index(block)].before }
    }

    /// Walks the list of blocks without a holder, the next to be evicted first.
    pub(super) fn unheld(&self) -> impl Iterator<Item = BlockId> {
        let next = |block: u32| Some(block).filter(|it| *it != NONE);
        std::iter::successors(next(self.first), move |block| next(self.blocks[index(*block)].after))
            .map(BlockId)
    }

    pub(super) fn refs(&self, BlockId(block): BlockId) -> u32 {
        self.blocks[index(block)].refs
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = BlockId> {
        (0..self.total()).map(BlockId)
    }

    /// Lists the names of all cached blocks, in the order of the blocks.
    pub(super) fn names(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().filter_map(|it| it.hash)
    }

    /// Says whether every name leads to the block that bears it, and no other block bears one.
    pub(super) fn names_match(&self) -> bool {
        let named = self.blocks.iter().filter(|it| it.hash.is_some()).count();
        named == self.by_hash.len()
            && self.by_hash.iter().all(|(hash, at)| self.blocks[index(*at)].hash == Some(*hash))
    }
}

impl BlockId {
    pub(super) fn index(self) -> usize {
        index(self.0)
    }
}
