//! Published workloads by name. What a publication leaves open is filled in here and said so; the
//! numbers are its own otherwise.

use std::time::Duration;

use super::super::draw::Spread;
use super::super::replay::Starts;
use super::{HeavyTail, MultiTurn, SharedPrefix, Stage, SubAgents, Synthetic};

type Preset = (&'static str, fn() -> Synthetic);

/// Every preset by its name.
const PRESETS: [Preset; 6] = [
    ("b2b-saas", b2b_saas),
    ("smg-600-prefixes", smg_600_prefixes),
    ("code-generation", code_generation),
    ("multi-turn", multi_turn),
    ("agentic", agentic),
    ("heavy-tail", heavy_tail),
];

/// Lists the names of all presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// Finds a preset.
pub fn named(name: &str) -> Option<Synthetic> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}

/// llm-d's shared-prefix benchmark: 150 workloads with a system prompt of 6,000 tokens, five prompts each, a
/// warm-up and then a ladder of rates with 30 seconds between the steps.
fn b2b_saas() -> Synthetic {
    let ladder = [
        (3.0, 20),
        (10.0, 20),
        (15.0, 20),
        (20.0, 38),
        (22.0, 34),
        (25.0, 30),
        (30.0, 25),
        (35.0, 21),
        (40.0, 38),
        (43.0, 36),
        (46.0, 33),
        (49.0, 30),
        (52.0, 29),
        (55.0, 27),
        (57.0, 26),
        (60.0, 25),
    ];
    let warm_up = std::iter::once((15.0, 50));
    let stage = |(per_second, seconds)| Stage {
        per_second,
        lasts: Duration::from_secs(seconds),
        pause: Duration::from_secs(30),
    };
    Synthetic::SharedPrefix(SharedPrefix {
        groups: 150,
        prompts_per_group: Some(5),
        prefix_tokens: 6_000,
        question_tokens: 1_200,
        output_tokens: 1_000,
        stages: warm_up.chain(ladder).map(stage).collect(),
    })
}

/// SMG's recipe: 1,800 requests at 32 a second over 600 prefixes of about a thousand tokens. The suffix
/// and the output are not given; these are the defaults of the load generator it names.
fn smg_600_prefixes() -> Synthetic {
    Synthetic::SharedPrefix(SharedPrefix {
        groups: 600,
        prompts_per_group: None,
        prefix_tokens: 1_024,
        question_tokens: 256,
        output_tokens: 128,
        stages: vec![steady(32.0, Duration::from_millis(56_250))],
    })
}

/// llm-d's code-generation workload, given as minimum, mean and maximum at a concurrency of 10 to 100.
/// Think time is not given; five seconds stand for a tool.
fn code_generation() -> Synthetic {
    Synthetic::MultiTurn(Box::new(MultiTurn {
        sessions: 1_000,
        starts: Starts::Concurrent { sessions: 50 },
        shared_tokens: 0,
        system_tokens: Spread::Between { min: 3_000, mean: 55_000, max: 100_000 },
        turns: Spread::Between { min: 2, mean: 6, max: 20 },
        input_tokens: Spread::Between { min: 100, mean: 1_500, max: 10_000 },
        output_tokens: Spread::Between { min: 50, mean: 800, max: 4_000 },
        think_ms: Spread::Fixed(5_000),
        sub_agents: None,
        context_tokens_max: 200_000,
    }))
}

/// Chats with people: llm-d's multi-turn users (a system prompt of 1,000 tokens, short questions, long
/// answers). Turns and think time are not given; these are ours.
fn multi_turn() -> Synthetic {
    Synthetic::MultiTurn(Box::new(MultiTurn {
        sessions: 6_000,
        starts: Starts::Poisson { per_second: 2.0 },
        shared_tokens: 1_000,
        system_tokens: Spread::Fixed(0),
        turns: Spread::Between { min: 1, mean: 6, max: 40 },
        input_tokens: Spread::LogNormal { mean: 60.0, cv: 1.5, min: 5, max: 4_000 },
        output_tokens: Spread::LogNormal { mean: 350.0, cv: 0.8, min: 5, max: 4_000 },
        think_ms: Spread::LogNormal { mean: 30_000.0, cv: 1.5, min: 1_000, max: 600_000 },
        sub_agents: None,
        context_tokens_max: 128_000,
    }))
}

/// Coding agents: llm-d's agentic code generation (3,000 shared tokens, a repository of 160,000, about 540
/// turns, tools of 15 seconds), with sub-agents making half of the requests as in recorded Claude
/// Code runs. The spreads around the means and the limit of the context are ours.
fn agentic() -> Synthetic {
    Synthetic::MultiTurn(Box::new(MultiTurn {
        sessions: 200,
        starts: Starts::Concurrent { sessions: 20 },
        shared_tokens: 3_000,
        system_tokens: Spread::LogNormal { mean: 160_000.0, cv: 0.5, min: 10_000, max: 400_000 },
        turns: Spread::Between { min: 20, mean: 540, max: 2_000 },
        input_tokens: Spread::LogNormal { mean: 1_500.0, cv: 1.5, min: 50, max: 40_000 },
        output_tokens: Spread::LogNormal { mean: 425.0, cv: 1.2, min: 10, max: 16_000 },
        think_ms: Spread::LogNormal { mean: 15_000.0, cv: 2.0, min: 500, max: 660_000 },
        sub_agents: Some(SubAgents {
            chance: 0.05,
            count: Spread::Between { min: 1, mean: 3, max: 8 },
            turns: Spread::Between { min: 2, mean: 7, max: 50 },
            system_tokens: Spread::LogNormal { mean: 10_000.0, cv: 0.5, min: 1_000, max: 50_000 },
        }),
        context_tokens_max: 600_000,
    }))
}

/// Single requests of very uneven size: the production-like mix of llm-d's latency predictor (input mean
/// 729, deviation 13,550, at most 131,000; output mean 300), for an hour. The cut at the maximum
/// lowers the mean, as it must have in the original. Rate and output spread are ours.
fn heavy_tail() -> Synthetic {
    Synthetic::HeavyTail(HeavyTail {
        input: Spread::LogNormal { mean: 729.0, cv: 18.6, min: 1, max: 131_000 },
        output: Spread::LogNormal { mean: 300.0, cv: 1.5, min: 1, max: 8_000 },
        stages: vec![steady(10.0, Duration::from_secs(3_600))],
    })
}

fn steady(per_second: f64, lasts: Duration) -> Stage {
    Stage { per_second, lasts, pause: Duration::ZERO }
}
