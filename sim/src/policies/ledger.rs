//! What a policy has sent where and not seen the end of: the account some rules steer by. Each
//! request is charged with an amount until its first token and another until its end, in a unit of
//! the policy's choice. It holds requests in flight and nothing else, so it needs no limit.

use rustc_hash::FxHashMap;

use cleave_core::domain::{ReplicaId, RequestId};

/// What weighs on one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Charged until the first token.
    pub(super) prefill: u64,
    /// Charged until the end.
    pub(super) rest: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    charges: FxHashMap<RequestId, (ReplicaId, Load)>,
    loads: FxHashMap<ReplicaId, Load>,
}

impl Ledger {
    pub(super) fn load(&self, replica: ReplicaId) -> Load {
        self.loads.get(&replica).copied().unwrap_or_default()
    }

    pub(super) fn on_sent(&mut self, request: RequestId, replica: ReplicaId, charge: Load) {
        // A request is in one place at a time; should its end be lost, the new place counts.
        self.on_ended(request);
        let load = self.loads.entry(replica).or_default();
        load.prefill += charge.prefill;
        load.rest += charge.rest;
        self.charges.insert(request, (replica, charge));
    }

    pub(super) fn on_first_token(&mut self, request: RequestId) {
        let Some((replica, charge)) = self.charges.get_mut(&request) else { return };
        let prefill = std::mem::take(&mut charge.prefill);
        if let Some(load) = self.loads.get_mut(replica) {
            load.prefill -= prefill;
        }
    }

    pub(super) fn on_ended(&mut self, request: RequestId) {
        let Some((replica, charge)) = self.charges.remove(&request) else { return };
        let Some(load) = self.loads.get_mut(&replica) else { return };
        load.prefill -= charge.prefill;
        load.rest -= charge.rest;
        if *load == Load::default() {
            self.loads.remove(&replica);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_weighs_less_after_its_first_token_and_nothing_after_its_end() {
        let mut ledger = Ledger::default();
        let (one, other) = (ReplicaId(0), ReplicaId(1));
        ledger.on_sent(RequestId(1), one, Load { prefill: 100, rest: 7 });
        ledger.on_sent(RequestId(2), one, Load { prefill: 50, rest: 3 });
        ledger.on_first_token(RequestId(1));
        ledger.on_first_token(RequestId(1));
        assert_eq!(ledger.load(one), Load { prefill: 50, rest: 10 });
        ledger.on_sent(RequestId(2), other, Load { prefill: 40, rest: 0 });
        assert_eq!((ledger.load(one).rest, ledger.load(other).prefill), (7, 40));
        (0..4).for_each(|it| ledger.on_ended(RequestId(it)));
        assert!(ledger.loads.is_empty() && ledger.charges.is_empty());
    }
}
