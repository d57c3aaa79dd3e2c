//! Prompts as a tree of stretches. Blocks that every replica was sent together are one stretch, and
//! a new one begins only where prompts part. A prompt of 100,000 tokens is a handful of stretches,
//! so walking it costs a handful of probes; a table of blocks would cost one for each block. Every
//! stretch lists its holders and how much of its beginning each has. Which replica may hold what is
//! decided in `mod.rs`.

use rustc_hash::FxHashMap;

use super::lru::{NONE, narrow, wide};

/// What one stretch with one holder takes at worst in the tables, each just after it has grown; its
/// blocks and holders are measured apart.
pub(super) const TABLE_BYTES_MAX: usize =
    2 * (size_of::<Stretch>() + size_of::<u32>()) + BUCKETS_MAX * BUCKET_BYTES;
pub(super) const BLOCK_BYTES: usize = size_of::<u64>();
pub(super) const HOLDER_BYTES: usize = size_of::<Holder>();

const BUCKET_BYTES: usize = size_of::<((u32, u64), u32)>() + 1;
/// Buckets for each entry at worst: a hash table that is more than half full of entries and of traces
/// of removed ones doubles.
const BUCKETS_MAX: usize = 5;

/// A slot that holds the leading `held` blocks of a stretch, and where that stands in the slot's
/// order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) slot: u32,
    pub(super) held: u32,
    pub(super) entry: u32,
}

#[derive(Debug, Default)]
pub(super) struct Stretch {
    blocks: Vec<u64>,
    holders: Vec<Holder>,
    /// The stretch before this one; `NONE` for the beginning of a prompt.
    above: u32,
    /// How many go on from it.
    below: u32,
}

#[derive(Debug, Default)]
pub(super) struct Stretches {
    slab: Vec<Stretch>,
    free: Vec<u32>,
    /// By what a stretch goes on from, and its first block.
    starts: FxHashMap<(u32, u64), u32>,
    /// What the blocks and holders of all stretches take.
    heap_bytes: usize,
}

/// What a slot dropped of a stretch.
#[derive(Clone, Copy, Debug)]
pub(super) struct LetGo {
    pub(super) blocks: u32,
    pub(super) is_all: bool,
}

impl Stretch {
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    pub(super) fn holders(&self) -> &[Holder] {
        &self.holders
    }

    pub(super) fn holder(&self, slot: usize) -> Option<&Holder> {
        self.holders.iter().find(|it| wide(it.slot) == slot)
    }

    /// Counts the leading blocks it has in common with `blocks`.
    fn alike(&self, blocks: &[u64]) -> usize {
        let len = self.blocks.len().min(blocks.len());
        let is_alike = |at: usize| self.blocks[at] == blocks[at];
        // Each block names all before it, so the last one that is alike speaks for the others.
        if 0 < len && is_alike(len - 1) {
            return len;
        }
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            (low, high) = if is_alike(middle) { (middle + 1, high) } else { (low, middle) };
        }
        low
    }

    fn heap_bytes(&self) -> usize {
        self.blocks.capacity() * BLOCK_BYTES + self.holders.capacity() * HOLDER_BYTES
    }
}

impl Stretches {
    pub(super) fn get(&self, stretch: u32) -> &Stretch {
        &self.slab[wide(stretch)]
    }

    /// Lists a stretch and all that it goes on from, upwards.
    pub(super) fn ancestors(&self, stretch: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = stretch;
        // No path is longer than the table, whatever number it starts from.
        (0..self.slab.len()).map_while(move |_| {
            let number = at;
            at = self.slab.get(wide(number))?.above;
            Some(number)
        })
    }

    /// Collects the blocks from the beginning of a prompt to the end of a stretch.
    pub(super) fn path_to(&self, stretch: u32) -> Vec<u64> {
        let path: Vec<u32> = self.ancestors(stretch).collect();
        path.into_iter().rev().flat_map(|it| self.get(it).blocks.iter().copied()).collect()
    }

    /// Follows a prompt as far as any replica was sent it. Calls `visit` for each stretch with the
    /// blocks before it and those of it that the prompt has; returns how many blocks were found.
    pub(super) fn walk(
        &self,
        blocks: &[u64],
        mut visit: impl FnMut(u32, &Stretch, usize, usize),
    ) -> usize {
        let (mut at, mut above) = (0, NONE);
        while let Some(block) = blocks.get(at)
            && let Some(&next) = self.starts.get(&(above, *block))
        {
            let stretch = self.get(next);
            let alike = stretch.alike(&blocks[at..]);
            visit(next, stretch, at, alike);
            at += alike;
            if alike < stretch.len() {
                break;
            }
            above = next;
        }
        at
    }

    /// Adds `blocks` behind a stretch, to it where nothing goes on from it yet, else as a new one.
    /// Returns where they are now.
    pub(super) fn append(&mut self, above: Option<u32>, blocks: &[u64]) -> u32 {
        if let Some(last) = above.filter(|it| self.get(*it).below == 0) {
            self.change(last, |it| {
                it.blocks.reserve_exact(blocks.len());
                it.blocks.extend_from_slice(blocks);
            });
            return last;
        }
        self.add(above.unwrap_or(NONE), blocks.to_vec())
    }

    /// Cuts a stretch in two after its first `count` blocks, which become a stretch of their own, and
    /// returns that. `enter` is told each holder, the upper part, and whether it holds more than that;
    /// it returns the holder's entry for the upper part.
    pub(super) fn cut(
        &mut self,
        stretch: u32,
        count: usize,
        mut enter: impl FnMut(&Holder, u32, bool) -> u32,
    ) -> u32 {
        let whole = self.get(stretch);
        let (above, next) = (whole.above, whole.blocks[count]);
        let mut holders = Vec::with_capacity(whole.holders.len());
        // It takes the place of the whole, by the same first block.
        let upper = self.add(above, whole.blocks[..count].to_vec());
        if let Some(parent) = self.slab.get_mut(wide(above)) {
            parent.below -= 1;
        }
        self.starts.insert((upper, next), stretch);
        let length = narrow(count);
        self.change(stretch, |it| {
            it.above = upper;
            it.blocks.drain(..count);
            it.blocks.shrink_to_fit();
            for holder in &mut it.holders {
                let entry = enter(holder, upper, length < holder.held);
                holders.push(Holder { held: holder.held.min(length), entry, ..*holder });
                holder.held = holder.held.saturating_sub(length);
            }
            it.holders.retain(|it| 0 < it.held);
            it.holders.shrink_to_fit();
        });
        self.change(upper, |it| (it.holders, it.below) = (holders, 1));
        upper
    }

    /// Notes that the slot holds the leading `count` blocks. For one that held none of the stretch,
    /// `enter` makes an entry in its order. Returns the entry and how many blocks are new to it.
    pub(super) fn hold(
        &mut self,
        stretch: u32,
        slot: usize,
        count: usize,
        enter: impl FnOnce() -> u32,
    ) -> (u32, u32) {
        let (slot, count) = (narrow(slot), narrow(count));
        let it = &mut self.slab[wide(stretch)];
        if let Some(holder) = it.holders.iter_mut().find(|it| it.slot == slot) {
            let more = count.saturating_sub(holder.held);
            holder.held += more;
            return (holder.entry, more);
        }
        let entry = enter();
        self.change(stretch, |it| {
            it.holders.reserve_exact(1);
            it.holders.push(Holder { slot, held: count, entry });
        });
        (entry, count)
    }

    /// Lets the slot drop up to `count` blocks of the stretch, the last first, and forgets
    /// what has no holder left.
    pub(super) fn let_go(&mut self, stretch: u32, slot: usize, count: usize) -> LetGo {
        let slot = narrow(slot);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let holders = &mut self.slab[wide(stretch)].holders;
        let Some(at) = holders.iter().position(|it| it.slot == slot) else {
            return LetGo { blocks: 0, is_all: true };
        };
        let blocks = count.min(holders[at].held);
        holders[at].held -= blocks;
        let is_all = holders[at].held == 0;
        self.change(stretch, |it| {
            if is_all {
                it.holders.swap_remove(at);
                it.holders.shrink_to_fit();
            }
            // What goes on from here is held by a replica that holds all of this, so only an end is
            // cut.
            let longest = it.holders.iter().map(|it| it.held).max().unwrap_or(0);
            it.blocks.truncate(wide(longest).max(1));
            it.blocks.shrink_to_fit();
        });
        if self.get(stretch).holders.is_empty() {
            self.remove(stretch);
        }
        LetGo { blocks, is_all }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Lists every stretch with the one it goes on from.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = (Option<&Stretch>, &Stretch)> {
        let above = |it: &Stretch| self.slab.get(wide(it.above));
        self.starts.values().map(move |it| (above(self.get(*it)), self.get(*it)))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Stretch>() * self.slab.capacity()
            + size_of::<u32>() * self.free.capacity()
            + (self.starts.capacity() * 8).div_ceil(7) * BUCKET_BYTES
            + self.heap_bytes
    }

    fn add(&mut self, above: u32, blocks: Vec<u64>) -> u32 {
        let first = blocks[0];
        let stretch = Stretch { blocks, holders: Vec::new(), above, below: 0 };
        self.heap_bytes += stretch.heap_bytes();
        let number = self.free.pop().unwrap_or_else(|| narrow(self.slab.len()));
        if wide(number) == self.slab.len() {
            self.slab.push(stretch);
        } else {
            self.slab[wide(number)] = stretch;
        }
        self.starts.insert((above, first), number);
        if let Some(parent) = self.slab.get_mut(wide(above)) {
            parent.below += 1;
        }
        number
    }

    fn remove(&mut self, stretch: u32) {
        // A number that is free leads nowhere: anchors may still name it.
        let free = Stretch { above: NONE, ..Stretch::default() };
        let gone = std::mem::replace(&mut self.slab[wide(stretch)], free);
        debug_assert_eq!(gone.below, 0, "a holder of what goes on from here holds this");
        self.heap_bytes -= gone.heap_bytes();
        self.starts.remove(&(gone.above, gone.blocks[0]));
        if let Some(parent) = self.slab.get_mut(wide(gone.above)) {
            parent.below -= 1;
        }
        self.free.push(stretch);
    }

    /// Changes a stretch and keeps the account of its memory.
    fn change(&mut self, stretch: u32, change: impl FnOnce(&mut Stretch)) {
        let it = &mut self.slab[wide(stretch)];
        self.heap_bytes -= it.heap_bytes();
        change(it);
        self.heap_bytes += it.heap_bytes();
    }
}
