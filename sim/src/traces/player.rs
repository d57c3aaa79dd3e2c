//! Plays sessions: starts them by recorded moments, by chance or at a fixed concurrency, and lets
//! each turn come when its recording or its completion says. Only live sessions are held.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use cleave_core::domain::Moment;
use rand_pcg::Pcg64Mcg;

use super::draw;
use super::lines::TraceError;
use super::replay::{Loop, Replay, Starts};
use super::request::{Request, Session, Ticket, index, place};
use super::source::{Sessions, Source};

/// A turn that will arrive; ordered by moment, then by the order in which it became known.
type Due = Reverse<(Moment, u64, Ticket)>;

struct Live {
    session: Session,
    pace: Loop,
    /// Turns that have not ended (closed loop) or not been taken (open loop).
    left: usize,
}

pub(super) struct Player {
    sessions: Sessions,
    replay: Replay,
    rng: Pcg64Mcg,
    /// The session that starts next.
    upcoming: Option<(Moment, Session)>,
    /// When the last session without a recorded start was started.
    last_start: Moment,
    /// Sessions that may start at a given moment under a fixed concurrency.
    vacancies: BinaryHeap<Reverse<Moment>>,
    live: BTreeMap<u64, Live>,
    slots: u64,
    due: BinaryHeap<Due>,
    known: u64,
}

impl Player {
    pub(super) fn new(sessions: Sessions, replay: Replay) -> Self {
        let vacancies = match replay.starts {
            Starts::Poisson { .. } => 0,
            Starts::Concurrent { sessions } => {
                draw::tokens(f64::from(sessions) * replay.rate_scale.get()).max(1)
            }
        };
        Self {
            sessions,
            rng: draw::rng(replay.seed, "session starts", 0),
            replay,
            upcoming: None,
            last_start: Moment::ZERO,
            vacancies: (0..vacancies).map(|_| Reverse(Moment::ZERO)).collect(),
            live: BTreeMap::new(),
            slots: 0,
            due: BinaryHeap::new(),
            known: 0,
        }
    }

    /// Starts every session that begins before the next known turn.
    fn start_what_is_due(&mut self) -> Result<(), TraceError> {
        loop {
            if self.upcoming.is_none() {
                self.upcoming = self.draw_next()?;
            }
            let Some((start, _)) = &self.upcoming else { return Ok(()) };
            if self.due.peek().is_some_and(|Reverse((at, ..))| at < start) {
                return Ok(());
            }
            if let Some((start, session)) = self.upcoming.take() {
                self.start(start, session);
            }
        }
    }

    fn draw_next(&mut self) -> Result<Option<(Moment, Session)>, TraceError> {
        let concurrent = matches!(self.replay.starts, Starts::Concurrent { .. });
        if concurrent && self.vacancies.is_empty() {
            return Ok(None);
        }
        let Some(mut session) = self.next_session()? else { return Ok(None) };
        let start = match (self.replay.starts, session.start) {
            (Starts::Concurrent { .. }, _) => {
                self.vacancies.pop().map_or(Moment::ZERO, |Reverse(at)| at)
            }
            (Starts::Poisson { .. }, Some(start)) => {
                let since = start.since(Moment::ZERO + self.replay.from);
                Moment::ZERO + draw::scaled(since, 1.0 / self.replay.rate_scale.get())
            }
            (Starts::Poisson { per_second }, None) => {
                let rate = per_second * self.replay.rate_scale.get();
                self.last_start = self.last_start + draw::poisson_gap(&mut self.rng, rate);
                self.last_start
            }
        };
        let span = self.replay.until.saturating_sub(self.replay.from);
        let placed = session.start.is_none() && !concurrent;
        if placed && Moment::ZERO + span <= start {
            return Ok(None);
        }
        session.start = Some(start);
        Ok(Some((start, session)))
    }

    /// Pulls the next session inside the window that has anything left after the cut.
    fn next_session(&mut self) -> Result<Option<Session>, TraceError> {
        let from = Moment::ZERO + self.replay.from;
        let until = Moment::ZERO + self.replay.until;
        for session in self.sessions.by_ref() {
            let mut session = session?;
            if session.start.is_some_and(|start| until <= start) {
                return Ok(None);
            }
            session.cut_prompts(self.replay.prompt_tokens_max);
            if !session.turns.is_empty() && session.start.is_none_or(|start| from <= start) {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }

    fn start(&mut self, start: Moment, session: Session) {
        let slot = self.slots;
        self.slots += 1;
        let pace = if session.timed { self.replay.pace } else { Loop::Closed };
        for (number, turn) in session.turns.iter().enumerate() {
            let at = match pace {
                Loop::Open => start + draw::scaled(turn.at, 1.0 / self.replay.rate_scale.get()),
                Loop::Closed if turn.waits_for == 0 => {
                    start + turn.think.min(self.replay.think_max)
                }
                Loop::Closed => continue,
            };
            self.due.push(Reverse((at, self.known, Ticket { slot, turn: index(number) })));
            self.known += 1;
        }
        let left = session.turns.len();
        self.live.insert(slot, Live { session, pace, left });
    }

    /// Counts one turn off; a session without turns left makes room for another.
    fn count_off(&mut self, now: Moment, slot: u64) {
        let Some(live) = self.live.get_mut(&slot) else { return };
        live.left -= 1;
        if live.left == 0 {
            self.live.remove(&slot);
            if matches!(self.replay.starts, Starts::Concurrent { .. }) {
                self.vacancies.push(Reverse(now));
            }
        }
    }
}

impl Source for Player {
    fn next_arrival(&mut self) -> Result<Option<Moment>, TraceError> {
        self.start_what_is_due()?;
        Ok(self.due.peek().map(|&Reverse((at, ..))| at))
    }

    fn take(&mut self) -> Result<Option<Request>, TraceError> {
        self.start_what_is_due()?;
        let Some(Reverse((arrival, _, ticket))) = self.due.pop() else { return Ok(None) };
        let live = self.live.get(&ticket.slot).expect("a due turn belongs to a live session");
        let (session, turn) = (&live.session, &live.session.turns[place(ticket.turn)]);
        let request = Request {
            arrival,
            ticket,
            tenant: session.tenant,
            session: session.id,
            stream: turn.stream,
            model: turn.model.clone(),
            class: session.class,
            deadline: session.deadline,
            think: (ticket.turn != 0).then_some(turn.think),
            prompt: turn.prompt.clone(),
            output_tokens: turn.output_tokens,
            next: None,
        };
        if live.pace == Loop::Open {
            self.count_off(arrival, ticket.slot);
        }
        Ok(Some(request))
    }

    fn on_end(&mut self, now: Moment, ticket: Ticket) {
        let Some(live) = self.live.get_mut(&ticket.slot) else { return };
        if live.pace == Loop::Open {
            return;
        }
        let released = std::mem::take(&mut live.session.turns[place(ticket.turn)].then);
        for number in released {
            let turn = &mut live.session.turns[place(number)];
            turn.waits_for -= 1;
            if turn.waits_for == 0 {
                let at = now + turn.think.min(self.replay.think_max);
                self.due.push(Reverse((at, self.known, Ticket { turn: number, ..ticket })));
                self.known += 1;
            }
        }
        self.count_off(now, ticket.slot);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::super::prompt::Prompt;
    use super::super::request::Turn;
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn turn(think_s: u64) -> Turn {
        Turn::new(Duration::ZERO, seconds(think_s), Prompt::unshared(0, 1, NonZeroU32::MIN), 1)
    }

    fn agent_with_two_sub_agents() -> Session {
        let mut session = Session { timed: true, ..Session::default() };
        let call = session.push(turn(0), &[]);
        let one = session.push(turn(1), &[call]);
        let other = session.push(turn(2), &[call]);
        session.push(turn(5), &[call, one, other]);
        session
    }

    #[test]
    fn an_agent_goes_on_when_its_slowest_sub_agent_has_ended() {
        let replay = Replay {
            pace: Loop::Closed,
            starts: Starts::Concurrent { sessions: 1 },
            ..Replay::default()
        };
        let sessions: Sessions = Box::new([Ok(agent_with_two_sub_agents())].into_iter());
        let mut player = Player::new(sessions, replay);
        let call = player.take().unwrap().unwrap();
        assert_eq!(player.next_arrival().unwrap(), None);
        player.on_end(Moment::ZERO + seconds(10), call.ticket);
        let one = player.take().unwrap().unwrap();
        let other = player.take().unwrap().unwrap();
        assert_eq!(one.arrival, Moment::ZERO + seconds(11));
        assert_eq!(other.arrival, Moment::ZERO + seconds(12));
        player.on_end(Moment::ZERO + seconds(40), other.ticket);
        assert_eq!(player.next_arrival().unwrap(), None);
        player.on_end(Moment::ZERO + seconds(60), one.ticket);
        assert_eq!(player.next_arrival().unwrap(), Some(Moment::ZERO + seconds(65)));
    }

    #[test]
    fn the_next_session_starts_when_one_ends() {
        let replay = Replay {
            pace: Loop::Closed,
            starts: Starts::Concurrent { sessions: 2 },
            ..Replay::default()
        };
        let single = |id| {
            let mut session = Session { id, ..Session::default() };
            session.push(turn(0), &[]);
            Ok(session)
        };
        let sessions: Sessions = Box::new((0..3).map(single));
        let mut player = Player::new(sessions, replay);
        let first = player.take().unwrap().unwrap();
        player.take().unwrap().unwrap();
        assert_eq!(player.next_arrival().unwrap(), None);
        player.on_end(Moment::ZERO + seconds(9), first.ticket);
        let third = player.take().unwrap().unwrap();
        assert_eq!((third.session, third.arrival), (2, Moment::ZERO + seconds(9)));
    }
}
