//! Holding requests while the fleet is at its knee. A request that finds room passes without a stop;
//! one that does not waits in the line, and is placed when capacity shows, wherever is best then. What
//! was promised by contract, what can no longer be met, and which session may begin is decided on the
//! same way. The order is the queue's and the place is the policy's; this file only brings them
//! together, and keeps the books of both when a request ends.

mod computed;
mod headroom;
mod hold;
mod lanes;
mod reach;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use crate::domain::{Moment, RequestId};
use crate::fleet::Replica;
use crate::policy::Ask;
use crate::queue::{Admission, Ticket, Use};

use super::picking::Unpicked;
use super::request::{CostEstimate, Due, Fingerprint, micros, target};
use super::{Action, Brain, Cause, Refusal, Waited, knee};

pub(super) use computed::believed;
use headroom::Limit;
use hold::Parked;
pub(super) use hold::{Arrival, Hold};
use lanes::{Fill, LaneKey, Scene, fill_of};
use settle::work_of;

/// Capacity is idle below this part of a class's limits: what is beyond a contract may have it.
const IDLE_PART: f64 = 0.5;
/// How far past its limits a session's own replica may be and still get it when others have room: its
/// cache is there.
const HOME_PART: f64 = 1.5;

impl Brain {
    /// Takes in a request that has just arrived: sends it, holds it, or refuses it.
    pub(super) fn admit(&mut self, now: Moment, arrival: Arrival, actions: &mut Vec<Action>) {
        let request = arrival.request;
        if let Err(refusal) = self.try_admit(now, arrival, actions) {
            actions.push(Action::Refuse { request, refusal });
        }
    }

    fn try_admit(
        &mut self,
        now: Moment,
        arrival: Arrival,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let fingerprint = Fingerprint::of(arrival.key, &arrival.outline, &arrival.extent);
        if let Some(scope) = self.examine(now, arrival.key, fingerprint) {
            return Err(Refusal::Quarantined { scope });
        }
        if !self.is_anybody_there(now, &arrival) {
            return Err(self.nobody(now));
        }
        let request = arrival.request;
        let mut parked = self.park(now, arrival);
        self.explain_arrival(now, request, &parked);
        let estimate = &parked.estimate;
        if estimate.due.sent_by.is_some_and(|it| it < now) {
            return Err(Refusal::DeadlineUnmeetable);
        }
        let (tokens, class) = (estimate.tokens, estimate.class.index());
        self.hold.headroom.on_arrival(now, class, estimate.work);
        let account = self.hold.contracts.account(estimate.tenant);
        let held = account.reserve(now, estimate.work, tokens);
        if held.usage == Use::BestEffort && !self.is_idle(now, class) {
            let account = self.hold.contracts.holder(parked.estimate.tenant, &held);
            account.cancel(held);
            let over = account.over(parked.estimate.work, tokens);
            self.explaining.on_waited(request, |it| it.cause = Some(Cause::Contract));
            return Err(Refusal::OverContract { limit: over.limit, retry_after: over.retry_after });
        }
        parked.estimate.held = Some(held);
        self.pass_or_join(now, request, parked, actions)
    }

    /// Sends a request at once if nobody waits and there is room; else it joins the line.
    fn pass_or_join(
        &mut self,
        now: Moment,
        request: RequestId,
        parked: Parked,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let lane = parked.lane();
        self.look_around(now);
        // A replica that takes no new sessions keeps those it has, and no other can have them.
        let ask = parked.ask(now);
        let is_bound = self.policy.keeps_sessions() && self.closed_home(&ask, &[]).is_some();
        let is_free = self.hold.line.is_empty() && {
            let fills = &self.hold.fills;
            let there = self.candidates.iter().filter_map(|it| fill_of(fills, it.id));
            self.hold.scene().admits(lane, there)
        };
        if is_bound || is_free {
            let CostEstimate { class, tenant, weight, work, .. } = parked.estimate;
            self.hold.line.pass(class, tenant, weight, work);
            self.hold.pace.on_sent(now, work, false);
            return self.place(now, request, parked, actions);
        }
        self.note_reach(now, &parked);
        let ticket = self.hold.ticket(now, request, &parked, lane.into());
        let wait = self.hold.predict_wait(now, &ticket);
        self.explain_joining(now, &ticket, lane);
        if parked.estimate.due.sent_by.is_some_and(|it| it < now + wait) {
            self.hold.refund(&parked.estimate);
            return Err(Refusal::DeadlineUnmeetable);
        }
        let mut displaced = Vec::new();
        let joined = self.hold.line.join(ticket, &mut displaced);
        for ticket in displaced {
            let retry_after = self.hold.retry_after(now, &ticket);
            self.turn_away(now, &ticket, Refusal::LineFull { retry_after }, actions);
        }
        if joined.is_err() {
            self.hold.refund(&parked.estimate);
            return Err(Refusal::LineFull { retry_after: self.hold.retry_after(now, &ticket) });
        }
        self.hold.parked.insert(request, parked);
        Ok(())
    }

    /// Places those who may go, in their order, until nobody may.
    pub(super) fn pump(&mut self, now: Moment, actions: &mut Vec<Action>) {
        while let Some(ticket) = self.hold.line.expired(now) {
            let refusal = self.why_expired(now, &ticket);
            self.turn_away(now, &ticket, refusal, actions);
        }
        while !self.hold.line.is_empty() {
            self.look_around(now);
            let Some(ticket) = self.hold.next(now) else { return };
            let Some(parked) = self.hold.parked.swap_remove(&ticket.request) else { continue };
            self.explaining.on_waited(ticket.request, |it| it.go(now));
            // Replicas may have gone down under others like it while it waited.
            let scope = self.examine(now, parked.key, parked.fingerprint);
            let placed = if let Some(scope) = scope {
                self.hold.take_back(&parked.estimate);
                Err(Refusal::Quarantined { scope })
            } else {
                self.place(now, ticket.request, parked, actions)
            };
            match placed {
                Ok(()) => self.hold.pace.on_sent(now, ticket.work, !self.hold.line.is_empty()),
                Err(refusal) => {
                    actions.push(Action::Refuse { request: ticket.request, refusal });
                }
            }
        }
    }

    /// Takes a request whose client left out of the line; tells whether it was there.
    pub(super) fn on_left_line(&mut self, request: RequestId) -> bool {
        self.hold.line.remove(request);
        let parked = self.hold.parked.swap_remove(&request);
        if let Some(parked) = &parked {
            self.hold.refund(&parked.estimate);
        }
        parked.is_some()
    }

    /// Has the policy choose among those with room who would be in time, and books it; takes back what
    /// was charged and reserved where nobody can take it.
    fn place(
        &mut self,
        now: Moment,
        request: RequestId,
        parked: Parked,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let mut limit = self.hold.headroom.limit(parked.estimate.class.index());
        if parked.estimate.held.is_some_and(|it| it.usage == Use::BestEffort) {
            limit = limit.times(IDLE_PART);
        } else if self.hold.headroom.is_alone() && self.hold.line.is_empty() {
            // There is nobody to leave room for, and the policy knows what a full replica costs.
            limit = Limit::NONE;
        }
        let ask = parked.ask(now);
        let fills = std::mem::take(&mut self.hold.fills);
        let home = parked.home;
        let chosen = self.pick_among(&ask, &[], parked.estimate.due, |it| {
            let limit = if Some(it.id) == home { limit.times(HOME_PART) } else { limit };
            fill_of(&fills, it.id).is_some_and(|it| limit.admits(it))
        });
        self.hold.fills = fills;
        match chosen {
            Ok(replica) => {
                self.send(now, request, parked.booking(replica), actions);
                Ok(())
            }
            Err(unpicked) => {
                self.hold.take_back(&parked.estimate);
                Err(match unpicked {
                    Unpicked::Nobody => self.nobody(now),
                    Unpicked::TooLate { first_token_ms } => {
                        self.explaining.on_waited(request, |it| it.first_token_ms = first_token_ms);
                        Refusal::DeadlineUnmeetable
                    }
                })
            }
        }
    }

    /// Tells whether any replica may take the request at all, whether or not it has room; those who
    /// may are the candidates then.
    fn is_anybody_there(&mut self, now: Moment, arrival: &Arrival) -> bool {
        let ask =
            Ask { now, key: arrival.key, outline: &arrival.outline, home: None, first_token: None };
        self.could_pick(&ask)
    }

    /// Tells whether there is capacity among the candidates that nobody wants.
    fn is_idle(&self, now: Moment, class: usize) -> bool {
        let limit = self.hold.headroom.limit(class).times(IDLE_PART);
        let mut there = self.candidates.iter().filter_map(|it| self.fleet.get(it.id));
        self.hold.line.is_empty() && there.any(|it| limit.admits(&self.fill(now, it)))
    }

    fn fill(&self, now: Moment, replica: &Replica) -> Fill {
        Fill {
            id: replica.id,
            level: self.hold.knees.fill(now, replica),
            wait_ms: knee::wait_ms(now, replica),
        }
    }

    /// Notes how full every replica is, in order of id, for the choice of who goes next.
    fn look_around(&mut self, now: Moment) {
        let mut fills = std::mem::take(&mut self.hold.fills);
        self.fills(now, &mut fills);
        self.hold.fills = fills;
        self.hold.look(now);
    }

    fn fills(&self, now: Moment, into: &mut Vec<Fill>) {
        // Where nobody is held, everybody has room.
        let free = |it: &Replica| Fill { id: it.id, level: 0.0, wait_ms: 0.0 };
        // For nobody but itself a class is held by evidence only: hardware that nobody has calibrated
        // may well run more answers at once than was predicted of it.
        let shown = |it: &Replica| Fill {
            id: it.id,
            level: self.hold.knees.fill_shown(now, it),
            wait_ms: knee::wait_ms(now, it),
        };
        let fill = |it: &Replica| match (self.settings.line.holds, self.hold.headroom.is_alone()) {
            (false, _) => free(it),
            (true, true) => shown(it),
            (true, false) => self.fill(now, it),
        };
        into.clear();
        into.extend(self.takers().filter(|it| it.admits(now)).map(fill));
        if into.is_empty() {
            into.extend(self.takers().filter(|it| it.admits_at_need(now)).map(fill));
        }
        if into.is_empty() {
            // Those that have not shown themselves are the last resort.
            into.extend(self.takers().filter(|it| it.is_joining()).map(fill));
        }
    }

    /// Lists those who are open to new sessions.
    fn takers(&self) -> impl Iterator<Item = &Replica> {
        let is_open = |it: &&Replica| 0.0 < it.weight && !self.subsets.is_drained(it.place);
        self.fleet.iter().filter(is_open)
    }

    /// Works out what a request will cost, where its cache is and by when it must go; after its
    /// candidates were gathered.
    fn park(&mut self, now: Moment, arrival: Arrival) -> Parked {
        let Arrival { key, outline, extent, claim, .. } = arrival;
        let fingerprint = Fingerprint::of(key, &outline, &extent);
        let home = self.policy.keeps_sessions().then(|| self.sessions.home(now, key)).flatten();
        let home = home.filter(|it| self.candidates.iter().any(|there| there.id == *it));
        let is_divided = self.candidates.iter().any(|it| self.subsets.allows(it.place));
        let admission =
            if self.settings.line.gates { self.hold.gate.ask(key) } else { Admission::Live };
        let prompt = outline.prompt_tokens;
        let output = outline.output_tokens.unwrap_or(0);
        let known = if home.is_some() { self.hold.gate.tokens_of(key) } else { 0 };
        let cached = u32::try_from(known).unwrap_or(u32::MAX).min(prompt.saturating_sub(1));
        let replica = home.and_then(|it| self.fleet.get(it)).or_else(|| self.fleet.iter().next());
        let hardware = replica.map_or_else(Arc::default, |it| Arc::clone(&it.hardware));
        let cost = &hardware.cost;
        let prefill_ms = cost.prefill_ms(prompt - cached, cached);
        let first_token_ms = prefill_ms + hardware.overhead_ms;
        let decode_ms = cost.decode_ms(output, prompt.saturating_add(output / 2));
        let classes = &self.settings.line.classes;
        let class = claim.class.unwrap_or(classes.default_id());
        let first_token = classes.get(class).first_token;
        let estimate = CostEstimate {
            class,
            first_token,
            tenant: claim.tenant,
            weight: claim.weight,
            work: work_of(&hardware, prefill_ms + decode_ms),
            tokens: u64::from(prompt) + u64::from(output),
            is_long: self.hold.headroom.is_long(class.index(), prefill_ms),
            due: Due::new(&claim, first_token_ms, &hardware, output),
            target: first_token.map(|it| target(now, it, first_token_ms)),
            first_token_ms,
            bytes: claim.bytes,
            held: None,
        };
        Parked { key, outline, extent, fingerprint, home, is_divided, admission, estimate }
    }

    fn why_expired(&self, now: Moment, ticket: &Ticket) -> Refusal {
        let retry_after = self.hold.retry_after(now, ticket);
        if ticket.deadline.is_some_and(|it| it <= ticket.expires_at) {
            Refusal::DeadlinePassed
        } else if LaneKey::from(ticket.lane).is_fresh && !self.hold.gate.is_open() {
            Refusal::SessionsFull { retry_after }
        } else {
            Refusal::WaitedOut { retry_after }
        }
    }

    /// Refuses a request that has been taken out of the line.
    fn turn_away(
        &mut self,
        now: Moment,
        ticket: &Ticket,
        refusal: Refusal,
        actions: &mut Vec<Action>,
    ) {
        self.explaining.on_waited(ticket.request, |it| it.left_at = now);
        if let Some(parked) = self.hold.parked.swap_remove(&ticket.request) {
            self.hold.refund(&parked.estimate);
        }
        actions.push(Action::Refuse { request: ticket.request, refusal });
    }

    /// Begins to write down what a marked request goes through.
    fn explain_arrival(&mut self, now: Moment, request: RequestId, parked: &Parked) {
        let (estimate, classes) = (&parked.estimate, &self.settings.line.classes);
        self.explaining.on_arrival(request, || Waited {
            class: classes.get(estimate.class).name.clone(),
            tenant: estimate.tenant,
            arrived_at: now,
            left_at: now,
            cause: None,
            ahead_mu: 0.0,
            wait_expected: Duration::ZERO,
            first_token_ms: estimate.first_token_ms,
            first_token_within: estimate.due.first_token_by.map(|it| it.since(now)),
            sent_within: estimate.due.sent_by.map(|it| it.since(now)),
        });
    }

    /// Writes down why a request cannot go at once; after its candidates were gathered.
    fn explain_joining(&mut self, now: Moment, ticket: &Ticket, lane: LaneKey) {
        let Self { hold, explaining, candidates, .. } = self;
        explaining.on_waited(ticket.request, |it| {
            let there = candidates.iter().filter_map(|it| fill_of(&hold.fills, it.id));
            let there_again = there.clone();
            it.cause = Some(hold.scene().cause(lane, there));
            it.ahead_mu = hold.line.ahead(now, ticket).as_mu();
            // First somebody must have room, then those before it go.
            let limit = hold.headroom.limit(ticket.class.index());
            let opens_ms = there_again.map(|it| (it.wait_ms - limit.wait_ms).max(0.0));
            let opens_ms = opens_ms.fold(f64::INFINITY, f64::min);
            let opens = if opens_ms.is_finite() { opens_ms } else { 0.0 };
            it.wait_expected =
                hold.predict_wait(now, ticket) + Duration::from_micros(micros(opens));
        });
    }

    /// Tells whether somebody waits who could go.
    pub(super) fn holds_in_vain(&self, now: Moment) -> bool {
        let mut fills = Vec::new();
        self.fills(now, &mut fills);
        let scene = Scene { fills: &fills, ..self.hold.scene() };
        self.hold.parked.values().any(|it| scene.is_open(it.lane(), false))
    }
}

#[cfg(test)]
mod tests;
