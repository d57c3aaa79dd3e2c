//! The life of one request, top to bottom: arrive, send, step, end; and what happens when a try
//! fails. It does what the proxy does around the brain, and nothing the proxy could not do.

use std::sync::Arc;

use cleave_core::brain::{Action, Event, Failure, Outcome, Refusal, streamed_is_due};
use cleave_core::domain::{Extent, Outline, ReplicaId, RequestId, SliceKey, Usage};
use cleave_core::queue::{self, Claim, ClassId};
use rand::RngExt as _;

use crate::engine;
use crate::measure::{End, Exposure};
use crate::traces::{Request, Tenant};
use crate::work;

use super::flight::Flight;
use super::heap::Happening;
use super::replica::{Standing, absurd_usage};
use super::{Timer, Watch, World, invariants};

const BYTES_PER_TOKEN: u32 = 4;

impl World {
    /// Takes in a request and asks its router where it should go.
    pub(super) fn arrive(&mut self, request: Request, watch: &mut dyn Watch) {
        let id = self.next_request;
        self.next_request += 1;
        let prompt_tokens = request.prompt.tokens().max(1);
        let output_tokens = request.output_tokens.max(1);
        let seen_tokens = self.hittable(self.seen.cached_tokens(&request.prompt), prompt_tokens);
        self.seen.insert(&request.prompt);
        let times = &self.settings.replicas[0].engine.times;
        let asked_ms = work::prefill_ms(times, prompt_tokens - seen_tokens, seen_tokens)
            + work::decode_ms(times, prompt_tokens, output_tokens);
        let routers = self.routers.len();
        let router = if routers < 2 { 0 } else { self.chance.random_range(0..routers) };
        // Drawn only where it is asked for, so that other worlds keep their draws.
        let non_streaming = self.settings.non_streaming;
        let streams = non_streaming <= 0.0 || !self.chance.random_bool(non_streaming.min(1.0));
        let flight = Flight {
            ticket: request.ticket,
            tenant: request.tenant,
            class: request.class,
            arrival: self.now,
            deadline: request.deadline,
            hashes: request.prompt.hashes(self.block_tokens).collect(),
            next: request.next.clone(),
            prompt_tokens,
            output_tokens,
            streams,
            anywhere_tokens: 0,
            seen_tokens,
            asked_ms,
            router,
            replica: None,
            tries: 0,
            sent: None,
            in_vain: false,
            first_token: None,
            cached_tokens: 0,
            exposure: Exposure::None,
        };
        let belief = &self.settings.belief;
        let outline = Outline {
            blocks: Arc::clone(&flight.hashes),
            block_tokens: belief.of_tokens(self.block_tokens.get()),
            prompt_tokens: belief.of_tokens(prompt_tokens),
            output_tokens: None,
            ..Outline::default()
        };
        self.flights.insert(id, flight);
        self.measures.on_arrival(request.tenant);
        if self.pooled.is_some() {
            self.place_pooled(id);
            return;
        }
        let session = request.session.to_string();
        let key = SliceKey::new(u64::from(request.tenant.0), "", &session);
        let began = watch.nanos();
        let extent = self.extent(prompt_tokens, streams);
        // Routers without a line know of no deadlines.
        let deadline = request.deadline.filter(|_| self.settings.brain.line.holds);
        let claim = Claim {
            tenant: tenant_of(request.tenant),
            class: Some(ClassId(request.class.0)),
            first_token_by: deadline.map(|it| self.now + it),
            bytes: usize::try_from(extent.text_bytes).unwrap_or(usize::MAX),
            ..Claim::default()
        };
        self.tell(router, Event::Arrived { request: RequestId(id), key, outline, extent, claim });
        self.decisions.nanos += watch.nanos() - began;
        self.decisions.count += 1;
    }

    /// Makes the size in bytes that a prompt of `prompt_tokens` would have. The tokens are told
    /// too; this lets the brain learn how long answers are.
    fn extent(&self, prompt_tokens: u32, streams: bool) -> Extent {
        Extent {
            text_bytes: prompt_tokens.saturating_mul(BYTES_PER_TOKEN),
            block_bytes: self.block_tokens.get() * BYTES_PER_TOKEN,
            streams,
            ..Extent::default()
        }
    }

    /// Tells a brain something and notes what it wants done.
    pub(super) fn tell(&mut self, router: usize, event: Event) {
        let Some(it) = self.routers.get_mut(router) else { return };
        it.brain.on_event(self.now, event, &mut self.actions);
        self.note_actions(router);
        self.wake_in_time(router);
    }

    /// Puts what a brain has just decided on the list of what is to be done.
    pub(super) fn note_actions(&mut self, router: usize) {
        if self.settings.checks {
            let broken =
                invariants::broken_brain(&self.routers[router].brain, self.now, &self.actions);
            self.broken = self.broken.take().or(broken);
        }
        self.heed(router);
        self.share(router);
        self.todo.extend(self.actions.drain(..).map(|action| (router, action)));
    }

    /// Does what brains have decided, and what follows from that at once.
    pub(super) fn act(&mut self) {
        while let Some((router, action)) = self.todo.pop_front() {
            match action {
                Action::Send { request, replica } => self.send(request.0, index(replica)),
                Action::Refuse { request, refusal } => {
                    if let Refusal::Quarantined { .. } | Refusal::Suspected { .. } = refusal {
                        self.count_quarantined(request.0, refusal);
                    }
                    self.end(request.0, End::Refused { reason: refusal.as_str() });
                }
                Action::Release { replica } => self.let_go(index(replica)),
                Action::GiveUp { request, replica } => self.give_up_try(request.0, index(replica)),
                Action::Ask { replica, limit } => self.ask(router, index(replica), limit),
            }
        }
    }

    fn send(&mut self, id: u64, replica: usize) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let to = &mut self.replicas[replica];
        let router = flight.router;
        flight.tries += 1;
        if flight.sent.is_none() {
            flight.sent = Some(self.now);
            self.measures.on_sent(flight.tenant, flight.asked_ms);
            flight.in_vain = flight.is_too_late(self.now, &to.settings.engine);
        }
        self.measures.retries += u64::from(1 < flight.tries);
        match to.standing {
            Standing::Down | Standing::Gone => {
                let failure = Failure::Unreachable;
                self.tell(router, Event::Failed { request: RequestId(id), failure });
            }
            Standing::Up | Standing::Hung { .. } => {
                if to.engine.submit(self.now, flight.job(id, self.block_tokens)).is_err() {
                    self.refuse_too_long(id);
                    return;
                }
                flight.replica = Some(replica);
                let leading = self.residency.leading(&flight.hashes);
                let (prompt, tries) = (flight.prompt_tokens, flight.tries);
                let leading = u32::try_from(leading).unwrap_or(u32::MAX);
                let anywhere = leading.saturating_mul(self.block_tokens.get());
                let anywhere = self.hittable(anywhere, prompt);
                if let Some(flight) = self.flights.get_mut(&id) {
                    flight.anywhere_tokens = anywhere;
                }
                let at = self.now + self.settings.timeouts.first_byte;
                self.timers.push_back(Timer { at, request: id, tries });
                self.schedule(replica);
                self.poison_replica(id, replica);
            }
        }
    }

    /// The engine answers that the request can never fit; that is an answer, which the client must correct.
    fn refuse_too_long(&mut self, id: u64) {
        let Some(flight) = self.flights.get(&id) else { return };
        let (router, request) = (flight.router, RequestId(id));
        self.tell(router, Event::Answering { request });
        self.tell(
            router,
            Event::Ended { request, outcome: Outcome::Done, usage: Usage::default() },
        );
        self.end(id, End::TooLong);
    }

    /// Puts the end of a replica's step under way into the heap, if it is not there.
    pub(super) fn schedule(&mut self, replica: usize) {
        let it = &mut self.replicas[replica];
        let due = it.engine.next_wakeup().filter(|_| it.is_up());
        if due != it.due {
            it.due = due;
            if let Some(at) = due {
                self.heap.push(at, Happening::Step { replica });
            }
        }
    }

    /// Ends a step of an engine and hands its tokens on.
    pub(super) fn step(&mut self, replica: usize) {
        let it = &mut self.replicas[replica];
        if it.due != Some(self.now) || !it.is_up() {
            return;
        }
        it.due = None;
        let mut outputs = std::mem::take(&mut self.outputs);
        it.engine.on_time(self.now, &mut outputs);
        self.residency.follow(&mut it.engine);
        self.schedule(replica);
        self.hear(replica, &outputs);
        for output in outputs.drain(..) {
            match output.event {
                engine::Event::FirstToken { cached_tokens } => {
                    self.first_token(output.id, replica, cached_tokens);
                }
                engine::Event::Token => {
                    if streamed_is_due(output.tokens - 1, output.tokens) {
                        self.stream(output.id, output.tokens);
                    }
                }
                engine::Event::Finished { cached_tokens, preemptions } => {
                    self.measures.preemptions += u64::from(preemptions);
                    self.finish(output.id, cached_tokens);
                }
            }
        }
        self.outputs = outputs;
        if self.settings.checks {
            let broken = invariants::broken_engine(replica, &self.replicas[replica].engine);
            self.broken = self.broken.take().or(broken);
        }
    }

    /// Lets routers hear what a step has brought for them.
    fn hear(&mut self, replica: usize, outputs: &[engine::Output]) {
        // An answer that does not stream sends nothing before its end.
        let flights = &self.flights;
        let is_heard = |output: &&engine::Output| {
            matches!(output.event, engine::Event::Finished { .. })
                || flights.get(&output.id).is_none_or(|it| it.streams)
        };
        if let [router] = &mut self.routers[..] {
            if outputs.iter().any(|it| is_heard(&it)) {
                router.hear(replica, self.now);
            }
            return;
        }
        for output in outputs.iter().filter(is_heard) {
            let router = self.flights.get(&output.id).map(|it| it.router);
            if let Some(router) = router.and_then(|it| self.routers.get_mut(it)) {
                router.hear(replica, self.now);
            }
        }
    }

    fn first_token(&mut self, id: u64, replica: usize, cached_tokens: u32) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.first_token = Some(self.now);
        flight.cached_tokens = cached_tokens;
        if let Some(pooled) = &mut self.pooled {
            pooled.on_first_token(id);
        }
        if self.flights.get(&id).is_some_and(|it| it.streams) {
            self.answer(id, replica);
        }
    }

    /// Shows the router the beginning of an answer, and counts its first token: with the first token
    /// where it streams, at its end where not.
    fn answer(&mut self, id: u64, replica: usize) {
        let Some(flight) = self.flights.get(&id) else { return };
        let it = flight.prefill();
        let times = &self.replicas[replica].settings.engine.times;
        let prefill_ms = work::prefill_ms(times, it.prompt - it.cached, it.cached);
        let work_ms = prefill_ms + work::decode_ms(times, it.prompt, flight.output_tokens);
        let first_token = flight.first_token.unwrap_or(self.now);
        self.measures.on_first_token(first_token, flight.arrival, replica, it, work_ms);
        self.tell(flight.router, Event::Answering { request: RequestId(id) });
    }

    fn stream(&mut self, id: u64, output_tokens: u32) {
        let Some(flight) = self.flights.get(&id).filter(|it| it.streams) else { return };
        self.tell(flight.router, Event::Streamed { request: RequestId(id), output_tokens });
    }

    fn finish(&mut self, id: u64, cached_tokens: u32) {
        if let Some(replica) =
            self.flights.get(&id).filter(|it| !it.streams).and_then(|it| it.replica)
        {
            self.answer(id, replica);
        }
        let Some(flight) = self.flights.get(&id) else { return };
        let (router, request) = (flight.router, RequestId(id));
        let lies = flight.replica.is_some_and(|it| self.replicas[it].lies);
        let honest = Usage {
            input: Some(flight.prompt_tokens),
            output: Some(flight.output_tokens),
            cached: Some(cached_tokens),
        };
        let usage = if lies { absurd_usage(id) } else { honest };
        self.note_served(id);
        self.tell(router, Event::Ended { request, outcome: Outcome::Done, usage });
        self.end(id, End::Finished);
    }

    /// Counts the tokens of a prompt that a cache can save: whole blocks, and never all of it.
    fn hittable(&self, tokens: u32, prompt_tokens: u32) -> u32 {
        let block = self.block_tokens.get();
        tokens.min(prompt_tokens - 1) / block * block
    }
}

/// Names a tenant to the brain, for which 0 is the shared account.
pub(super) fn tenant_of(tenant: Tenant) -> queue::Tenant {
    queue::Tenant(u64::from(tenant.0) + 1)
}

pub(super) fn index(replica: ReplicaId) -> usize {
    usize::try_from(replica.0).expect("a fleet fits 32 bits")
}
