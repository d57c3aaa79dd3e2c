//! The caller that a request is counted for: its tenant, or where it has none the address it comes
//! from. What clients can make the router hold (request bodies, answers that are not taken) is
//! counted here for each caller, so that one caller's load falls on that caller.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cleave_core::queue::Tenant;

/// Entries of callers that are gone are looked for at this size, then at twice what is left.
const LOOK_MIN: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Tenant(Tenant),
    V4(Ipv4Addr),
    /// A network of 64 bits: that is what one client is given.
    V6(u64),
}

impl Owner {
    /// Names the tenant; the shared tenant is told apart by address.
    pub(super) fn of(tenant: Tenant, peer: IpAddr) -> Self {
        if tenant != Tenant::default() {
            return Self::Tenant(tenant);
        }
        match peer.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                let high = [a, b, c, d].into_iter().fold(0, |sum, it| sum << 16 | u64::from(it));
                Self::V6(high)
            }
        }
    }
}

/// What one caller holds.
#[derive(Debug, Default)]
pub(super) struct Caller {
    /// Bytes of its request bodies. Changed under the lock of the buffers alone.
    pub(super) held_bytes: AtomicUsize,
    /// Answers that are on their way to it.
    pub(super) answers: AtomicUsize,
    /// Those of them that it does not take.
    pub(super) stuck: AtomicUsize,
}

/// All callers that have a request in the router.
#[derive(Debug, Default)]
pub(super) struct Callers(Mutex<CallerTable>);

#[derive(Debug, Default)]
struct CallerTable {
    by_owner: BTreeMap<Owner, Weak<Caller>>,
    look_at: usize,
}

impl Callers {
    pub(super) fn find(&self, owner: Owner) -> Arc<Caller> {
        // A panic elsewhere cannot leave the table half changed.
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.by_owner.get(&owner).and_then(Weak::upgrade) {
            return known;
        }
        let caller = Arc::new(Caller::default());
        table.by_owner.insert(owner, Arc::downgrade(&caller));
        if table.look_at.max(LOOK_MIN) < table.by_owner.len() {
            table.by_owner.retain(|_, it| 0 < it.strong_count());
            table.look_at = 2 * table.by_owner.len();
        }
        caller
    }
}

/// Counts one thing of a caller for as long as it lives.
#[derive(Debug)]
pub(super) struct Counted {
    caller: Arc<Caller>,
    what: fn(&Caller) -> &AtomicUsize,
}

impl Counted {
    pub(super) fn new(caller: &Arc<Caller>, what: fn(&Caller) -> &AtomicUsize) -> Self {
        what(caller).fetch_add(1, Relaxed);
        Self { caller: Arc::clone(caller), what }
    }

    pub(super) fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.what)(&self.caller).fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Owner {
        Owner::of(Tenant::default(), address.parse().unwrap())
    }

    #[test]
    fn a_tenant_is_one_caller_wherever_it_is_and_others_are_known_by_address() {
        let tenant = |address: &str| Owner::of(Tenant(7), address.parse().unwrap());
        assert_eq!(tenant("10.0.0.1"), tenant("10.0.0.2"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
        assert_eq!(at("10.0.0.1"), at("::ffff:10.0.0.1"));
        assert_eq!(at("2001:db8:1:2::1"), at("2001:db8:1:2:ffff::9"), "one network is one client");
        assert_ne!(at("2001:db8:1:2::1"), at("2001:db8:1:3::1"));
    }

    #[test]
    fn callers_without_a_request_are_forgotten() {
        let callers = Callers::default();
        let kept = callers.find(at("10.0.0.1"));
        for number in 0..10_000_u32 {
            drop(callers.find(Owner::V4(number.into())));
        }
        assert!(Arc::ptr_eq(&kept, &callers.find(at("10.0.0.1"))));
        assert!(callers.0.lock().unwrap().by_owner.len() <= 2 * LOOK_MIN);
    }
}
