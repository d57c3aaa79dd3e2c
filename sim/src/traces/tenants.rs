//! Many tenants in one workload: `ServeGen` says which tenant sends when, another recording says
//! what is sent. Each tenant is dealt sessions of the recording from one shuffled deck; when the
//! deck is through it is dealt again, as new content. Tenants never share a block: a cache that is
//! salted by tenant, as ours is, could not use it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use cleave_core::domain::Moment;

use super::arrivals::Arrivals;
use super::draw;
use super::lines::TraceError;
use super::mix::{self, ClassShare};
use super::prompt::mix as mixed;
use super::readers::servegen::Clients;
use super::replay::Replay;
use super::request::{Class, Request, Session, Tenant, Ticket, index, place};

/// One tenant and the sessions it has open, by the moment their next turn may come.
struct Seat {
    class: Class,
    deadline: Option<Duration>,
    open: BinaryHeap<Reverse<(Moment, u64, Hand)>>,
}

/// A session a tenant was dealt, and the turn it is at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hand {
    session: usize,
    salt: u64,
    turn: u32,
}

/// Which tenant sends when, over a deck of content.
pub(super) struct Composition {
    arrivals: Arrivals,
    seats: Vec<Seat>,
    content: Arc<[Session]>,
    deck: Vec<usize>,
    dealt: u64,
    think_max: Duration,
}

impl Composition {
    pub(super) fn new(
        clients: Arc<Clients>,
        content: Arc<[Session]>,
        classes: &[ClassShare],
        replay: &Replay,
    ) -> Self {
        let seats = clients.clients.iter();
        let seats = seats.map(|client| seat(classes, replay.seed, u64::from(client.id))).collect();
        let mut deck: Vec<usize> = (0..content.len()).collect();
        draw::shuffle(&mut deck, &mut draw::rng(replay.seed, "deck", 0));
        let arrivals = Arrivals::new(clients, replay.clone());
        Self { arrivals, seats, content, deck, dealt: 0, think_max: replay.think_max }
    }

    /// Plays open-loop: every arrival is a request, the next turn of a session that has paused
    /// as long as it did when it was recorded, or else the first of a new one.
    pub(super) fn requests(mut self) -> impl Iterator<Item = Result<Request, TraceError>> {
        std::iter::from_fn(move || {
            let (at, client) = self.arrivals.next()?;
            let waiting = self.seats[client].open.peek();
            let hand = match waiting {
                Some(&Reverse((due, _, hand))) if due <= at => {
                    self.seats[client].open.pop();
                    hand
                }
                _ => self.deal(client)?,
            };
            self.keep_open(at, client, hand);
            Some(Ok(self.request(at, client, hand)))
        })
    }

    /// Plays closed-loop: every arrival starts a session, which then follows its completions.
    pub(super) fn sessions(mut self) -> impl Iterator<Item = Result<Session, TraceError>> {
        std::iter::from_fn(move || {
            let (at, client) = self.arrivals.next()?;
            let hand = self.deal(client)?;
            let mut session = self.content[hand.session].clone();
            for turn in &mut session.turns {
                turn.prompt = turn.prompt.respaced(hand.salt);
            }
            session.id = mixed(hand.salt, session.id);
            session.tenant = Tenant(index(client));
            session.class = self.seats[client].class;
            session.deadline = self.seats[client].deadline;
            session.start = Some(at);
            Some(Ok(session))
        })
    }

    /// Deals the next session; none when there is no content at all.
    fn deal(&mut self, client: usize) -> Option<Hand> {
        let cards = u64::try_from(self.deck.len()).ok().filter(|&cards| 0 < cards)?;
        let (round, card) = (self.dealt / cards, self.dealt % cards);
        self.dealt += 1;
        // Sessions that share a prefix in the recording share it within a tenant and a round.
        let salt = mixed(u64::from(index(client)), round);
        Some(Hand { session: self.deck[usize::try_from(card).ok()?], salt, turn: 0 })
    }

    fn keep_open(&mut self, at: Moment, client: usize, hand: Hand) {
        let turns = &self.content[hand.session].turns;
        let now = &turns[place(hand.turn)];
        if let Some(next) = turns.get(place(hand.turn) + 1) {
            let pause = next.at.saturating_sub(now.at).min(self.think_max);
            let hand = Hand { turn: hand.turn + 1, ..hand };
            self.seats[client].open.push(Reverse((at + pause, self.dealt, hand)));
        }
    }

    fn request(&self, arrival: Moment, client: usize, hand: Hand) -> Request {
        let session = &self.content[hand.session];
        let turn = &session.turns[place(hand.turn)];
        Request {
            arrival,
            ticket: Ticket::default(),
            tenant: Tenant(index(client)),
            session: mixed(hand.salt, session.id),
            stream: turn.stream,
            model: turn.model.clone(),
            class: self.seats[client].class,
            deadline: self.seats[client].deadline,
            think: (hand.turn != 0).then_some(turn.think),
            prompt: turn.prompt.respaced(hand.salt),
            output_tokens: turn.output_tokens,
            next: None,
        }
    }
}

fn seat(classes: &[ClassShare], seed: u64, client: u64) -> Seat {
    let chosen = mix::choose(classes, |it| it.share, &mut draw::rng(seed, "class", client));
    Seat {
        class: chosen.map_or(Class::default(), |it| it.class),
        deadline: chosen.and_then(|it| it.deadline),
        open: BinaryHeap::new(),
    }
}
