//! Plans one step, as vLLM V1 does: first the running sequences, in the order of admission (which
//! puts decodes before an unfinished prefill, since only a step with budget left admits a new one),
//! then the line, first come first served. A running sequence that finds no KV takes it from the
//! newest; a waiting one takes none from others. There is no priority and no look-ahead: routers do
//! that.

use std::time::Duration;

use cleave_core::cost::StepWork;

use super::Engine;

impl Engine {
    /// Chooses what the next step computes and returns how long it takes; nothing when idle.
    pub(super) fn plan_step(&mut self) -> Option<Duration> {
        self.step.work = StepWork::default();
        self.step.tokens = 0;
        let preempted = self.continue_running();
        // A step that had to preempt admits no sequence: the place it made would be lost at once.
        if !preempted {
            while self.admit_head() {}
        }
        (!self.step.slots.is_empty()).then(|| self.step_time())
    }

    fn budget_left(&self) -> u32 {
        self.settings.batched_tokens_max - self.step.tokens
    }

    /// Gives each running sequence its next tokens; returns whether any had to be preempted.
    fn continue_running(&mut self) -> bool {
        let mut preempted = false;
        let mut at = 0;
        while at < self.running.len() && 0 < self.budget_left() {
            let slot = self.running[at];
            let new = self.slots.get(slot).missing_tokens().min(self.budget_left());
            while !self.grow(slot, new) {
                preempted = true;
                let newest = self.running.pop().expect("the sequence that wants to grow runs");
                self.preempt(newest);
                if newest == slot {
                    return true;
                }
            }
            self.compute(slot, new);
            at += 1;
        }
        preempted
    }

    /// Moves the head of the line into the step; returns whether it could.
    fn admit_head(&mut self) -> bool {
        let Some(&slot) = self.waiting.front() else { return false };
        let seqs = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        if self.budget_left() == 0 || self.settings.seqs_max <= seqs {
            return false;
        }
        let id = self.slots.get(slot).job.id;
        // Looking the prompt up again is futile until blocks were given back.
        if self.blocked == Some((id, self.kv.releases())) {
            return false;
        }
        let block_tokens = self.settings.block_tokens;
        let sequence = self.slots.get(slot);
        let hit = self.kv.find_prefix(sequence.shareable_prefix(block_tokens));
        let given = sequence.job.given_tokens.min(sequence.job.prompt_tokens - 1);
        let cached = given.max(hit.blocks * block_tokens);
        let new = (sequence.known_tokens() - cached).min(self.budget_left());
        let fresh_blocks = (cached + new).div_ceil(block_tokens) - hit.blocks;
        if self.kv.available() < fresh_blocks + hit.unheld_blocks {
            self.blocked = Some((id, self.kv.releases()));
            return false;
        }
        let sequence = self.slots.get_mut(slot);
        sequence.take_prefix(&mut self.kv, hit.blocks, cached);
        if sequence.preemptions == 0 {
            self.totals.prefix_queries_tokens += u64::from(sequence.job.prompt_tokens);
            self.totals.prefix_hits_tokens += u64::from(cached);
        }
        self.waiting.pop_front();
        self.running.push(slot);
        let grown = self.grow(slot, new);
        assert!(grown, "the blocks were counted before");
        self.compute(slot, new);
        true
    }

    /// Takes the blocks for `new` more tokens; takes none when there are too few.
    fn grow(&mut self, slot: u32, new: u32) -> bool {
        let sequence = self.slots.get_mut(slot);
        let wanted = (sequence.computed_tokens + new).div_ceil(self.settings.block_tokens);
        let fresh = wanted - sequence.held_blocks();
        if self.kv.available() < fresh {
            return false;
        }
        for _ in 0..fresh {
            sequence.blocks.push(self.kv.allocate().expect("the blocks were counted"));
        }
        true
    }

    /// Books `new` tokens of a sequence into the step. Their full blocks can be shared at once, also
    /// by others in this very step, because a step writes all keys before it reads them.
    fn compute(&mut self, slot: u32, new: u32) {
        let sequence = self.slots.get_mut(slot);
        self.step.work.add(new, sequence.computed_tokens);
        self.step.tokens += new;
        self.step.slots.push(slot);
        sequence.computed_tokens += new;
        sequence.name_full_blocks(&mut self.kv, self.settings.block_tokens);
    }

    /// Takes all KV from a sequence and puts it at the head of the line, to be computed again.
    fn preempt(&mut self, slot: u32) {
        self.slots.get_mut(slot).preempt(&mut self.kv);
        self.waiting.push_front(slot);
        self.totals.preemptions += 1;
    }
}
