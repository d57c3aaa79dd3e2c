//! The simulated people: each holds one conversation after another with some app, reads each
//! answer, thinks, and sends the whole history back with the next message. What they say follows
//! from the seed alone, and answers follow from what was said, so two phases see the same
//! conversations; how many of them fit into a phase is up to the router. They neither give up nor
//! retry.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::task::JoinSet;
use tokio::time::sleep;
use twox_hash::XxHash3_64;

use super::chat::{ChatClient, Message};
use super::tally::{Tallies, Turn};

const APPS: u64 = 6;
const SYSTEM_TOKENS: RangeInclusive<usize> = 400..=1_200;
/// The first message brings what the conversation is about: a file, a page, a log.
const FIRST_MESSAGE_TOKENS: RangeInclusive<usize> = 3_000..=10_000;
const MESSAGE_TOKENS: RangeInclusive<usize> = 50..=500;
const TURNS: RangeInclusive<u32> = 4..=12;
/// Mock replicas count four bytes as a token.
const TOKEN_BYTES: usize = 4;
/// The tokens of a conversation halfway, as the ranges above have it.
pub(super) const CONVERSATION_TOKENS: u32 = 9_000;

const WORDS: [&str; 24] = [
    "again", "before", "between", "cache", "could", "deploy", "error", "figure", "later", "learn",
    "message", "model", "number", "people", "please", "point", "question", "report", "should",
    "story", "table", "think", "water", "write",
];

/// How many people there are and how they behave.
#[derive(Clone, Debug)]
pub(super) struct DemoLoad {
    pub(super) sessions: u16,
    pub(super) seed: u64,
    /// The time within which all people have come.
    pub(super) arrivals: Duration,
    pub(super) think_s: Range<f64>,
    /// The turns after which a person leaves, for runs that must not depend on the clock.
    pub(super) turns_max: Option<u32>,
}

impl DemoLoad {
    pub(super) fn new(sessions: u16, seed: u64, arrivals: Duration) -> Self {
        Self { sessions, seed, arrivals, think_s: 0.5..2.5, turns_max: None }
    }

    /// Lets all people in. Dropping the set makes them leave at once, in the middle of an answer
    /// too.
    pub(super) fn start(&self, client: &ChatClient, board: &Arc<Board>) -> JoinSet<()> {
        let mut people = JoinSet::new();
        for number in 0..self.sessions {
            let person = Person {
                number,
                load: self.clone(),
                client: client.clone(),
                board: Arc::clone(board),
            };
            people.spawn(person.chat());
        }
        people
    }
}

/// Where results are gathered and the view looks them up.
#[derive(Debug)]
pub(super) struct Board(Mutex<Tallies>);

impl Board {
    pub(super) fn new(replicas: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Tallies::new(replicas))))
    }

    /// Forgets all there is.
    pub(super) fn clear(&self) {
        let mut tallies = self.lock();
        *tallies = Tallies::new(tallies.replicas.len());
    }

    pub(super) fn read(&self) -> Tallies {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Tallies> {
        // Sums that lack one sample are still good enough to look at.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Person {
    number: u16,
    load: DemoLoad,
    client: ChatClient,
    board: Arc<Board>,
}

impl Person {
    async fn chat(self) {
        let mut turns_left = self.load.turns_max.unwrap_or(u32::MAX);
        let lateness: f64 = chance(self.load.seed, &format!("person {}", self.number)).random();
        sleep(self.load.arrivals.mul_f64(lateness)).await;
        for conversation in 0.. {
            let mut conversation = Conversation::draw(self.load.seed, self.number, conversation);
            while conversation.turns_left != 0 {
                if turns_left == 0 {
                    return;
                }
                turns_left -= 1;
                let turn = conversation.speak();
                match self.client.ask(&conversation.messages).await {
                    Ok((answer, sample)) => {
                        self.board.lock().add(&sample, turn);
                        conversation.hear(answer);
                    }
                    Err(error) => {
                        self.board.lock().fail(&error);
                        conversation.turns_left = 0;
                    }
                }
                sleep(conversation.think(&self.load.think_s)).await;
            }
        }
    }
}

/// What one person says to one app.
#[derive(Debug)]
struct Conversation {
    rng: Pcg64Mcg,
    messages: Vec<Message>,
    turns_left: u32,
}

impl Conversation {
    fn draw(seed: u64, person: u16, number: u32) -> Self {
        let mut rng = chance(seed, &format!("person {person}, conversation {number}"));
        let app = rng.random_range(0..APPS);
        let mut apps = chance(seed, &format!("app {app}"));
        let tokens = apps.random_range(SYSTEM_TOKENS);
        let content = write(&mut apps, &format!("You are the assistant of app {app}."), tokens);
        let turns_left = rng.random_range(TURNS);
        Self { rng, messages: vec![Message { role: "system", content }], turns_left }
    }

    fn think(&mut self, range_s: &Range<f64>) -> Duration {
        // An empty range is how a test sets no time to think.
        let seconds = if range_s.is_empty() { 0.0 } else { self.rng.random_range(range_s.clone()) };
        Duration::from_secs_f64(seconds)
    }

    /// Adds the person's next message.
    fn speak(&mut self) -> Turn {
        let turn = if self.messages.len() == 1 { Turn::First } else { Turn::Later };
        let range = match turn {
            Turn::First => FIRST_MESSAGE_TOKENS,
            Turn::Later => MESSAGE_TOKENS,
        };
        let tokens = self.rng.random_range(range);
        let content = write(&mut self.rng, "Please look at this:", tokens);
        self.messages.push(Message { role: "user", content });
        self.turns_left -= 1;
        turn
    }

    fn hear(&mut self, content: String) {
        self.messages.push(Message { role: "assistant", content });
    }
}

fn chance(seed: u64, what: &str) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(XxHash3_64::oneshot_with_seed(seed, what.as_bytes()))
}

/// Writes about `tokens` tokens.
fn write(rng: &mut Pcg64Mcg, opening: &str, tokens: usize) -> String {
    let mut text = opening.to_owned();
    while text.len() < TOKEN_BYTES * tokens {
        text.push(' ');
        text.push_str(WORDS[rng.random_range(0..WORDS.len())]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds a whole conversation with a model that always says the same.
    fn hold(seed: u64, person: u16, number: u32) -> Vec<String> {
        let mut conversation = Conversation::draw(seed, person, number);
        while conversation.turns_left != 0 {
            conversation.speak();
            conversation.hear("I see.".to_owned());
        }
        conversation.messages.into_iter().map(|it| it.content).collect()
    }

    #[test]
    fn conversations_follow_from_the_seed_and_differ_from_one_another() {
        assert_eq!(hold(1, 2, 3), hold(1, 2, 3));
        assert_ne!(hold(1, 2, 3), hold(2, 2, 3));
        assert_ne!(hold(1, 2, 3)[1], hold(1, 3, 3)[1]);
        assert_ne!(hold(1, 2, 3)[1], hold(1, 2, 4)[1]);
    }

    #[test]
    fn people_of_one_app_share_its_system_prompt() {
        let prompts: std::collections::BTreeSet<String> =
            (0..200).map(|person| hold(0, person, 0).swap_remove(0)).collect();
        assert_eq!(u64::try_from(prompts.len()).unwrap(), APPS);
    }

    #[test]
    fn a_conversation_is_as_long_as_the_cache_was_sized_for() {
        let bytes = |person| hold(0, person, 0).iter().map(String::len).sum::<usize>();
        let at_end: usize = (0..200).map(|person| bytes(person) / TOKEN_BYTES).sum::<usize>() / 200;
        let halfway = usize::try_from(CONVERSATION_TOKENS).unwrap();
        assert!((halfway - 2_000..halfway + 2_000).contains(&at_end), "{at_end}");
    }
}
