//! What a request will cost and what it needs, worked out once when it arrives.

use crate::cost::Hardware;
use crate::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey};
use crate::policy::Ask;
use crate::queue::{Claim, GateAnswer};

use super::super::request::{Booking, CostEstimate, Due, Fingerprint, PromptSize, target};
use super::Admission;
use super::lanes::LaneKey;
use super::settle::work_of;

/// A request as it arrived.
#[derive(Debug)]
pub(in crate::brain) struct Arrival {
    pub(in crate::brain) request: RequestId,
    pub(in crate::brain) key: SliceKey,
    pub(in crate::brain) outline: Outline,
    pub(in crate::brain) extent: Extent,
    pub(in crate::brain) claim: Claim,
    pub(in crate::brain) fingerprint: Fingerprint,
}

/// A request that has not been sent.
#[derive(Debug)]
pub(in crate::brain) struct Parked {
    pub(in crate::brain) key: SliceKey,
    pub(super) outline: Outline,
    pub(super) extent: Extent,
    pub(in crate::brain) fingerprint: Fingerprint,
    /// Where its session was last, if that may take it.
    pub(in crate::brain) home: Option<ReplicaId>,
    /// Whether its workload may use only some of the replicas.
    pub(in crate::brain) is_divided: bool,
    pub(super) gate: GateAnswer,
    pub(in crate::brain) arrived_at: Moment,
    pub(in crate::brain) estimate: CostEstimate,
}

impl Parked {
    pub(super) fn lane(&self) -> LaneKey {
        LaneKey {
            class: self.estimate.class.0,
            is_fresh: self.gate == GateAnswer::Wait,
            prompt: if self.waits_for_keeper() { PromptSize::Usual } else { self.estimate.prompt },
            is_kept: self.waits_for_keeper(),
            workload: self.is_divided.then(|| self.key.workload()),
            home: self.home,
        }
    }

    /// Tells whether it has a prompt to compute, and only one replica can.
    pub(in crate::brain) const fn waits_for_keeper(&self) -> bool {
        self.outline.kept_at.is_some() && 0 < self.extent.prompt_bytes()
    }

    pub(in crate::brain) fn ask(&self, now: Moment) -> Ask<'_> {
        let promise = self.estimate.promise;
        Ask { now, key: self.key, outline: &self.outline, home: None, promise }
    }

    pub(in crate::brain) fn booking(self, replica: ReplicaId) -> Booking {
        let Self { key, outline, extent, fingerprint, estimate, .. } = self;
        Booking::new(key, outline, extent, fingerprint, replica, estimate)
    }
}

impl Admission {
    /// Works out what a request will cost on `hardware`, and by when it must be sent. `home` is where its cache is,
    /// `is_divided` says that its workload may use only some of the replicas, and `held_at` how many tokens
    /// of a prompt are believed to lie in the cache of a replica.
    pub(in crate::brain) fn assess(
        &mut self,
        now: Moment,
        arrival: Arrival,
        home: Option<ReplicaId>,
        is_divided: bool,
        hardware: &Hardware,
        held_at: impl FnOnce(&Outline, ReplicaId) -> u32,
    ) -> Parked {
        let Arrival { key, outline, extent, claim, fingerprint, .. } = arrival;
        // What goes on from something that is kept begins no session.
        let gates = self.settings.gates && outline.kept_at.is_none();
        let gate = if gates { self.gate.ask(key) } else { GateAnswer::Live };
        let prompt = outline.prompt_tokens;
        let output = outline.output_tokens.unwrap_or(0);
        let known = if home.is_some() { self.gate.tokens_of(key) } else { 0 };
        let cached = u32::try_from(known).unwrap_or(u32::MAX).min(prompt.saturating_sub(1));
        let cost = &hardware.cost;
        let prefill_ms = cost.prefill_ms(prompt - cached, cached);
        let first_token_ms = prefill_ms + hardware.overhead_ms;
        let decode_ms = cost.decode_ms(output, prompt.saturating_add(output / 2));
        if self.settings.gates {
            self.gate.on_arrival(now, work_of(hardware, cost.prefill_ms(prompt, 0) + decode_ms));
        }
        let classes = &self.settings.classes;
        let class = claim.class.unwrap_or(classes.default_id());
        let promise = classes.promise(class);
        let gap_ms = promise.token_gap_ms();
        let is_short = |cached| cost.prefill_ms(prompt - cached, cached) < gap_ms;
        let size = if self.headroom.is_long(class.index(), prefill_ms) {
            PromptSize::Long
        } else if is_short(0) {
            PromptSize::Short
        } else if prefill_ms < gap_ms && home.is_some_and(|it| is_short(held_at(&outline, it))) {
            PromptSize::ShortAtHome
        } else {
            PromptSize::Usual
        };
        let estimate = CostEstimate {
            class,
            promise,
            tenant: claim.tenant,
            weight: claim.weight,
            work: work_of(hardware, prefill_ms + decode_ms),
            tokens: u64::from(prompt) + u64::from(output),
            prompt: size,
            due: Due::new(&claim, first_token_ms, hardware, output),
            target: promise.first_token.map(|it| target(now, it, first_token_ms)),
            first_token_ms,
            bytes: claim.bytes,
            held: None,
        };
        let arrived_at = now;
        Parked { key, outline, extent, fingerprint, home, is_divided, gate, arrived_at, estimate }
    }
}
