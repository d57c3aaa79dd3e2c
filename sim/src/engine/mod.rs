//! One inference engine as a state machine: jobs and time in, tokens out. It schedules as vLLM V1
//! does: continuous batching under a token budget, chunked prefill, paged KV with a prefix cache,
//! preemption of the newest when KV runs out. Step times come from the fitted cost model. It never
//! looks at text: a driver names the blocks of a sequence by hashes, real or from a trace. It never
//! sleeps: virtual time in the simulator and real time behind HTTP are two drivers of this one machine.

pub mod invariants;
pub(crate) mod kv;
mod schedule;
mod sequence;
#[cfg(test)]
mod tests;

pub use kv::KvChange;
pub use sequence::{Event, Job, Output};

use std::collections::VecDeque;
use std::time::Duration;

use cleave_core::cost::{StepTimes, StepWork};
use cleave_core::domain::Moment;
use rustc_hash::FxHashMap;
use thiserror::Error;

use kv::KvPool;
use sequence::{Sequence, Slots};

/// What an engine is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineSettings {
    pub times: StepTimes,
    /// Room in the KV cache, rounded down to whole blocks.
    pub kv_tokens: u32,
    pub block_tokens: u32,
    /// Tokens computed in one step at most.
    pub batched_tokens_max: u32,
    /// Sequences running at once at most.
    pub seqs_max: u32,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            times: StepTimes::LLAMA_8B,
            kv_tokens: 524_288,
            block_tokens: 16,
            batched_tokens_max: 8192,
            seqs_max: 256,
        }
    }
}

/// The job needs more KV than there is, so that waiting would never end.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{tokens} tokens never fit into {capacity_tokens} tokens of KV")]
pub struct NeverFits {
    pub tokens: u64,
    pub capacity_tokens: u32,
}

/// What an engine reports about itself; the totals only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    pub waiting: usize,
    pub running: usize,
    /// Share of the KV blocks that running sequences hold, 0 to 1.
    pub kv_used_share: f64,
    pub prefix_queries_tokens: u64,
    pub prefix_hits_tokens: u64,
    pub preemptions: u64,
    pub prompt_tokens: u64,
    pub generation_tokens: u64,
}

/// An inference engine.
#[derive(Debug)]
pub struct Engine {
    settings: EngineSettings,
    slow_factor: f64,
    kv: KvPool,
    slots: Slots,
    slot_of: FxHashMap<u64, u32>,
    waiting: VecDeque<u32>,
    /// In the order of admission, so the newest is last.
    running: Vec<u32>,
    step: Step,
    /// The end of the step under way, or the moment at which work came to an idle engine.
    due: Option<Moment>,
    /// The head of the line that found too little KV, and the pool's releases at that time.
    blocked: Option<(u64, u64)>,
    totals: Stats,
}

/// The step under way; kept between steps so that planning one allocates nothing.
#[derive(Debug, Default)]
struct Step {
    slots: Vec<u32>,
    work: StepWork,
    tokens: u32,
}

impl Engine {
    pub fn new(settings: EngineSettings) -> Self {
        assert!(0 < settings.block_tokens, "a block holds tokens");
        assert!(settings.block_tokens <= settings.kv_tokens, "the KV cache holds a block");
        assert!(0 < settings.batched_tokens_max, "a step computes tokens");
        assert!(0 < settings.seqs_max, "a step has sequences");
        Self {
            settings,
            slow_factor: 1.0,
            kv: KvPool::new(settings.kv_tokens / settings.block_tokens),
            slots: Slots::default(),
            slot_of: FxHashMap::default(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            step: Step::default(),
            due: None,
            blocked: None,
            totals: Stats::default(),
        }
    }

    /// Puts a job into the line. It is looked at when the next step is planned.
    pub fn submit(&mut self, now: Moment, job: Job) -> Result<(), NeverFits> {
        let sequence = Sequence::new(job);
        let tokens = sequence.tokens_at_end();
        if u64::from(self.capacity_tokens()) < tokens {
            return Err(NeverFits { tokens, capacity_tokens: self.capacity_tokens() });
        }
        let id = sequence.job.id;
        let slot = self.slots.insert(sequence);
        let before = self.slot_of.insert(id, slot);
        assert!(before.is_none(), "job {id} was submitted twice");
        self.waiting.push_back(slot);
        self.due.get_or_insert(now);
        Ok(())
    }

    /// Forgets a job and frees its KV at once; nothing more is heard of it. Returns whether it was
    /// there. The step under way still takes its time, as it does on a GPU.
    pub fn cancel(&mut self, id: u64) -> bool {
        let Some(slot) = self.slot_of.remove(&id) else { return false };
        self.waiting.retain(|it| *it != slot);
        self.running.retain(|it| *it != slot);
        self.step.slots.retain(|it| *it != slot);
        self.slots.remove(slot).release(&mut self.kv);
        true
    }

    /// Says when to call `on_time` next if nothing else happens. Late is allowed.
    pub fn next_wakeup(&self) -> Option<Moment> {
        self.due
    }

    /// Ends every step that is over by `now` and begins the next one at its end. A late caller
    /// thus loses no throughput.
    pub fn on_time(&mut self, now: Moment, outputs: &mut Vec<Output>) {
        while let Some(due) = self.due.filter(|due| *due <= now) {
            self.finish_step(due, outputs);
            self.due = self.plan_step().map(|span| due + span);
            debug_assert!(invariants::budget_is_kept(self));
        }
    }

    /// Moves everything that was due before `until` to it, as after a hang.
    pub fn postpone(&mut self, until: Moment) {
        self.due = self.due.map(|due| due.max(until));
    }

    /// Starts to note which blocks enter and leave the prefix cache.
    pub fn watch_kv(&mut self) {
        self.kv.keep_journal();
    }

    /// Takes the changes of the prefix cache since the last call, in order; none unless watched.
    pub fn drain_kv_changes(&mut self) -> impl Iterator<Item = KvChange> {
        self.kv.drain_journal()
    }

    /// Lists the blocks that are in the prefix cache, in the order of their places in memory.
    pub fn cached_blocks(&self) -> impl Iterator<Item = u64> {
        self.kv.names()
    }

    /// Stretches every step from the next one on, as a throttled or crowded GPU would.
    pub fn set_slow_factor(&mut self, factor: f64) {
        self.slow_factor = factor;
    }

    pub fn stats(&self) -> Stats {
        Stats {
            waiting: self.waiting.len(),
            running: self.running.len(),
            kv_used_share: f64::from(self.kv.held()) / f64::from(self.kv.total()),
            ..self.totals
        }
    }

    /// Tokens of KV there are in all.
    pub fn capacity_tokens(&self) -> u32 {
        self.kv.total() * self.settings.block_tokens
    }

    fn finish_step(&mut self, at: Moment, outputs: &mut Vec<Output>) {
        let mut ended = false;
        for &slot in &self.step.slots {
            let sequence = self.slots.get_mut(slot);
            if !sequence.is_computed() {
                continue;
            }
            let id = sequence.job.id;
            let first = sequence.generated_tokens == 0;
            sequence.generated_tokens += 1;
            self.totals.generation_tokens += 1;
            if first {
                self.totals.prompt_tokens += u64::from(sequence.job.prompt_tokens);
            }
            let (cached_tokens, tokens) = (sequence.cached_tokens, sequence.generated_tokens);
            let event = if first { Event::FirstToken { cached_tokens } } else { Event::Token };
            outputs.push(Output { id, at, event, tokens });
            if sequence.generated_tokens == sequence.job.output_tokens {
                let event = Event::Finished { cached_tokens, preemptions: sequence.preemptions };
                outputs.push(Output { id, at, event, tokens });
                self.slot_of.remove(&id);
                self.slots.remove(slot).release(&mut self.kv);
                ended = true;
            }
        }
        self.step.slots.clear();
        if ended {
            self.running.retain(|slot| self.slots.is_taken(*slot));
        }
    }

    fn step_time(&self) -> Duration {
        let ms = self.settings.times.step_ms(&self.step.work) * self.slow_factor;
        Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)
    }
}
