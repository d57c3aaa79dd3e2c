//! The fleet as it would be with one cache and one line for all: every prefix that fits into the
//! sum of all KV is at hand everywhere at no cost, and placement knows exactly what is left to do
//! where. So a placement is a matter of load alone, and one line in order of arrival could do no
//! better without moving requests that run. It shows what a shared cache would give; it is not a
//! theorem, and a rule that spares decoding more can come out a little above it.

use std::collections::BTreeMap;

use crate::engine::kv::KvPool;
use crate::engine::{EngineSettings, Job};
use crate::measure::End;
use crate::work;

use super::ideal::Ideal;
use super::settings::ReplicaSettings;
use super::{Timer, World};

/// One cache for all, and what is left to do where.
#[derive(Debug)]
pub(super) struct Pooled {
    cache: KvPool,
    /// Prefill booked and not done, and requests, per replica.
    prefill_ms: Vec<f64>,
    in_flight: Vec<f64>,
    booked: BTreeMap<u64, PooledRequest>,
    pub(super) ideal: Ideal,
}

#[derive(Clone, Copy, Debug)]
struct PooledRequest {
    replica: usize,
    prefill_ms: f64,
}

impl Pooled {
    pub(super) fn new(replicas: &[ReplicaSettings]) -> Self {
        let blocks = |it: &ReplicaSettings| it.engine.kv_tokens / it.engine.block_tokens;
        Self {
            cache: KvPool::new(replicas.iter().map(blocks).sum()),
            prefill_ms: vec![0.0; replicas.len()],
            in_flight: vec![0.0; replicas.len()],
            booked: BTreeMap::new(),
            ideal: Ideal::new(replicas),
        }
    }

    /// Finds a prompt's cached blocks and makes all its blocks the latest used.
    fn touch(&mut self, hashes: &[u64]) -> u32 {
        let hit = self.cache.find_prefix(hashes).blocks;
        let mut blocks = Vec::with_capacity(hashes.len());
        for hash in hashes {
            let held = self.cache.hold(*hash);
            let Some(block) = held.or_else(|| {
                let block = self.cache.allocate()?;
                self.cache.name(block, *hash);
                Some(block)
            }) else {
                break;
            };
            blocks.push(block);
        }
        for block in blocks.into_iter().rev() {
            self.cache.release(block);
        }
        hit
    }

    /// Books a request where it will start soonest and disturb fewest: least prefill left, its own
    /// included, times requests there.
    fn book(
        &mut self,
        id: u64,
        replicas: impl Iterator<Item = EngineSettings>,
        (new, cached): (u32, u32),
    ) -> usize {
        let own = replicas.map(|it| work::prefill_ms(&it.times, new, cached));
        let scores = own.enumerate().map(|(replica, own_ms)| {
            let score = (self.prefill_ms[replica] + own_ms) * (self.in_flight[replica] + 1.0);
            (score, PooledRequest { replica, prefill_ms: own_ms })
        });
        let (_, best) = scores.min_by(|a, b| a.0.total_cmp(&b.0)).expect("a world has replicas");
        self.prefill_ms[best.replica] += best.prefill_ms;
        self.in_flight[best.replica] += 1.0;
        self.booked.insert(id, best);
        best.replica
    }

    pub(super) fn on_first_token(&mut self, id: u64) {
        if let Some(it) = self.booked.get_mut(&id) {
            self.prefill_ms[it.replica] -= it.prefill_ms;
            it.prefill_ms = 0.0;
        }
    }

    pub(super) fn on_end(&mut self, id: u64) {
        if let Some(it) = self.booked.remove(&id) {
            self.prefill_ms[it.replica] -= it.prefill_ms;
            self.in_flight[it.replica] -= 1.0;
        }
        // Rounding must not add up over a million requests.
        if self.booked.is_empty() {
            self.prefill_ms.fill(0.0);
        }
    }
}

impl World {
    /// Sends a request where the pooled fleet would.
    pub(super) fn place_pooled(&mut self, id: u64) {
        let (Some(flight), Some(pooled)) = (self.flights.get_mut(&id), self.pooled.as_mut()) else {
            return;
        };
        let hit_tokens = pooled.touch(&flight.hashes).saturating_mul(self.block_tokens.get());
        let cached = hit_tokens
            .min((flight.prompt_tokens - 1) / self.block_tokens * self.block_tokens.get());
        let new = flight.prompt_tokens - cached;
        pooled.ideal.on_arrival(self.now, flight, cached);
        let engines = self.replicas.iter().map(|it| it.settings.engine);
        let replica = pooled.book(id, engines, (new, cached));
        let job = Job { given_tokens: cached, ..flight.job(id, self.block_tokens) };
        flight.replica = Some(replica);
        flight.anywhere_tokens = cached;
        if self.replicas[replica].engine.submit(self.now, job).is_err() {
            self.end(id, End::TooLong);
            return;
        }
        // Clients wait no longer for this fleet than for others.
        let at = self.now + self.settings.timeouts.first_byte;
        self.timers.push_back(Timer { at, request: id, tries: 0 });
        self.schedule(replica);
    }
}
