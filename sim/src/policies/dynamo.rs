//! Dynamo's cost function: scale · (prefill blocks charged to the replica and those of this prompt,
//! less the ones it holds) + decode blocks, where the prefill of a request counts until its first
//! token and its blocks until its end, a block that several share once. Credit for overlap is 1, the
//! temperature 0; the default scale is 1, and the one their own tuning found best is 16.
//!
//! By default Dynamo learns residency from engine events; here it believes what it sent, kept as
//! long as the engine's KV memory allows. Host and disk tiers are left out.

use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use rustc_hash::FxHashMap;

use cleave_core::domain::{Moment, Outline, ReplicaId, RequestId, float};

use super::ledger::{Ledger, Load};
use super::{Ask, Candidate, Policy, lowest_by_chance};
use cleave_core::policy::Residency;

/// How many blocks of requests in flight are told apart; those beyond count, but are not shared.
const ACTIVE_BLOCKS_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Dynamo {
    prefill_scale: f64,
    residency: Residency,
    prefills: Ledger,
    active: ActiveBlocks,
}

impl Dynamo {
    pub(super) fn new(prefill_scale: f64) -> Self {
        let (prefills, active) = (Ledger::default(), ActiveBlocks::default());
        Self { prefill_scale, residency: Residency::of_kv(1), prefills, active }
    }
}

impl Policy for Dynamo {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        self.residency.look_up(ask, candidates);
        let block_tokens = f64::from(ask.outline.block_tokens.max(1));
        lowest_by_chance(candidates.len(), chance, |it| {
            let replica = candidates[it].id;
            let own = ask.outline.tokens_beyond(self.residency.blocks(it));
            let prefill = float(self.prefills.load(replica).prefill) + f64::from(own);
            let decode = float(self.active.with(replica, ask.outline, self.residency.blocks(it)));
            self.prefill_scale * prefill / block_tokens + decode
        })
    }

    fn on_sent(&mut self, request: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        let held = self.residency.on_sent(ask, to);
        let prefill = u64::from(ask.outline.tokens_beyond(held));
        self.prefills.on_sent(request, to.id, Load { prefill, rest: 0 });
        self.active.on_sent(request, to.id, ask.outline);
        held
    }

    fn on_first_token(&mut self, _: Moment, request: RequestId, _: ReplicaId) {
        self.prefills.on_first_token(request);
    }

    fn on_ended(&mut self, _: Moment, request: RequestId, _: ReplicaId) {
        self.prefills.on_ended(request);
        self.active.on_ended(request);
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.residency.forget(replica);
    }

    fn bytes(&self) -> usize {
        self.residency.bytes() + self.active.bytes()
    }
}

/// The blocks of requests in flight, each counted once per replica.
#[derive(Debug, Default)]
struct ActiveBlocks {
    users: FxHashMap<(ReplicaId, u64), u32>,
    totals: FxHashMap<ReplicaId, u64>,
    requests: FxHashMap<RequestId, Active>,
}

#[derive(Debug)]
struct Active {
    replica: ReplicaId,
    blocks: Arc<[u64]>,
    /// How many of the blocks are told apart.
    shared: usize,
    /// How many count for this request alone.
    alone: u64,
}

impl ActiveBlocks {
    /// Counts the blocks on the replica if it had this prompt as well, of which it holds the leading
    /// `held` blocks.
    fn with(&self, replica: ReplicaId, outline: &Outline, held: usize) -> u64 {
        let total = self.totals.get(&replica).copied().unwrap_or(0);
        // Prompts in flight hold whole prefixes, so what is shared is a leading part, and of what is
        // held there at all.
        let held = &outline.blocks[..if total == 0 { 0 } else { held }];
        let shared = held.partition_point(|it| self.users.contains_key(&(replica, *it)));
        total + blocks_in(outline) - count(shared)
    }

    fn on_sent(&mut self, request: RequestId, replica: ReplicaId, outline: &Outline) {
        self.on_ended(request);
        let room = ACTIVE_BLOCKS_MAX - self.users.len();
        let shared = outline.blocks.len().min(room);
        let total = self.totals.entry(replica).or_default();
        for block in &outline.blocks[..shared] {
            let users = self.users.entry((replica, *block)).or_default();
            *total += u64::from(*users == 0);
            *users += 1;
        }
        let alone = blocks_in(outline) - count(shared);
        *total += alone;
        let blocks = outline.blocks.clone();
        self.requests.insert(request, Active { replica, blocks, shared, alone });
    }

    fn on_ended(&mut self, request: RequestId) {
        let Some(it) = self.requests.remove(&request) else { return };
        let Some(total) = self.totals.get_mut(&it.replica) else { return };
        *total -= it.alone;
        for block in &it.blocks[..it.shared] {
            let key = (it.replica, *block);
            let Some(users) = self.users.get_mut(&key) else { continue };
            *users -= 1;
            if *users == 0 {
                self.users.remove(&key);
                *total -= 1;
            }
        }
        if *total == 0 {
            self.totals.remove(&it.replica);
        }
    }

    fn bytes(&self) -> usize {
        self.users.capacity() * 8 / 7 * (size_of::<((ReplicaId, u64), u32)>() + 1)
    }
}

/// Counts the blocks a prompt fills, the last one perhaps in part.
fn blocks_in(outline: &Outline) -> u64 {
    let whole = count(outline.blocks.len());
    let tokens = u64::from(outline.prompt_tokens);
    tokens.div_ceil(u64::from(outline.block_tokens.max(1))).max(whole)
}

fn count(blocks: usize) -> u64 {
    u64::try_from(blocks).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, prompt};
    use super::super::{DYNAMO, DYNAMO_16};

    #[test]
    fn a_large_scale_stays_with_the_cache_where_a_small_one_leaves_for_less_to_decode() {
        for (name, home) in [(DYNAMO, 1), (DYNAMO_16, 0)] {
            let mut bench = Bench::new(name, 2);
            bench.serve(&prompt(&[(0, 5)]), 0);
            let running = bench.send(&prompt(&[(100, 12)]), 0);
            bench.answer(running, 0);
            // Replica 0: s · (10 - 5) + 12 + 10; replica 1: s · 10 + 10. At scale 1 that is 27
            // against 20, at scale 16 it is 102 against 170.
            assert_eq!(bench.pick(&prompt(&[(0, 5), (50, 5)])), home, "{name}");
        }
    }

    #[test]
    fn a_prefill_weighs_until_its_first_token_and_its_blocks_until_its_end() {
        let mut bench = Bench::new(DYNAMO, 2);
        let long = bench.send(&prompt(&[(100, 20)]), 0);
        let running = bench.send(&prompt(&[(200, 15)]), 1);
        bench.answer(running, 1);
        let own = prompt(&[(0, 2)]);
        // 20 + 2 + 20 + 2 against 2 + 15 + 2; then 2 + 20 + 2 against the same.
        assert_eq!(bench.pick(&own), 1);
        bench.answer(long, 0);
        assert_eq!(bench.pick(&own), 1);
        bench.end(long, 0);
        assert_eq!(bench.pick(&own), 0);
    }

    #[test]
    fn blocks_that_requests_in_flight_share_count_once() {
        let mut bench = Bench::new(DYNAMO, 2);
        for (replica, parts) in [(0, [(0, 9), (20, 1)]), (1, [(40, 9), (60, 1)])] {
            let running = bench.send(&prompt(&parts), replica);
            bench.answer(running, replica);
        }
        let also = bench.send(&prompt(&[(0, 9), (30, 1)]), 0);
        bench.answer(also, 0);
        // Replica 0 has 11 different blocks and replica 1 has 10; neither holds the prompt.
        assert_eq!(bench.pick(&prompt(&[(90, 1)])), 1);
        bench.end(also, 0);
        let tally = bench.tally(&prompt(&[(90, 1)]), 100);
        assert!(20 < tally[0] && 20 < tally[1], "{tally:?}");
    }
}
