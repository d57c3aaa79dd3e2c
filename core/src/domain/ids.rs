//! Identifiers of replicas, requests and sessions.

use std::fmt;

use twox_hash::XxHash3_64;

/// One replica for as long as this process knows it; never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u32);

/// Where a replica stands for hashing: from its address alone, so the same in every router, whatever
/// the order of their lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u64);

impl Place {
    pub fn of(address: &str) -> Self {
        Self(XxHash3_64::oneshot(address.as_bytes()))
    }
}

/// One router for as long as its process lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterId(pub u64);

/// One request of one router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Where a session lies in the key space: `hash32(workload) ‖ hash32(session)`, so that a workload
/// is one contiguous range and a split by session keeps every session whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceKey(pub u64);

impl SliceKey {
    /// Places `session` of `tenant` for `model`. The session half is salted with the workload, so
    /// that no tenant can aim at another tenant's place by guessing session ids.
    pub fn new(tenant: u64, model: &str, session: &str) -> Self {
        let workload = Self::seed(tenant, model);
        let session = XxHash3_64::oneshot_with_seed(workload, session.as_bytes());
        Self((workload & !0xFFFF_FFFF) | (session >> 32))
    }
}

impl SliceKey {
    /// The number that sessions of `tenant` for `model` are hashed with; its upper half names the workload.
    pub fn seed(tenant: u64, model: &str) -> u64 {
        XxHash3_64::oneshot_with_seed(tenant, model.as_bytes())
    }

    /// The half that names the workload.
    pub fn workload(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SliceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_one_range() {
        let one = SliceKey::new(7, "m", "a").0 >> 32;
        assert_eq!(one, SliceKey::new(7, "m", "b").0 >> 32);
        assert_ne!(one, SliceKey::new(7, "n", "a").0 >> 32);
    }

    #[test]
    fn tenants_with_equal_session_ids_are_apart_in_both_halves() {
        let one = SliceKey::new(1, "m", "a").0;
        let other = SliceKey::new(2, "m", "a").0;
        assert_ne!(one >> 32, other >> 32);
        assert_ne!(one & 0xFFFF_FFFF, other & 0xFFFF_FFFF);
    }
}
