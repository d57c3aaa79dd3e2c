//! What other routers let through: it counts against the contracts of its tenants, and shows how long contexts are.

use crate::domain::Moment;
use crate::queue::{Tenant, Work};

use super::Admission;

impl Admission {
    /// Counts a request that another router let through: its work and its tokens.
    pub(in crate::brain) fn spend_elsewhere(
        &mut self,
        now: Moment,
        tenant: Tenant,
        (work, tokens): (Work, u64),
    ) {
        if work != Work::ZERO || tokens != 0 {
            self.contracts.account(tenant).spend_elsewhere(now, work, tokens);
        }
    }

    /// Corrects that by what it came to.
    pub(in crate::brain) fn correct_elsewhere(
        &mut self,
        tenant: Tenant,
        before: (Work, u64),
        came: (Work, u64),
    ) {
        self.contracts.account(tenant).correct_elsewhere(before, came);
    }

    /// Lists what is missing of each contract.
    pub(in crate::brain) fn missing(&self) -> impl Iterator<Item = (Tenant, [u64; 3])> + '_ {
        let limited = self.contracts.iter().filter(|it| it.1.is_limited());
        limited.map(|(tenant, it)| (tenant, it.missing()))
    }

    /// Takes on what another router has seen taken of a contract, where that is more.
    pub(in crate::brain) fn catch_up(&mut self, now: Moment, tenant: Tenant, missing: [u64; 3]) {
        self.contracts.account(tenant).catch_up(now, missing);
    }

    /// Learns how long contexts are from a request of another router.
    pub(in crate::brain) fn learn_elsewhere(&mut self, prompt_tokens: u32, output_tokens: u32) {
        if output_tokens != 0 {
            self.knees.learn(prompt_tokens, output_tokens);
        }
    }
}
