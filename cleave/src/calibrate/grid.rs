//! Which requests are sent, so that each coefficient shows: short prompts for the overhead, long ones
//! for the work per token, long ones over long cached prefixes for attention, single answers for the
//! floor, many at once for the batch, many over long contexts for reading the cache. A plan is a value;
//! sending it is `measure`'s business.

use cleave_core::cost::Mix;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GridSize {
    Full,
    Quick,
}

/// One place in the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// One prompt by itself, of which the first tokens are cached: the time to its first token.
    Prompt { new: u32, cached: u32 },
    /// Answers written at the same time: the time between two tokens.
    Batch { answers: u32, context: u32, output: u32 },
}

/// What the replica can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "units stand last in a name")]
pub(super) struct Limits {
    /// Prompt and answer together.
    pub(super) context_tokens: u32,
    /// Room for the KV of all that run at once.
    pub(super) kv_tokens: u32,
    /// A prompt that is read in a bearable time.
    pub(super) prompt_tokens: u32,
    /// An answer that is written in a bearable time.
    pub(super) output_tokens: u32,
}

impl GridSize {
    /// How often a cell is measured: an odd number, because the median counts.
    pub(super) fn repeats(self, cell: Cell) -> u32 {
        match (self, cell) {
            (Self::Full, Cell::Prompt { .. }) => 5,
            (Self::Full, Cell::Batch { .. }) | (Self::Quick, _) => 3,
        }
    }

    /// The most clients at a time.
    pub(super) fn clients_max(self) -> u32 {
        match self {
            Self::Full => 256,
            Self::Quick => 64,
        }
    }

    /// The request that the ladder of concurrencies is climbed with.
    pub(super) fn mix(self, limits: &Limits) -> Mix {
        let Mix { prompt_tokens, output_tokens } = match self {
            Self::Full => Mix::USUAL,
            Self::Quick => Mix { prompt_tokens: 256, output_tokens: 32 },
        };
        Mix {
            prompt_tokens: prompt_tokens.min(limits.prompt_tokens).min(limits.context_tokens / 2),
            output_tokens: output_tokens.min(limits.output_tokens).min(limits.context_tokens / 4),
        }
    }
}

/// New tokens and cached ones, crossed; answers at once, and the contexts they are written over.
struct Axes {
    new: &'static [u32],
    cached: &'static [u32],
    batches: &'static [(u32, &'static [u32])],
    output_tokens: u32,
}

const FULL: Axes = Axes {
    new: &[16, 64, 256, 1024, 4096, 16384],
    cached: &[0, 1024, 8192, 32768],
    batches: &[
        (1, &[128, 2048, 8192]),
        (4, &[128, 2048, 8192]),
        (16, &[128, 1024, 4096]),
        (64, &[128, 512, 2048]),
        (128, &[128, 768]),
    ],
    output_tokens: 64,
};

const QUICK: Axes = Axes {
    new: &[16, 128, 512, 2048, 8192],
    cached: &[0, 2048, 8192],
    batches: &[(1, &[128, 2048]), (8, &[128, 2048]), (32, &[128, 1024])],
    output_tokens: 32,
};

/// Lists the cells that the replica can take, in the order in which they are measured. A plan that is
/// cut short has seen some of everything.
pub(super) fn plan(pace: GridSize, limits: &Limits) -> Vec<Cell> {
    let axes = match pace {
        GridSize::Full => &FULL,
        GridSize::Quick => &QUICK,
    };
    let prompts = axes
        .cached
        .iter()
        .flat_map(|&cached| axes.new.iter().map(move |&new| Cell::Prompt { new, cached }));
    let batches = axes.batches.iter().flat_map(|&(answers, contexts)| {
        contexts.iter().map(move |&context| {
            // Those that were first write while others are still read; a long batch must outlast it.
            let wanted = axes.output_tokens + answers * context / 1024;
            let output = wanted.min(limits.output_tokens.max(OUTPUT_TOKENS_MIN));
            Cell::Batch { answers, context, output }
        })
    });
    let fitting = prompts.filter(|it| it.fits(limits));
    interleave(fitting.collect(), batches.filter(|it| it.fits(limits)).collect())
}

/// Fewer tokens have no time between them worth measuring.
const OUTPUT_TOKENS_MIN: u32 = 16;

/// Takes from both in turn until both are empty.
fn interleave(one: Vec<Cell>, other: Vec<Cell>) -> Vec<Cell> {
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(one.next());
        all.extend(other.next());
        if all.len() == before {
            return all;
        }
    }
}

impl Cell {
    fn fits(self, limits: &Limits) -> bool {
        match self {
            Self::Prompt { new, cached } => {
                new + cached < limits.context_tokens.min(limits.kv_tokens)
                    && new + cached <= limits.prompt_tokens
            }
            Self::Batch { answers, context, output } => {
                // A tenth of the cache is left, so that nothing is evicted while answers grow.
                let held = answers * (context + output);
                context + output < limits.context_tokens
                    && held <= limits.kv_tokens - limits.kv_tokens / 10
                    && held <= limits.prompt_tokens.saturating_mul(8)
            }
        }
    }

    /// Counts the requests of one measurement, without the one that fills the cache.
    pub(super) fn requests(self) -> u32 {
        match self {
            Self::Prompt { .. } => 1,
            Self::Batch { answers, .. } => answers,
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Prompt { new, cached } => write!(f, "prompt {new} over {cached} cached"),
            Self::Batch { answers, context, .. } => write!(f, "{answers} answers over {context}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Limits = Limits {
        context_tokens: 131_072,
        kv_tokens: 524_288,
        prompt_tokens: 100_000,
        output_tokens: 512,
    };

    #[test]
    fn a_plan_has_every_kind_of_cell_early() {
        for pace in [GridSize::Full, GridSize::Quick] {
            let plan = plan(pace, &ROOMY);
            let start = &plan[..4];
            assert!(start.iter().any(|it| matches!(it, Cell::Prompt { .. })), "{start:?}");
            assert!(start.iter().any(|it| matches!(it, Cell::Batch { .. })), "{start:?}");
            let requests: u32 = plan.iter().map(|it| it.requests() * pace.repeats(*it)).sum();
            assert!((30..2_000).contains(&requests), "{pace:?}: {requests}");
        }
    }

    #[test]
    fn no_cell_is_more_than_the_replica_can_take() {
        let tight = Limits {
            context_tokens: 2_048,
            kv_tokens: 8_192,
            prompt_tokens: 1_500,
            output_tokens: 40,
        };
        let plan = plan(GridSize::Full, &tight);
        assert!(8 <= plan.len(), "{plan:?}");
        for cell in plan {
            match cell {
                Cell::Prompt { new, cached } => assert!(new + cached <= 1_500, "{cell}"),
                Cell::Batch { answers, context, output } => {
                    assert!(answers * (context + output) <= 8_192 && output <= 40, "{cell}");
                }
            }
        }
        assert!(GridSize::Full.mix(&tight).prompt_tokens <= 1_024);
    }
}
