//! What the index promises.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const ROOMY: usize = 1 << 20;

fn prompt(parts: &[(u64, u64)]) -> Vec<u64> {
    parts.iter().flat_map(|&(first, count)| first..first + count).collect()
}

fn depths(index: &mut PrefixIndex, blocks: &[u64], replicas: u32) -> Vec<u32> {
    let mut depths = Vec::new();
    index.look_up(blocks, (0..replicas).map(ReplicaId), &mut depths);
    depths
}

fn blocks_total(index: &PrefixIndex) -> usize {
    (0..index.replicas.len()).map(|it| index.lru.blocks(it)).sum()
}

#[test]
fn each_replica_is_known_by_the_longest_beginning_it_was_sent() {
    let mut index = PrefixIndex::new(ROOMY);
    index.remember(ReplicaId(0), &prompt(&[(0, 10)]), 100);
    index.remember(ReplicaId(1), &prompt(&[(0, 4), (50, 3)]), 100);
    index.remember(ReplicaId(2), &prompt(&[(70, 5)]), 100);
    let asked = prompt(&[(0, 8), (90, 4)]);
    assert_eq!(depths(&mut index, &asked, 4), [8, 4, 0, 0]);
    assert_eq!(index.deepest(&asked), Some((ReplicaId(0), 8)));
    assert_eq!(index.deepest(&[1000]), None);
    assert_eq!(index.depth(&asked, ReplicaId(1)), 4);
}

#[test]
fn the_end_of_the_oldest_prompt_is_forgotten_first() {
    let mut index = PrefixIndex::new(ROOMY);
    let (old, new) = (prompt(&[(0, 6)]), prompt(&[(100, 6)]));
    index.remember(ReplicaId(0), &old, 10);
    index.remember(ReplicaId(0), &new, 10);
    assert_eq!((depths(&mut index, &old, 1)[0], depths(&mut index, &new, 1)[0]), (4, 6));
    // Asking again for the old one makes the new one the oldest.
    index.remember(ReplicaId(0), &old, 10);
    assert_eq!((depths(&mut index, &old, 1)[0], depths(&mut index, &new, 1)[0]), (6, 4));
    assert_eq!(index.held(ReplicaId(0)), 10);
}

#[test]
fn of_a_prompt_beyond_the_room_the_beginning_is_kept() {
    let mut index = PrefixIndex::new(ROOMY);
    index.remember(ReplicaId(0), &prompt(&[(0, 30)]), 10);
    assert_eq!(depths(&mut index, &prompt(&[(0, 30)]), 1), [10]);
}

#[test]
fn a_departed_replica_is_gone_at_once_and_its_memory_comes_back() {
    let mut index = PrefixIndex::new(ROOMY);
    let shared = prompt(&[(0, 50)]);
    index.remember(ReplicaId(0), &shared, 100);
    index.remember(ReplicaId(1), &shared, 100);
    index.forget(ReplicaId(0));
    assert_eq!(depths(&mut index, &shared, 2), [0, 50]);
    for round in 0..10 {
        index.remember(ReplicaId(2), &prompt(&[(1000 * round, 10)]), 100);
    }
    assert_eq!(blocks_total(&index), 50 + 100);
    // The place it had is given to the next one, which starts with nothing.
    index.remember(ReplicaId(3), &[7777], 100);
    assert_eq!((index.replicas.len(), depths(&mut index, &shared, 4)[3]), (3, 0));
}

#[test]
fn a_hundred_replicas_are_told_apart() {
    let mut index = PrefixIndex::new(ROOMY);
    let shared = prompt(&[(0, 20)]);
    for replica in 0..130 {
        index.remember(ReplicaId(replica), &shared[..=wide_of(replica) % 20], 100);
    }
    let found = depths(&mut index, &shared, 130);
    let wanted: Vec<u32> = (0..130).map(|it| 1 + it % 20).collect();
    assert_eq!(found, wanted);
}

#[test]
fn a_session_that_grows_is_one_stretch_however_many_turns_it_has() {
    let mut index = PrefixIndex::new(ROOMY);
    for turns in 1..=200 {
        index.remember(ReplicaId(turns % 3), &prompt(&[(0, u64::from(turns) * 8)]), usize::MAX);
    }
    assert_eq!(index.lru.entries(), 3);
    assert_eq!(depths(&mut index, &prompt(&[(0, 1600)]), 3), [198 * 8, 199 * 8, 200 * 8]);
}

fn wide_of(number: u32) -> usize {
    usize::try_from(number).unwrap()
}

#[test]
fn unique_deep_prompts_never_take_more_than_the_bytes_allowed() {
    for bytes_max in [0, 1000, 1 << 16, 3 << 20] {
        let mut index = PrefixIndex::new(bytes_max);
        for number in 0..400 {
            let blocks: Vec<u64> = (number * 1000..number * 1000 + 500).collect();
            index.remember(ReplicaId(u32::try_from(number % 70).unwrap()), &blocks, usize::MAX);
            if number % 90 == 89 {
                index.forget(ReplicaId(u32::try_from(number % 70).unwrap()));
            }
            assert!(index.bytes() <= bytes_max, "{} for {bytes_max}", index.bytes());
        }
        assert!(bytes_max < 1 << 16 || bytes_max / 5 < index.bytes(), "{}", index.bytes());
    }
}

/// Says whether the index is sound: every holder stands once in its slot's order, a slot that holds
/// a stretch holds all before it, and the accounts of blocks and bytes are right.
fn is_sound(index: &PrefixIndex) -> bool {
    let mut blocks = BTreeMap::<usize, usize>::new();
    let mut entries = Vec::new();
    let mut heap_bytes = 0;
    let holders_are_sound = index.stretches.all().all(|(above, stretch)| {
        heap_bytes += stretch.len() * BLOCK_BYTES + stretch.holders().len() * HOLDER_BYTES;
        let longest = stretch.holders().iter().map(|it| wide(it.held)).max();
        longest == Some(stretch.len())
            && stretch.holders().iter().all(|it| {
                *blocks.entry(wide(it.slot)).or_default() += wide(it.held);
                entries.push(it.entry);
                let held_above = above.map(|up| up.holder(wide(it.slot)).map(|it| wide(it.held)));
                0 < it.held
                    && held_above.is_none_or(|held| held == above.map(stretches::Stretch::len))
            })
    });
    entries.sort_unstable();
    let slots = 0..index.replicas.len();
    holders_are_sound
        && entries.windows(2).all(|it| it[0] < it[1])
        && entries.len() == index.lru.entries()
        && heap_bytes == index.stretches.heap_bytes()
        && slots.into_iter().all(|it| blocks.get(&it).copied().unwrap_or(0) == index.lru.blocks(it))
}

/// The same index, written the slow and obvious way.
#[derive(Default)]
struct Model(Vec<(ReplicaId, Vec<u64>)>);

impl Model {
    fn remember(&mut self, replica: ReplicaId, blocks: &[u64], blocks_max: usize) {
        let held = self.held(replica);
        held.retain(|it| !blocks.contains(it));
        held.splice(..0, blocks.iter().copied());
        held.truncate(blocks_max);
    }

    fn held(&mut self, replica: ReplicaId) -> &mut Vec<u64> {
        let at = self.0.iter().position(|it| it.0 == replica).unwrap_or_else(|| {
            self.0.push((replica, Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    fn depth(&mut self, replica: ReplicaId, blocks: &[u64]) -> usize {
        let held = self.held(replica);
        blocks.iter().take_while(|it| held.contains(it)).count()
    }
}

/// A replica and a prompt of two parts that leave each other at places of their own, so that ids are
/// chained; or its departure.
fn steps() -> impl Strategy<Value = Vec<(ReplicaId, Vec<u64>, bool)>> {
    let step = (0_u32..6, 0_u64..5, 0_u64..12, 0_u64..4, 0_u64..9, 0_u8..12);
    let step = step.prop_map(|(replica, root, shared, branch, own, leaves)| {
        let start = root * 1000;
        let parts = [(start, shared), (100_000 + (start + shared) * 100 + branch * 20, own)];
        (ReplicaId(replica), prompt(&parts), leaves == 0)
    });
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn it_knows_what_a_plain_list_of_the_newest_would_know(steps in steps()) {
        let mut index = PrefixIndex::new(ROOMY);
        let mut model = Model::default();
        for (replica, blocks, leaves) in steps {
            if leaves {
                index.forget(replica);
                model.held(replica).clear();
            } else {
                index.remember(replica, &blocks, 25);
                model.remember(replica, &blocks, 25);
            }
            prop_assert!(is_sound(&index));
            let found = depths(&mut index, &blocks, 6);
            for (number, found) in (0..6).zip(found) {
                let replica = ReplicaId(number);
                let wanted = model.depth(replica, &blocks);
                prop_assert_eq!(wide_of(found), wanted);
                prop_assert_eq!(index.depth(&blocks, replica), wanted);
                prop_assert_eq!(index.held(replica), model.held(replica).len());
            }
        }
    }

    #[test]
    fn short_of_bytes_it_stays_sound_and_invents_nothing(steps in steps(), bytes_max in 0_usize..12_000) {
        let mut index = PrefixIndex::new(bytes_max);
        let mut model = Model::default();
        for (replica, blocks, leaves) in steps {
            if leaves {
                index.forget(replica);
                model.held(replica).clear();
            } else {
                index.remember(replica, &blocks, 25);
                model.remember(replica, &blocks, 25);
            }
            prop_assert!(is_sound(&index) && index.bytes() <= bytes_max);
            for (number, found) in (0..6).zip(depths(&mut index, &blocks, 6)) {
                prop_assert!(wide_of(found) <= model.depth(ReplicaId(number), &blocks));
            }
        }
    }
}
