//! The books of what was let through: what a request really cost is settled with the line, its contract
//! and the gate, once, however it ended. What was predicted is corrected here and nowhere else.

use crate::cost::Hardware;
use crate::domain::{Moment, ReplicaId, SliceKey, span_ms};
use crate::fleet::Replica;
use crate::queue::{ContractUsage, GateSnapshot, Limits, Line, Tenant, Work};

use super::super::request::{Booking, CostEstimate};
use super::Admission;

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::brain) struct Bill {
    /// In milliseconds of its replica.
    pub(in crate::brain) cost_ms: f64,
    /// Tokens of prompt and answer.
    pub(in crate::brain) tokens: u64,
    pub(in crate::brain) prompt_tokens: u32,
    /// How long the answer was, where the engine says it.
    pub(in crate::brain) output_tokens: Option<u32>,
}

impl Admission {
    /// Books a request that goes to a replica for the first time.
    pub(in crate::brain) fn on_sent(&mut self, now: Moment, booking: &Booking) {
        self.turns.on_sent(booking.replica);
        if booking.past.tried.is_empty() {
            self.gate.on_sent(now, booking.key, booking.estimate.tokens);
        }
    }

    /// Closes the books of a request that was sent.
    pub(in crate::brain) fn settle(
        &mut self,
        now: Moment,
        key: SliceKey,
        estimate: &CostEstimate,
        hardware: &Hardware,
        bill: Bill,
    ) {
        let real = work_of(hardware, bill.cost_ms);
        let CostEstimate { class, tenant, work, held, .. } = *estimate;
        self.line.settle(class, tenant, work, real);
        if let Some(held) = held {
            self.contracts.holder(tenant, &held).settle(held, real, bill.tokens);
        }
        self.gate.on_ended(now, key, bill.tokens);
        if let Some(output) = bill.output_tokens {
            self.knees.learn(bill.prompt_tokens, output);
        }
    }

    /// Gives back what was reserved for a request that was let go and failed everywhere.
    pub(in crate::brain) fn on_unserved(&mut self, now: Moment, booking: &Booking) {
        self.take_back(&booking.estimate);
        self.gate.on_ended(now, booking.key, 0);
    }

    /// Counts what a stream with `output` tokens has used by now against its contract.
    pub(in crate::brain) fn on_streamed(
        &mut self,
        booking: &mut Booking,
        replica: &Replica,
        output: u32,
    ) {
        let account = &booking.account;
        // The first byte is the first token only if the answer streams.
        if let (0, Some(first)) = (account.streamed_tokens, account.first) {
            let taken_ms = span_ms(first.at.since(account.sent_at));
            self.knees.on_first_token(replica, account.sent_at, taken_ms, account.ttft_ms);
        }
        let Some(held) = &mut booking.estimate.held else { return };
        let prompt = booking.outline.prompt_tokens;
        let cached = booking.account.cached_tokens.min(prompt);
        let cost = &replica.hardware.cost;
        let context = prompt.saturating_add(output / 2);
        let cost_ms = cost.cost_ms(prompt - cached, cached, output, context);
        let work = work_of(&replica.hardware, cost_ms);
        let tokens = u64::from(prompt) + u64::from(output);
        self.contracts.holder(booking.estimate.tenant, held).flow(held, work, tokens);
    }

    /// Gives back what a request holds of its contract: it was never served.
    pub(super) fn refund(&mut self, estimate: &CostEstimate) {
        if let Some(held) = estimate.held {
            self.contracts.holder(estimate.tenant, &held).cancel(held);
        }
    }

    /// Takes back what a request was charged and holds: it was let go and could not be sent.
    pub(in crate::brain) fn take_back(&mut self, estimate: &CostEstimate) {
        self.refund(estimate);
        self.line.settle(estimate.class, estimate.tenant, estimate.work, Work::ZERO);
    }

    pub(in crate::brain) fn on_joined(&mut self, replica: &Replica) {
        self.knees.on_joined(replica.id, &replica.hardware);
    }

    /// Notes that work at a replica takes `stretch` times as long as was thought.
    pub(in crate::brain) fn on_repriced(&mut self, replica: &Replica, stretch: f64) {
        self.knees.on_repriced(replica.id, &replica.hardware, stretch);
    }

    pub(in crate::brain) fn on_left(&mut self, replica: ReplicaId) {
        self.knees.on_left(replica);
    }

    /// Measures the capacity and KV memory of the replicas that take new sessions and stay.
    pub(in crate::brain) fn measure<'a>(
        &mut self,
        there: impl Iterator<Item = &'a Replica> + Clone,
    ) {
        // A replica that never came up has neither.
        let there = there.filter(|it| !it.is_joining());
        let capacity: f64 = there.clone().map(|it| it.hardware.capacity_mu_per_min).sum();
        let told = there.clone().filter_map(|it| it.reported.report()?.kv_tokens_max);
        // Replicas that report no memory are assumed to have as much as those that do, on average.
        let count = u64::try_from(told.clone().count()).unwrap_or(0);
        let all = u64::try_from(there.count()).unwrap_or(0);
        let kv_tokens = told.sum::<u64>() * all / count.max(1);
        let capacity_per_min = Work::from_mu(capacity);
        if capacity_per_min != self.capacity_per_min {
            self.drain_rate.expect(self.capacity_per_min, capacity_per_min);
            self.capacity_per_min = capacity_per_min;
        }
        self.gate.on_room((0 < count).then_some(kv_tokens), capacity_per_min);
    }

    pub(in crate::brain) fn on_time(&mut self, now: Moment) {
        self.gate.on_time(now);
    }

    pub(in crate::brain) fn on_contracted(
        &mut self,
        now: Moment,
        limits: impl IntoIterator<Item = (Tenant, Limits)>,
    ) {
        self.contracts.reset(now, limits);
    }

    /// Takes over what tenants have used by the books of an earlier brain, whose requests are all over.
    pub(in crate::brain) fn inherit(&mut self, old: &mut Self) {
        for parked in std::mem::take(&mut old.parked).values() {
            old.refund(&parked.estimate);
        }
        self.contracts = old.contracts.clone();
        self.contracts.forget_reserved();
    }

    /// Shows where a tenant stands; nothing for one without a contract.
    pub(in crate::brain) fn contract<'a>(
        &mut self,
        now: Moment,
        tenant: Tenant,
        there: impl Iterator<Item = (&'a Replica, f64)>,
    ) -> Option<ContractUsage> {
        let account = self.contracts.account(tenant);
        let usage = account.is_limited().then(|| account.usage_at(now))?;
        let class = self.settings.classes.default_id();
        let is_idle = !usage.limits.is_hard && self.has_idle(now, class, there);
        Some(if is_idle { usage.with_idle_capacity() } else { usage })
    }

    /// Lists what each tenant with a name has waiting and has used, and all others together.
    pub(in crate::brain) fn tenants(
        &self,
    ) -> impl Iterator<Item = (Tenant, usize, ContractUsage)> + '_ {
        let accounts = self.contracts.iter();
        accounts.map(|(tenant, it)| (tenant, self.line.waiting_of(tenant), it.usage()))
    }

    /// What the line holds: requests, bytes, and by class; and the model units that leave it in a minute.
    pub(in crate::brain) const fn line(&self) -> &Line {
        &self.line
    }

    pub(in crate::brain) fn mu_per_min(&self) -> f64 {
        self.drain_rate.mu_per_min()
    }

    pub(in crate::brain) fn sessions(&self) -> GateSnapshot {
        self.gate.snapshot()
    }

    /// Lists the sessions that live: their context, and what of it will be wanted again as far as chance tells.
    pub(in crate::brain) fn living(&self) -> impl Iterator<Item = (SliceKey, u64, u64)> + '_ {
        self.gate.living()
    }

    /// Counts what contracts hold for requests, and those of the requests that wait.
    pub(in crate::brain) fn reserved(&self) -> (u64, usize) {
        let waiting = self.parked.values().filter(|it| it.estimate.is_held()).count();
        (self.contracts.reserved(), waiting)
    }
}

/// Turns time of one class of replicas into work.
pub(super) fn work_of(hardware: &Hardware, cost_ms: f64) -> Work {
    Work::from_mu(hardware.mu(cost_ms))
}
