//! The trace that a request is part of, as W3C's `traceparent` names it, and which share of traces is recorded.

use std::fmt::Write as _;

/// Digits of a trace by which it is drawn: as many as a double holds exactly.
const LOT_DIGITS: usize = 13;

/// A trace, the span above in it, and whether it is recorded. Ids are kept in hexadecimal, as headers and logs
/// have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    id: [u8; 32],
    /// The client's span.
    parent: Option<[u8; 16]>,
    pub is_sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent`. What is not exactly one is none, as the recommendation has it.
    pub fn read(header: &[u8]) -> Option<Self> {
        let version = header.get(..2).filter(|it| are_digits(it) && *it != b"ff")?;
        let is_whole = if version == b"00" {
            header.len() == 55
        } else {
            header.get(55).is_none_or(|it| *it == b'-')
        };
        let dashes = [2, 35, 52].iter().all(|at| header.get(*at) == Some(&b'-'));
        let id: [u8; 32] = header.get(3..35)?.try_into().ok()?;
        let parent: [u8; 16] = header.get(36..52)?.try_into().ok()?;
        let flags = header.get(53..55).filter(|it| are_digits(it))?;
        let are_ids =
            are_digits(&id) && are_digits(&parent) && id != [b'0'; 32] && parent != [b'0'; 16];
        let is_sampled = digit(flags[1]) & 1 == 1;
        (is_whole && dashes && are_ids).then_some(Self { id, parent: Some(parent), is_sampled })
    }

    /// Begins a trace; of chance that is all zeros one is made all the same.
    pub(super) fn begin(chance: u128) -> Self {
        let mut id = [b'0'; 32];
        for (at, it) in id.iter_mut().enumerate() {
            *it = HEX[usize::try_from(chance.max(1) >> (4 * (31 - at)) & 15).unwrap_or(0)];
        }
        Self { id, parent: None, is_sampled: false }
    }

    pub fn id(&self) -> &str {
        std::str::from_utf8(&self.id).unwrap_or_default()
    }

    pub(super) fn id_bytes(&self) -> Vec<u8> {
        bytes(&self.id)
    }

    pub(super) fn parent_bytes(&self) -> Vec<u8> {
        self.parent.map_or_else(Vec::new, |it| bytes(&it))
    }

    /// Tells whether it is among the share that is drawn; every router draws alike.
    pub(super) fn is_drawn(&self, share: f64) -> bool {
        let digits = &self.id[self.id.len() - LOT_DIGITS..];
        let lot = digits.iter().fold(0.0, |all, it| 16.0 * all + f64::from(digit(*it)));
        lot < share * 16_f64.powi(13)
    }

    /// Writes the header for what is below the span `span`.
    pub(super) fn header(&self, span: u64) -> String {
        let mut header = String::with_capacity(55);
        // Writing to a string does not fail.
        _ = write!(header, "00-{}-{span:016x}-{:02x}", self.id(), u8::from(self.is_sampled));
        header
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Tells whether all are hexadecimal digits as headers have them: in small letters.
fn are_digits(text: &[u8]) -> bool {
    text.iter().all(|it| HEX.contains(it))
}

fn digit(it: u8) -> u8 {
    if it <= b'9' { it.wrapping_sub(b'0') } else { it.wrapping_sub(b'a').wrapping_add(10) }
}

fn bytes(digits: &[u8]) -> Vec<u8> {
    digits.chunks_exact(2).map(|it| digit(it[0]) << 4 | digit(it[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_is_read_as_it_stands_and_goes_on_below_another_span() {
        let it = TraceContext::read(GOOD.as_bytes()).unwrap();
        assert_eq!((it.id(), it.is_sampled), ("4bf92f3577b34da6a3ce929d0e0e4736", true));
        assert_eq!(it.parent_bytes(), 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        assert_eq!(it.id_bytes(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
        let below = it.header(0xabc);
        assert_eq!(below, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000abc-01");
        assert!(TraceContext::read(below.as_bytes()).is_some());
        let newer = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more";
        assert!(!TraceContext::read(newer.as_bytes()).unwrap().is_sampled);
    }

    #[test]
    fn nothing_else_is_a_trace() {
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47_6-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more",
        ] {
            assert_eq!(TraceContext::read(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_share_that_is_drawn_is_the_share_asked_for() {
        // Well mixed, as chance is.
        let ids =
            (1..=10_000_u128).map(|it| it.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let contexts: Vec<TraceContext> = ids.map(TraceContext::begin).collect();
        for (share, wanted) in [(0.0, 0..=0), (0.01, 60..=140), (1.0, 10_000..=10_000)] {
            let drawn = contexts.iter().filter(|it| it.is_drawn(share)).count();
            assert!(wanted.contains(&drawn), "{drawn} of 10,000 at {share}");
        }
        assert_eq!(TraceContext::begin(0).id(), "00000000000000000000000000000001");
    }
}
