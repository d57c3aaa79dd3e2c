//! A store that only keeps objects, as the API server of Kubernetes does, ends no lease by itself: the routers that
//! want it watch it. Clocks of machines differ, so the time that its holder wrote into it says nothing. What counts is
//! how long it stayed as it is, by the clock of the one that looks: the holder counts from before it asked, the others
//! from after they saw it, and the holder gives up a part of its time, so it has stepped down before any of them takes
//! the lease.

use std::fmt::Write as _;
use std::time::Duration;

use crate::domain::Moment;

/// A holder gives up this part of the time of its lease: a fifth.
const MARGIN: u32 = 5;

/// A lease of which one sees only whether it changes.
#[derive(Debug, Default)]
pub struct ObservedLease {
    /// Which version of it was seen, and since when.
    seen: Option<(String, Moment)>,
}

impl ObservedLease {
    /// For how long a holder may rely on a lease of this time.
    pub fn trusted(ttl: Duration) -> Duration {
        ttl * (MARGIN - 1) / MARGIN
    }

    /// Takes in what is there now; tells whether it has stayed so for all its time.
    pub fn is_over(&mut self, now: Moment, version: &str, ttl: Duration) -> bool {
        match &self.seen {
            Some((seen, since)) if seen == version => ttl <= now.since(*since),
            Some(_) | None => {
                self.seen = Some((version.to_owned(), now));
                false
            }
        }
    }
}

/// Writes the name of a record in letters that every store takes: letters, digits, `-`, `_` and `.`.
pub fn kept_name(name: &str) -> String {
    let mut written = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'/' => written.push('.'),
            b'-' => written.push('-'),
            _ if byte.is_ascii_alphanumeric() => written.push(char::from(byte)),
            _ => {
                // Writing to text cannot fail.
                _ = write!(written, "_{byte:02X}");
            }
        }
    }
    written
}

/// Reads what [`kept_name`] wrote; none where it did not.
pub fn read_kept_name(written: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'.' => bytes.push(b'/'),
            b'_' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            }
            other => bytes.push(*other),
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (kept_name(&name) == written).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TTL: Duration = Duration::from_secs(8);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_lease_is_over_when_it_stayed_as_it_was_for_its_time() {
        let mut lease = ObservedLease::default();
        assert!(!lease.is_over(at(0), "1", TTL), "however long it lay there before");
        assert!(!lease.is_over(at(7_999), "1", TTL));
        assert!(lease.is_over(at(8_000), "1", TTL));
        assert!(!lease.is_over(at(8_000), "2", TTL), "it was renewed");
        assert!(!lease.is_over(at(15_000), "2", TTL));
        assert!(lease.is_over(at(16_000), "2", TTL));
    }

    proptest! {
        /// A holder renews, perhaps late or never; each of the others looks when it likes.
        #[test]
        fn the_holder_has_stepped_down_before_another_finds_the_lease_over(
            events in prop::collection::vec((0_u64..6_000, 0_u64..500, any::<bool>()), 1..60),
        ) {
            let (mut now, mut version, mut trusted_until) = (0, 0_u64, 0);
            let mut other = ObservedLease::default();
            for (pause, late, is_renewal) in events {
                now += pause;
                if is_renewal {
                    // It counts from when it was asked; the answer comes later.
                    trusted_until = now + u64::try_from(ObservedLease::trusted(TTL).as_millis()).unwrap();
                    now += late;
                    version += 1;
                } else if other.is_over(at(now), &version.to_string(), TTL) {
                    prop_assert!(trusted_until < now, "both lead at {now}");
                }
            }
        }

        #[test]
        fn every_name_comes_back_and_is_taken_by_every_store(name in "\\PC{0,40}|[a-z/._-]{0,40}") {
            let written = kept_name(&name);
            let is_fit = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
            prop_assert!(written.chars().all(is_fit), "{written}");
            prop_assert_eq!(read_kept_name(&written), Some(name));
        }
    }

    #[test]
    fn names_are_plain_where_they_can_be() {
        assert_eq!(kept_name("pools/chat/plan"), "pools.chat.plan");
        assert_eq!(kept_name("pools/a.b_c/plan"), "pools.a_2Eb_5Fc.plan");
        for foreign in ["_", "_2", "_zz", "_41", "ä", "_C3"] {
            assert_eq!(read_kept_name(foreign), None, "{foreign}");
        }
    }
}
