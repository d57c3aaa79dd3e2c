//! Sessions of several turns: a system prompt, then turn after turn on top of all that was said. An
//! agent may call sub-agents, which work beside each other on contexts of their own while it
//! waits; a context that grows too long is cut back to its system prompt and a summary. What was
//! answered returns in the next prompt as new content, as it does in the recorded traces.

use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::super::draw::{self, Spread};
use super::super::prompt::{Prompt, Run, Runs, mix, named};
use super::super::replay::Starts;
use super::super::request::{Session, Turn};
use super::super::source::Sessions;
use super::BLOCK_TOKENS;

const SHARED: u64 = named("shared blocks");
const SESSIONS: u64 = named("multi-turn sessions");

/// Sub-agents of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct SubAgents {
    /// How probable it is that a turn calls some.
    pub chance: f64,
    pub count: Spread,
    pub turns: Spread,
    pub system_tokens: Spread,
}

/// Sessions of several turns.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiTurn {
    pub sessions: u64,
    pub starts: Starts,
    /// Tokens at the beginning that all sessions share: tool definitions, house rules.
    pub shared_tokens: u32,
    pub system_tokens: Spread,
    pub turns: Spread,
    /// What is new in each turn.
    pub input_tokens: Spread,
    pub output_tokens: Spread,
    pub think_ms: Spread,
    pub sub_agents: Option<SubAgents>,
    pub context_tokens_max: u32,
}

/// What a stream has said so far.
struct Context {
    shared_tokens: u32,
    system_tokens: u32,
    said_tokens: u32,
    /// The space of the system prompt, and that of what was said since the last cut.
    space: u64,
    said: u64,
}

impl MultiTurn {
    /// Generates sessions, each from draws of its own.
    pub(in super::super) fn generate(&self, seed: u64) -> Sessions {
        let this = self.clone();
        Box::new((0..self.sessions).map(move |number| Ok(this.session(seed, number))))
    }

    fn session(&self, seed: u64, number: u64) -> Session {
        let mut rng = draw::rng(seed, "multi-turn session", number);
        let id = mix(SESSIONS, number);
        let mut session = Session { id, ..Session::default() };
        let mut context = Context::new(self.shared_tokens, self.system_tokens.draw(&mut rng), id);
        let mut waits = Vec::new();
        let mut streams = 0;
        for _ in 0..self.turns.draw(&mut rng).max(1) {
            let turn = self.turn(&mut context, 0, &mut rng);
            let main = session.push(turn, &waits);
            waits = vec![main];
            if let Some(sub_agents) = &self.sub_agents
                && rng.random_bool(sub_agents.chance.clamp(0.0, 1.0))
            {
                for _ in 0..sub_agents.count.draw(&mut rng) {
                    streams += 1;
                    let end = self.sub_agent(sub_agents, &mut session, main, streams, &mut rng);
                    waits.push(end);
                }
            }
        }
        session
    }

    /// Appends a sub-agent that a turn has called, and returns its last turn.
    fn sub_agent(
        &self,
        sub_agents: &SubAgents,
        session: &mut Session,
        caller: u32,
        stream: u32,
        rng: &mut Pcg64Mcg,
    ) -> u32 {
        let space = mix(session.id, u64::from(stream));
        let system = sub_agents.system_tokens.draw(rng);
        let mut context = Context::new(self.shared_tokens, system, space);
        let mut last = caller;
        for _ in 0..sub_agents.turns.draw(rng).max(1) {
            let turn = self.turn(&mut context, stream, rng);
            last = session.push(turn, &[last]);
        }
        last
    }

    fn turn(&self, context: &mut Context, stream: u32, rng: &mut Pcg64Mcg) -> Turn {
        let input = self.input_tokens.draw(rng).max(1);
        let output = self.output_tokens.draw(rng).max(1);
        context.say(input, self.context_tokens_max);
        let think = Duration::from_millis(u64::from(self.think_ms.draw(rng)));
        let mut turn = Turn::new(Duration::ZERO, think, context.prompt(), output);
        turn.stream = stream;
        context.said_tokens += output;
        turn
    }
}

impl Context {
    fn new(shared_tokens: u32, system_tokens: u32, space: u64) -> Self {
        Self { shared_tokens, system_tokens, said_tokens: 0, space, said: mix(space, 1) }
    }

    /// Adds what is said; beyond the limit all that was said before is replaced by a summary.
    fn say(&mut self, tokens: u32, context_tokens_max: u32) {
        let whole = self.shared_tokens + self.system_tokens + self.said_tokens;
        if context_tokens_max < whole.saturating_add(tokens) && 0 < self.said_tokens {
            self.said_tokens /= 10;
            self.said = mix(self.said, 1);
        }
        self.said_tokens += tokens;
    }

    /// Lists the whole blocks: shared, then the system prompt's, then what was said.
    fn prompt(&self) -> Prompt {
        let system_end = self.shared_tokens + self.system_tokens;
        let tokens = system_end + self.said_tokens;
        let mut runs = Runs::default();
        let mut upto = |space: u64, tokens: u32| {
            let listed = runs.blocks();
            runs.push(Run { space, first: 0, count: tokens / BLOCK_TOKENS - listed });
        };
        upto(SHARED, self.shared_tokens);
        upto(self.space, system_end);
        upto(self.said, tokens);
        runs.prompt(tokens, BLOCK_TOKENS)
    }
}
