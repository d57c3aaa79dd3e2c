//! Conversions between rows, keys and floats that only tables of slices need, each with the reason why
//! it is harmless, and the hashes that put keys and replicas in an order. What every room needs is in
//! `domain`. Keys are hashes: the 11 bits of one that do not fit a float say nothing about load.

use crate::domain::float;

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "no table has 2^53 rows")]
pub(super) fn count(rows: usize) -> f64 {
    rows as f64
}

/// Turns a distance between keys back; what is beyond the key space becomes its end.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from float to int, `as` saturates, and distances are not negative"
)]
pub(super) fn key(distance: f64) -> u64 {
    distance as u64
}

/// Counts rows; there are never 2^32 of them.
pub(super) fn short(rows: usize) -> u32 {
    u32::try_from(rows).expect("fewer than 2^32 rows")
}

#[expect(clippy::as_conversions, reason = "usize has at least 32 bits wherever Cleave runs")]
pub(super) const fn at(row: u32) -> usize {
    row as usize
}

/// Mixes two words into one whose bits are all equally good.
pub(super) const fn mix(one: u64, other: u64) -> u64 {
    let mut bits = one ^ other.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Maps 64 bits to a number above 0 and below 1.
pub(super) fn unit(bits: u64) -> f64 {
    (float(bits >> 11) + 0.5) * (-53_f64).exp2()
}

/// The score of weighted rendezvous: the highest wins, and each wins in proportion to its weight.
pub(super) fn rendezvous(one: u64, other: u64, weight: f64) -> f64 {
    -weight / unit(mix(one, other)).ln()
}
