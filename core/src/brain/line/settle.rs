//! The books of what was let through: what a request really cost is settled with the line, its contract
//! and the gate, once, however it ended. What was predicted is corrected here and nowhere else.

use crate::cost::Hardware;
use crate::domain::{Moment, RequestId, Usage, span_ms};
use crate::queue::Work;

use super::super::Brain;
use super::super::request::{Booking, CostEstimate};
use super::computed::Computed;

impl Brain {
    /// Books a request that goes to a replica.
    pub(in super::super) fn hold_on_sent(&mut self, now: Moment, booking: &Booking) {
        if booking.tried.is_empty() {
            self.hold.gate.on_sent(now, booking.key, booking.estimate.tokens);
        }
    }

    /// Closes the books of a request that was sent: what it came to, by what is believed of its usage
    /// and by prediction.
    pub(in super::super) fn hold_on_ended(
        &mut self,
        now: Moment,
        booking: &Booking,
        usage: Usage,
        is_whole: bool,
    ) {
        let Some(replica) = self.fleet.get(booking.replica) else {
            // It cannot leave while anything is in flight there; the books are closed all the same.
            self.hold_on_unserved(now, booking);
            return;
        };
        let came = Computed::new(now, booking, replica, usage, is_whole);
        let cost = &replica.hardware.cost;
        let cost_ms = cost.cost_ms(came.new, came.cached, came.output, came.context());
        let real = work_of(&replica.hardware, cost_ms);
        let CostEstimate { class, tenant, work, held, .. } = booking.estimate;
        self.hold.line.settle(class, tenant, work, real);
        if let Some(held) = held {
            self.hold.contracts.holder(tenant, &held).settle(held, real, came.tokens());
        }
        self.hold.gate.on_ended(now, booking.key, came.tokens());
        if let Some(output) = usage.output {
            self.hold.knees.learn(came.prompt(), output);
        }
    }

    /// Gives back what was reserved for a request that failed everywhere.
    pub(in super::super) fn hold_on_unserved(&mut self, now: Moment, booking: &Booking) {
        self.hold.take_back(&booking.estimate);
        self.hold.gate.on_ended(now, booking.key, 0);
    }

    /// Counts what a stream has used by now against its contract.
    pub(in super::super) fn hold_on_streamed(&mut self, request: RequestId, output: u32) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let Some(replica) = self.fleet.get(booking.replica) else { return };
        let account = &booking.account;
        // Only of a stream is the first byte the first token.
        if let (0, Some(first)) = (account.streamed_tokens, account.first) {
            let taken_ms = span_ms(first.at.since(account.sent_at));
            self.hold.knees.on_first_token(replica, account.sent_at, taken_ms, account.ttft_ms);
        }
        let Some(held) = &mut booking.estimate.held else { return };
        let prompt = booking.outline.prompt_tokens;
        let cached = booking.account.cached_tokens.min(prompt);
        let cost = &replica.hardware.cost;
        let context = prompt.saturating_add(output / 2);
        let cost_ms = cost.cost_ms(prompt - cached, cached, output, context);
        let work = work_of(&replica.hardware, cost_ms);
        let tokens = u64::from(prompt) + u64::from(output);
        self.hold.contracts.holder(booking.estimate.tenant, held).flow(held, work, tokens);
    }

    /// Learns how much the fleet can do and hold, now that it changed or may have.
    pub(in super::super) fn measure_fleet(&mut self) {
        let there = || self.takers().filter(|it| !it.leaving);
        let capacity: f64 = there().map(|it| it.hardware.capacity_mu_per_min).sum();
        let told: Vec<u64> = there().filter_map(|it| it.reported.report()?.kv_tokens_max).collect();
        // Those that do not tell are taken to be like those that do.
        let count = u64::try_from(told.len()).unwrap_or(0);
        let all = u64::try_from(there().count()).unwrap_or(0);
        let kv_tokens = told.iter().sum::<u64>() * all / count.max(1);
        self.hold.on_fleet(Work::from_mu(capacity), (0 < count).then_some(kv_tokens));
    }
}

/// Turns time of one class of replicas into work.
pub(super) fn work_of(hardware: &Hardware, cost_ms: f64) -> Work {
    Work::from_mu(cost_ms / 60_000.0 * hardware.capacity_mu_per_min)
}
