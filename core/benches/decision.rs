//! What one decision costs, for `cargo xtask bench decision`, which runs this program once for each
//! size of fleet and prompt. `time` prints nanoseconds of the median decision and of the slowest in
//! a hundred. `count` makes a given number of decisions and prints nothing, to be counted from
//! outside, instruction by instruction: on a shared machine times lie and counts do not. `hash`
//! times what comes before the decision: finding the prompt in a body and hashing it.

#![expect(clippy::print_stdout, reason = "a program that measures prints what it measured")]

use std::hint::black_box;
use std::time::Instant;

use cleave_core::brain::{Action, Brain, Event, Outcome, Settings};
use cleave_core::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey, Usage};
use cleave_core::fleet::Probe;
use cleave_core::policy::PolicyKind;
use cleave_core::protocol::{Api, peek};
use cleave_core::queue::Claim;

const SESSIONS: usize = 64;
const BLOCK_TOKENS: usize = 64;
const BLOCK_BYTES: usize = 256;
/// Blocks that all sessions begin with, as a system prompt makes them.
const SHARED_BLOCKS: usize = 8;
/// Blocks that each turn adds to its session.
const TURN_BLOCKS: usize = 4;
const TURNS: usize = 4;
const TIMED: usize = 2_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match words[..] {
        ["time", replicas, tokens] => time(&mut World::new(number(replicas), number(tokens))),
        ["count", replicas, tokens, decisions] => {
            let mut world = World::new(number(replicas), number(tokens));
            (0..number(decisions)).for_each(|_| world.decide());
        }
        ["hash", tokens] => hash(number(tokens)),
        // `cargo test --benches` starts it without any of these.
        _ => println!("time REPLICAS TOKENS, count REPLICAS TOKENS DECISIONS, or hash TOKENS"),
    }
}

fn time(world: &mut World) {
    let mut nanos = Vec::with_capacity(TIMED);
    for _ in 0..TIMED {
        let event = world.arrival();
        let started = now();
        world.tell(event);
        nanos.push(started.elapsed().as_nanos());
        world.make_room();
    }
    print(&mut nanos);
}

fn hash(tokens: usize) {
    let words: String =
        "all the words of a long conversation, ".chars().cycle().take(4 * tokens).collect();
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{words}"}}]}}"#);
    let mut nanos = Vec::with_capacity(TIMED);
    for _ in 0..TIMED.min(20_000_000 / tokens) {
        let started = now();
        let found = peek(Api::Chat, black_box(body.as_bytes())).expect("the body is sound");
        black_box(found.outline("m", None));
        nanos.push(started.elapsed().as_nanos());
    }
    print(&mut nanos);
}

fn print(nanos: &mut [u128]) {
    nanos.sort_unstable();
    println!("{} {}", nanos[nanos.len() / 2], nanos[nanos.len() * 99 / 100]);
}

#[expect(clippy::disallowed_methods, reason = "a program that measures has a clock")]
fn now() -> Instant {
    Instant::now()
}

/// A fleet at work on a fixed set of conversations.
struct World {
    brain: Brain,
    /// The prompts of all sessions, turn by turn.
    prompts: Vec<(SliceKey, Outline)>,
    extent: Extent,
    requests: u64,
    ended: u64,
    in_flight_max: u64,
    actions: Vec<Action>,
}

impl World {
    fn new(replicas: usize, tokens: usize) -> Self {
        let settings = Settings { policy: PolicyKind::PRICED, ..Settings::default() };
        let blocks = tokens / BLOCK_TOKENS;
        let turns = (0..TURNS).flat_map(|turn| (0..SESSIONS).map(move |session| (turn, session)));
        let prompts = turns.map(|(turn, session)| {
            let blocks = blocks.saturating_sub((TURNS - 1 - turn) * TURN_BLOCKS).max(1);
            (SliceKey::new(1, "m", &session.to_string()), prompt(session, blocks))
        });
        let text_bytes = u32::try_from(blocks * BLOCK_BYTES).expect("a prompt is shorter");
        let mut world = Self {
            brain: Brain::new(settings),
            prompts: prompts.collect(),
            extent: Extent { model: 1, text_bytes, block_bytes: 256, ..Extent::default() },
            requests: 0,
            ended: 0,
            in_flight_max: u64::try_from(2 * replicas).expect("a fleet is smaller"),
            actions: Vec::new(),
        };
        for number in 0..u32::try_from(replicas).expect("a fleet is smaller") {
            let (replica, name) = (ReplicaId(number), format!("http://gpu-{number}:8000"));
            world.tell(Event::Joined {
                replica,
                name,
                weight: 1.0,
                hardware: std::sync::Arc::default(),
            });
            world.tell(Event::Probed { replica, probe: Probe::Passed });
        }
        // Every prompt has been there once, and the fleet is as busy as it will stay.
        (0..world.prompts.len().max(4 * replicas)).for_each(|_| world.decide());
        world
    }

    fn decide(&mut self) {
        let event = self.arrival();
        self.tell(event);
        self.make_room();
    }

    fn arrival(&mut self) -> Event {
        let at = usize::try_from(self.requests).expect("few") % self.prompts.len();
        let (key, outline) = self.prompts[at].clone();
        let request = RequestId(self.requests);
        self.requests += 1;
        Event::Arrived { request, key, outline, extent: self.extent, claim: Claim::default() }
    }

    /// Ends the oldest request when as many are in flight as should be.
    fn make_room(&mut self) {
        if self.ended + self.in_flight_max < self.requests {
            let request = RequestId(self.ended);
            self.ended += 1;
            self.tell(Event::Answering { request });
            let usage = Usage { output: Some(100), ..Usage::default() };
            self.tell(Event::Ended { request, outcome: Outcome::Done, usage });
        }
    }

    fn tell(&mut self, event: Event) {
        let now = Moment::from_nanos(self.requests * 1_000_000);
        self.brain.on_event(now, event, &mut self.actions);
        self.actions.clear();
    }
}

/// Makes a prompt of `blocks` blocks, of which the first are common to all sessions.
fn prompt(session: usize, blocks: usize) -> Outline {
    let name = |at: usize| if at < SHARED_BLOCKS { at } else { (session + 1) * 1_000_003 + at };
    let blocks = (0..blocks).map(|at| {
        let number = u64::try_from(name(at)).expect("far below");
        // Spread as hashes are.
        (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    });
    Outline { blocks: blocks.collect(), ..Outline::default() }
}
