//! Requests without a session: groups that share a prefix, and single requests whose lengths have a long
//! tail. Both arrive at random, at rates that change by stages.

use std::time::Duration;

use cleave_core::domain::Moment;
use rand::RngExt;

use super::super::draw::{self, Spread};
use super::super::prompt::{Prompt, Run, Runs, mix, named};
use super::super::readers::lone_request;
use super::super::source::Requests;
use super::BLOCK_TOKENS;

const PREFIXES: u64 = named("prefixes");
const QUESTIONS: u64 = named("questions");
const SINGLES: u64 = named("singles");

/// A rate that holds for a while, and a pause after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    pub per_second: f64,
    pub lasts: Duration,
    pub pause: Duration,
}

/// Groups of prompts with a common beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedPrefix {
    pub groups: u32,
    /// How many different prompts a group has; none: every prompt is new.
    pub prompts_per_group: Option<u32>,
    pub prefix_tokens: u32,
    pub question_tokens: u32,
    pub output_tokens: u32,
    pub stages: Vec<Stage>,
}

/// Single requests of uneven size.
#[derive(Clone, Debug, PartialEq)]
pub struct HeavyTail {
    pub input: Spread,
    pub output: Spread,
    pub stages: Vec<Stage>,
}

impl SharedPrefix {
    /// Generates requests that go through all prompts in a shuffled order, again and again, as the
    /// published load generators do; a draw for each request would leave some groups cold.
    pub(in super::super) fn requests(&self, seed: u64) -> Requests {
        let this = self.clone();
        let mut rng = draw::rng(seed, "shared prefix", 0);
        let prompts = self.groups * self.prompts_per_group.unwrap_or(1);
        let mut order: Vec<u32> = (0..prompts).collect();
        draw::shuffle(&mut order, &mut rng);
        let numbered = (0..).zip(order.into_iter().cycle());
        let requests =
            numbered.zip(poisson(self.stages.clone(), seed)).map(move |((number, prompt), at)| {
                let (group, question) = (prompt % this.groups, prompt / this.groups);
                let question = match this.prompts_per_group {
                    Some(_) => mix(QUESTIONS, u64::from(question)),
                    None => mix(QUESTIONS, mix(1, number)),
                };
                let prompt = this.prompt(u64::from(group), question);
                // The same question about the same prefix comes from the same user.
                let session = mix(u64::from(group), question);
                Ok(lone_request(at, session, prompt, this.output_tokens))
            });
        Box::new(requests)
    }

    fn prompt(&self, group: u64, question: u64) -> Prompt {
        let tokens = self.prefix_tokens + self.question_tokens;
        let prefix_blocks = self.prefix_tokens / BLOCK_TOKENS;
        let mut runs = Runs::default();
        runs.push(Run { space: mix(PREFIXES, group), first: 0, count: prefix_blocks });
        let rest = tokens / BLOCK_TOKENS - prefix_blocks;
        runs.push(Run { space: mix(group, question), first: 0, count: rest });
        runs.prompt(tokens, BLOCK_TOKENS)
    }
}

impl HeavyTail {
    pub(in super::super) fn requests(&self, seed: u64) -> Requests {
        let this = self.clone();
        let mut rng = draw::rng(seed, "heavy tail", 0);
        let arrivals = (0..).zip(poisson(self.stages.clone(), seed));
        let requests = arrivals.map(move |(number, at)| {
            let space = mix(SINGLES, number);
            let prompt = Prompt::unshared(space, this.input.draw(&mut rng).max(1), BLOCK_TOKENS);
            Ok(lone_request(at, space, prompt, this.output.draw(&mut rng).max(1)))
        });
        Box::new(requests)
    }
}

/// Arrivals at random, stage after stage.
fn poisson(stages: Vec<Stage>, seed: u64) -> impl Iterator<Item = Moment> {
    let mut rng = draw::rng(seed, "arrivals", 0);
    let mut begin = Moment::ZERO;
    stages.into_iter().flat_map(move |stage| {
        let end = begin + stage.lasts;
        let mut stage_rng = draw::rng(rng.random(), "stage", 0);
        let mut at = begin;
        begin = end + stage.pause;
        std::iter::from_fn(move || {
            at = at + draw::poisson_gap(&mut stage_rng, stage.per_second);
            (at < end).then_some(at)
        })
    })
}
