//! The nouns of this room: one request as the world sends it, and one session as a small graph of
//! turns. A turn waits for other turns of its session, not for a moment: so the same recording
//! replays closed-loop (next request = completion + think time) and, by the recorded moments, open-loop.
//! A list per stream would not do: an agent's next turn waits for all the sub-agents it started.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cleave_core::domain::Moment;

use super::prompt::Prompt;

/// The tenant of a request; a number within the workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u32);

/// Priority level; the lower, the more urgent. The first three have names, and the second is the
/// default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u8);

impl Class {
    const NAMES: [&str; 3] = ["interactive", "standard", "batch"];

    /// Finds a class by its name.
    pub fn named(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|it| *it == name)?;
        u8::try_from(at).ok().map(Self)
    }
}

impl Default for Class {
    fn default() -> Self {
        Self(1)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.get(usize::from(self.0)) {
            Some(name) => f.write_str(name),
            None => write!(f, "class {}", self.0),
        }
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tenant {}", self.0)
    }
}

/// Where a request stands in its session; handed back to the workload when the request has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    pub(super) slot: u64,
    pub(super) turn: u32,
}

/// One request, ready to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    pub arrival: Moment,
    pub ticket: Ticket,
    pub tenant: Tenant,
    pub session: u64,
    /// Zero is the session's main stream; others are its sub-agents, which run beside it.
    pub stream: u32,
    pub model: Option<Arc<str>>,
    pub class: Class,
    /// Time from arrival within which the first token is due.
    pub deadline: Option<Duration>,
    /// Time between the end of what this request waited for and its arrival, where recorded.
    pub think: Option<Duration>,
    pub prompt: Prompt,
    pub output_tokens: u32,
    /// The prompt that goes on where the answer to this one ends, where that is known: it names the blocks of
    /// the answer, so that a cache has them.
    pub next: Option<Arc<Prompt>>,
}

/// One step of a session.
#[derive(Clone, Debug)]
pub struct Turn {
    pub stream: u32,
    /// Recorded time since the start of the session.
    pub at: Duration,
    /// Time from the end of the last turn this one waits for.
    pub think: Duration,
    pub model: Option<Arc<str>>,
    pub prompt: Prompt,
    pub output_tokens: u32,
    /// How many turns must end before this one may begin.
    pub(super) waits_for: u32,
    /// The turns that wait for this one.
    pub(super) then: Vec<u32>,
}

impl Turn {
    /// Makes a turn that waits for nothing yet.
    pub fn new(at: Duration, think: Duration, prompt: Prompt, output_tokens: u32) -> Self {
        Self {
            stream: 0,
            at,
            think,
            model: None,
            prompt,
            output_tokens,
            waits_for: 0,
            then: Vec::new(),
        }
    }
}

/// One session: a chat or an agent run.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub id: u64,
    pub tenant: Tenant,
    pub class: Class,
    pub deadline: Option<Duration>,
    /// Recorded start; without one, the replay decides when the session starts.
    pub start: Option<Moment>,
    /// Whether the turns have recorded moments; without them a session only follows its completions.
    pub timed: bool,
    pub turns: Vec<Turn>,
}

impl Session {
    /// Appends a turn that waits for the given earlier turns, and returns its number.
    pub fn push(&mut self, mut turn: Turn, after: &[u32]) -> u32 {
        let number = index(self.turns.len());
        for &earlier in after {
            assert!(earlier < number, "turn {number} cannot wait for turn {earlier}");
            self.turns[place(earlier)].then.push(number);
        }
        turn.waits_for = index(after.len());
        self.turns.push(turn);
        number
    }

    /// Ends the session where its prompt outgrows a context of `tokens`: the first turn that is too
    /// long goes, and all that would have followed it.
    pub(super) fn cut_prompts(&mut self, tokens: u32) {
        if self.turns.iter().all(|turn| turn.prompt.tokens() <= tokens) {
            return;
        }
        let mut gone = vec![false; self.turns.len()];
        let mut kept = Self { turns: Vec::new(), ..*self };
        let mut after: Vec<Vec<u32>> = vec![Vec::new(); self.turns.len()];
        for (number, mut turn) in std::mem::take(&mut self.turns).into_iter().enumerate() {
            let then = std::mem::take(&mut turn.then);
            gone[number] |= tokens < turn.prompt.tokens();
            if gone[number] {
                for next in then {
                    gone[place(next)] = true;
                }
            } else {
                let number = kept.push(turn, &after[number]);
                for next in then {
                    after[place(next)].push(number);
                }
            }
        }
        *self = kept;
    }
}

/// Turns a place in a list into the number of a turn.
pub(super) fn index(place: usize) -> u32 {
    u32::try_from(place).expect("a session has fewer than four billion turns")
}

/// Turns the number of a turn into a place in a list.
pub(super) fn place(number: u32) -> usize {
    usize::try_from(number).expect("a list place fits 32 bits")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn turn(tokens: u32) -> Turn {
        let prompt = Prompt::unshared(0, tokens, NonZeroU32::MIN);
        Turn::new(Duration::ZERO, Duration::ZERO, prompt, 1)
    }

    #[test]
    fn a_session_ends_where_it_outgrows_the_context() {
        let mut session = Session::default();
        let root = session.push(turn(10), &[]);
        let side = session.push(turn(20), &[root]);
        let long = session.push(turn(99), &[root]);
        session.push(turn(5), &[long, side]);
        session.push(turn(7), &[side]);
        session.cut_prompts(50);
        let lengths: Vec<_> = session.turns.iter().map(|turn| turn.prompt.tokens()).collect();
        assert_eq!(lengths, [10, 20, 7]);
        assert_eq!(session.turns[0].then, [1]);
        assert_eq!(session.turns[1].then, [2]);
        assert_eq!(session.turns[2].waits_for, 1);
    }
}
