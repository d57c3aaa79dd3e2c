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

    /// Learns how long contexts are from a request of another router.
    pub(in crate::brain) fn learn_elsewhere(&mut self, prompt_tokens: u32, output_tokens: u32) {
        if output_tokens != 0 {
            self.knees.learn(prompt_tokens, output_tokens);
        }
    }
}
