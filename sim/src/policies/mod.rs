//! The peers' rules as their sources and papers give them, with their defaults, beside those that a router
//! serves: one replay judges them all. Each is one small file on the trait of `core/policy`. They live here
//! because no router offers them. To add one: write its file, add a line to the list below.

#[cfg(test)]
#[path = "../../../core/src/policy/bench.rs"]
mod bench;
mod booked;
mod bounded_load;
mod consistent_hash;
mod dicer_ring;
mod dynamo;
mod least_work;
mod ledger;
mod llmd;
mod llmd_sticky;
mod lmetric;
mod mooncake;
mod preble;
#[cfg(test)]
mod properties;
mod ring;
mod sglang_cache_aware;
mod smg_cache_aware;
mod smg_least_load;
mod span;

use cleave_core::domain::ReplicaId;
#[cfg(test)]
use cleave_core::domain::{
    Moment, Outline, Place, Promise, Report, RequestId, SliceKey, float, whole,
};
#[cfg(test)]
use cleave_core::policy::LoadModel;
use cleave_core::policy::{Ask, Candidate, Policy, PolicyKind};
use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

pub const LEAST_WORK: PolicyKind =
    PolicyKind::new("least_work", || Box::new(least_work::LeastWork::default()));
pub const CONSISTENT_HASH: PolicyKind = PolicyKind::new("consistent_hash", || {
    Box::new(ring::OnRing::<consistent_hash::ConsistentHash>::default())
});
pub const BOUNDED_LOAD: PolicyKind = PolicyKind::new("bounded_load", || {
    Box::new(ring::OnRing::<bounded_load::BoundedLoad>::default())
});
pub const SGLANG_CACHE_AWARE: PolicyKind = PolicyKind::new("sglang_cache_aware", || {
    Box::new(sglang_cache_aware::SglangCacheAware::default())
});
pub const SMG_CACHE_AWARE: PolicyKind =
    PolicyKind::new("smg_cache_aware", || Box::new(smg_cache_aware::SmgCacheAware::default()));
pub const SMG_LEAST_LOAD: PolicyKind =
    PolicyKind::new("smg_least_load", || Box::new(smg_least_load::LeastLoad::default()));
pub const DYNAMO: PolicyKind = PolicyKind::new("dynamo", || Box::new(dynamo::Dynamo::new(1.0)));
pub const DYNAMO_16: PolicyKind =
    PolicyKind::new("dynamo_16", || Box::new(dynamo::Dynamo::new(16.0)));
pub const LLMD: PolicyKind = PolicyKind::new("llmd", || Box::new(llmd::Llmd::new(0.0)));
pub const LLMD_NO_HIT_LRU: PolicyKind =
    PolicyKind::new("llmd_no_hit_lru", || Box::new(llmd::Llmd::new(2.0)));
pub const LLMD_STICKY: PolicyKind = PolicyKind::new("llmd_sticky", || {
    Box::new(booked::Booked::<llmd_sticky::LlmdSticky>::default())
});
pub const LMETRIC: PolicyKind =
    PolicyKind::new("lmetric", || Box::new(booked::Booked::<lmetric::Lmetric>::default()));
pub const PREBLE: PolicyKind = PolicyKind::new("preble", || Box::new(preble::Preble::default()));
pub const MOONCAKE: PolicyKind =
    PolicyKind::new("mooncake", || Box::new(booked::Booked::<mooncake::Mooncake>::default()));
pub const DICER_RING: PolicyKind =
    PolicyKind::new("dicer_ring", || Box::new(dicer_ring::DicerRing::default()));

/// Every policy that can be simulated.
pub const ALL: &[PolicyKind] = &[
    PolicyKind::SESSION,
    PolicyKind::ROUND_ROBIN,
    PolicyKind::RANDOM,
    PolicyKind::LEAST_REQUESTS,
    PolicyKind::POWER_OF_TWO,
    LEAST_WORK,
    CONSISTENT_HASH,
    BOUNDED_LOAD,
    SGLANG_CACHE_AWARE,
    SMG_CACHE_AWARE,
    SMG_LEAST_LOAD,
    DYNAMO,
    DYNAMO_16,
    LLMD,
    LLMD_NO_HIT_LRU,
    LLMD_STICKY,
    LMETRIC,
    PREBLE,
    MOONCAKE,
    PolicyKind::PRICED,
    DICER_RING,
];

/// Returns the position below `count` with the lowest score; chance decides between equals.
fn lowest_by_chance(
    count: usize,
    chance: &mut Pcg64Mcg,
    mut score: impl FnMut(usize) -> f64,
) -> usize {
    let (mut best, mut best_score, mut equals) = (0, f64::INFINITY, 0_u32);
    for position in 0..count {
        let score = score(position);
        if score < best_score || equals == 0 {
            (best, best_score, equals) = (position, score, 1);
        } else if score <= best_score {
            equals += 1;
            if chance.random_range(0..equals) == 0 {
                best = position;
            }
        }
    }
    best
}

/// Finds a replica among the candidates, which are in order of id.
fn position(candidates: &[Candidate], replica: ReplicaId) -> Option<usize> {
    candidates.binary_search_by_key(&replica, |it| it.id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_a_name_of_its_own_and_those_served_are_among_them() {
        for (at, kind) in ALL.iter().enumerate() {
            assert!(!ALL[..at].contains(kind), "{kind} stands twice");
            assert_eq!(PolicyKind::among(ALL, kind.as_str()), Ok(*kind));
        }
        assert!(PolicyKind::SERVED.iter().all(|it| ALL.contains(it)));
    }
}
