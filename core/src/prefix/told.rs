//! What routers tell each other of caches: what a prompt adds to one, all that is believed to lie in one, and a
//! sample by which two routers see whether they believe the same.

use rustc_hash::FxHashSet;

use crate::domain::{PromptTail, ReplicaId};

use super::PrefixIndex;
use super::anchors::STEP;
use super::lru::wide;

/// How many blocks a sample has.
const SAMPLE: usize = 64;

impl PrefixIndex {
    /// Lets blocks be found by their hash alone, from now on.
    pub fn keep_anchors(&mut self) {
        self.anchors.turn_on();
    }

    /// Forgets how to find blocks by their hash alone.
    pub fn drop_anchors(&mut self) {
        self.anchors.turn_off();
    }

    /// Says what a prompt adds to what is known of any replica. What another router does not know of its
    /// beginning, it can ask for by the name of the parent.
    pub fn added(&self, blocks: &[u64]) -> PromptTail {
        let known = self.stretches.walk(blocks, |_, _, _, _| {});
        let depth = known - known % STEP;
        let parent = depth.checked_sub(1).map_or(0, |it| blocks[it]);
        let more = blocks[depth..].to_vec();
        PromptTail { parent, depth: u32::try_from(depth).unwrap_or(u32::MAX), more }
    }

    /// Collects the whole prompt that a chain ends; `None` where its beginning is not known here.
    pub fn whole(&self, chain: &PromptTail) -> Option<Vec<u64>> {
        let mut blocks = self.beginning(chain.parent, chain.depth)?;
        blocks.extend_from_slice(&chain.more);
        Some(blocks)
    }

    /// Finds the beginning of `depth` blocks that ends with the block `parent`.
    pub fn beginning(&self, parent: u64, depth: u32) -> Option<Vec<u64>> {
        let depth = wide(depth);
        if depth == 0 {
            return Some(Vec::new());
        }
        let mut blocks = self.stretches.path_to(self.anchors.find(parent)?);
        blocks.truncate(depth);
        (blocks.len() == depth && blocks.last() == Some(&parent)).then_some(blocks)
    }

    /// Lists what a replica is believed to hold, up to `blocks_max` blocks of the newest, as chains in the order in
    /// which another router should remember them. A chain names as its parent only what came before it; `sent` is
    /// what was told so far.
    pub fn held_chains(
        &self,
        replica: ReplicaId,
        blocks_max: usize,
        sent: &mut FxHashSet<u64>,
    ) -> Vec<PromptTail> {
        let Some(&slot) = self.slots.get(&replica) else { return Vec::new() };
        let mut over = self.lru.blocks(slot).saturating_sub(blocks_max);
        let mut covered = FxHashSet::default();
        let mut chains = Vec::new();
        // What goes on from another is older, so it comes first and brings its beginning along.
        for stretch in self.lru.oldest_first(slot) {
            let it = self.stretches.get(stretch);
            let held = it.holder(slot).map_or(0, |it| wide(it.held));
            if 0 < over {
                over = over.saturating_sub(held);
                continue;
            }
            if covered.contains(&stretch) {
                continue;
            }
            self.stretches.ancestors(stretch).take_while(|it| covered.insert(*it)).for_each(drop);
            let path = self.stretches.path_to(stretch);
            let end = path.len() - it.len() + held.min(it.len());
            chains.push(behind_sent(&path[..end], sent));
        }
        chains
    }

    /// Draws a sample of what a replica is believed to hold: the blocks whose hashes are the lowest when mixed. Two
    /// routers that believe the same draw the same.
    pub fn sample(&self, replica: ReplicaId) -> Vec<u64> {
        let Some(&slot) = self.slots.get(&replica) else { return Vec::new() };
        let mut lowest: Vec<u64> = Vec::with_capacity(2 * SAMPLE);
        let mut bar = u64::MAX;
        for stretch in self.lru.oldest_first(slot) {
            let it = self.stretches.get(stretch);
            let held = it.holder(slot).map_or(0, |it| wide(it.held));
            for block in &it.blocks()[..held.min(it.len())] {
                let mixed = mix(*block);
                if mixed < bar {
                    lowest.push(mixed);
                }
                if lowest.len() == 2 * SAMPLE {
                    lowest.sort_unstable();
                    lowest.truncate(SAMPLE);
                    bar = lowest[SAMPLE - 1];
                }
            }
        }
        lowest.sort_unstable();
        lowest.dedup();
        lowest.truncate(SAMPLE);
        lowest
    }

    /// Notes the anchors of a prompt that was just written: those of its new blocks, and the last of what was known,
    /// which others will name as the parent.
    pub(super) fn note_anchors(&mut self, blocks: &[u64], known: usize) {
        if !self.anchors.is_on() {
            return;
        }
        let first = (known - known % STEP).max(STEP);
        let mut end = 0;
        for stretch in &self.path {
            let begin = end;
            end += self.stretches.get(*stretch).len();
            let from = first.max((begin + 1).next_multiple_of(STEP));
            for depth in (from..=end.min(blocks.len())).step_by(STEP) {
                self.anchors.note(blocks[depth - 1], *stretch);
            }
        }
    }
}

/// Estimates the share of blocks that two samples have in common, of all in either.
pub fn likeness(one: &[u64], other: &[u64]) -> f64 {
    let mut all: Vec<u64> = one.iter().chain(other).copied().collect();
    all.sort_unstable();
    all.dedup();
    all.truncate(SAMPLE.min(one.len().max(other.len())));
    if all.is_empty() {
        return 1.0;
    }
    let is_common = |it: &&u64| one.binary_search(it).is_ok() && other.binary_search(it).is_ok();
    let common = u32::try_from(all.iter().filter(is_common).count()).unwrap_or(0);
    f64::from(common) / f64::from(u32::try_from(all.len()).unwrap_or(u32::MAX))
}

/// Cuts off the beginning that was told before, at an anchor, and notes the anchors that are told now.
fn behind_sent(blocks: &[u64], sent: &mut FxHashSet<u64>) -> PromptTail {
    let anchors = (1..=blocks.len() / STEP).rev().map(|it| it * STEP);
    let depth = anchors.clone().find(|it| sent.contains(&blocks[it - 1])).unwrap_or(0);
    anchors.take_while(|it| depth < *it).for_each(|it| _ = sent.insert(blocks[it - 1]));
    let parent = depth.checked_sub(1).map_or(0, |it| blocks[it]);
    let more = blocks[depth..].to_vec();
    PromptTail { parent, depth: u32::try_from(depth).unwrap_or(u32::MAX), more }
}

/// Spreads every bit of a hash over all others.
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    bits ^ (bits >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ReplicaId = ReplicaId(0);
    const THERE: ReplicaId = ReplicaId(1);
    const ROOM: usize = 100_000;

    fn index() -> PrefixIndex {
        let mut index = PrefixIndex::new(16 << 20);
        index.keep_anchors();
        index
    }

    /// A prompt of blocks that name all before them: `seeds` says where it parts from others.
    fn prompt(parts: &[(u64, u64)]) -> Vec<u64> {
        let (mut blocks, mut hash) = (Vec::new(), 7);
        for (seed, count) in parts {
            for number in 0..*count {
                hash = mix(hash ^ mix(seed * 1_000 + number + 1));
                blocks.push(hash);
            }
        }
        blocks
    }

    #[test]
    fn a_later_turn_is_told_by_what_it_adds() {
        let (mut one, mut other) = (index(), index());
        let (turn, next) = (prompt(&[(1, 100)]), prompt(&[(1, 100), (2, 30)]));
        let first = one.added(&turn);
        assert_eq!((first.depth, first.more.len()), (0, 100));
        one.remember(HERE, &turn, ROOM);
        let whole = other.whole(&first).unwrap();
        other.remember(HERE, &whole, ROOM);
        let second = one.added(&next);
        assert_eq!((second.depth, second.more.len()), (96, 34));
        assert_eq!(other.whole(&second), Some(next));
    }

    #[test]
    fn a_beginning_that_prompts_share_is_found_after_they_parted_and_one_was_forgotten() {
        let mut index = index();
        let chats: Vec<_> = (2..40).map(|it| prompt(&[(1, 50), (it, 20)])).collect();
        for chat in &chats {
            let added = index.added(chat);
            index.remember(HERE, chat, 200);
            assert_eq!(index.whole(&added).as_ref(), Some(chat));
        }
        let shared = index.added(&prompt(&[(1, 50), (99, 3)]));
        assert_eq!(shared.depth, 48);
        assert_eq!(index.whole(&shared).map(|it| it.len()), Some(53));
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let mut index = index();
        index.remember(HERE, &prompt(&[(1, 64)]), ROOM);
        let blocks = prompt(&[(1, 64)]);
        assert_eq!(index.beginning(blocks[31], 32), Some(blocks[..32].to_vec()));
        assert_eq!(index.beginning(blocks[31], 48), None, "another depth");
        assert_eq!(index.beginning(12_345, 16), None);
        let mut none = PrefixIndex::new(1 << 20);
        none.remember(HERE, &blocks, ROOM);
        assert_eq!(none.beginning(blocks[31], 32), None, "it keeps no anchors");
    }

    #[test]
    fn another_router_that_is_told_all_believes_the_same() {
        let (mut one, mut other) = (index(), index());
        for chat in 0..200 {
            let at = if chat % 3 == 0 { THERE } else { HERE };
            one.remember(at, &prompt(&[(1, 40), (chat % 50 + 2, 10), (chat + 100, 25)]), 3_000);
        }
        let mut sent = FxHashSet::default();
        for replica in [HERE, THERE] {
            for chain in one.held_chains(replica, ROOM, &mut sent) {
                let whole = other.whole(&chain).expect("its beginning was told before");
                other.remember(replica, &whole, 3_000);
            }
            assert_eq!(one.held(replica), other.held(replica));
            assert_eq!(one.sample(replica), other.sample(replica));
        }
        // They forget in the same order, too.
        for index in [&mut one, &mut other] {
            index.remember(HERE, &prompt(&[(77, 500)]), 1_000);
        }
        assert!(0.9 < likeness(&one.sample(HERE), &other.sample(HERE)));
    }

    #[test]
    fn samples_show_how_much_two_routers_have_in_common() {
        let (mut one, mut other) = (index(), index());
        assert!((likeness(&one.sample(HERE), &other.sample(HERE)) - 1.0).abs() < 1e-9);
        for chat in 0..100 {
            one.remember(HERE, &prompt(&[(chat, 30)]), ROOM);
            other.remember(HERE, &prompt(&[(if chat < 50 { chat } else { chat + 500 }, 30)]), ROOM);
        }
        let share = likeness(&one.sample(HERE), &other.sample(HERE));
        assert!((share - 1.0 / 3.0).abs() < 0.2, "{share}");
    }
}
