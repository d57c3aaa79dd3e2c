//! Highest random weight: every replica draws a lot for a key, the best lot wins. Any two routers
//! that know the same replicas agree without talking, and when a replica leaves only its own keys
//! move. A hash ring needs virtual nodes to come near such balance, and hands all keys of a lost
//! node's arc to one neighbour.

use crate::domain::{Place, SliceKey};

use super::Candidate;

/// Draws the candidate's lot for `key`: exponential with rate `weight`, so that the chance to be
/// lowest is the share of weight. Lower is better.
pub(super) fn lot(candidate: &Candidate, key: SliceKey) -> f64 {
    lot_of(candidate.place, candidate.weight, key)
}

/// Draws the lot of a replica by its place and weight.
pub fn lot_of(place: Place, weight: f64, key: SliceKey) -> f64 {
    let uniform = unit(mix(place.0 ^ mix(key.0)));
    -uniform.ln() / weight
}

/// Spreads every input bit over all output bits (the finaliser of SplitMix64).
pub fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Maps 64 random bits to the open interval (0, 1), so that the logarithm is finite and not zero.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "53 bits fit exactly")]
fn unit(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) * (-53_f64).exp2()
}
