//! Holding requests while the fleet is at its knee. A request that finds room passes without a stop;
//! one that does not waits in the line, and is placed when capacity shows, wherever is best then. What
//! was promised by contract, what can no longer be met, and which session may begin is decided on the
//! same way. The order is the queue's and the place is the policy's; this file only brings them
//! together, and keeps the books of both when a request ends.

mod headroom;
mod hold;
mod lanes;

use std::sync::Arc;

use crate::cost::Hardware;
use crate::domain::{Moment, RequestId, Usage};
use crate::fleet::Replica;
use crate::policy::Ask;
use crate::queue::{Admission, Ticket, Use, Work};

use super::{Action, Booking, Brain, Refusal, knee};

use hold::Parked;
pub(super) use hold::{Arrival, Hold, Toll};
use lanes::{Fill, LaneKey, Scene};

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
        if let Some(circle) = self.circle_of(now, arrival.key, &arrival.outline, &arrival.extent) {
            return Err(Refusal::Quarantined { circle });
        }
        if !self.is_anybody_there(now, &arrival) {
            return Err(self.nobody(now));
        }
        let request = arrival.request;
        let mut parked = self.park(now, arrival);
        let toll = &parked.toll;
        if toll.latest.is_some_and(|it| it < now) {
            return Err(Refusal::DeadlineUnmeetable);
        }
        let (tokens, class) = (toll.tokens, toll.class.index());
        self.hold.headroom.on_arrival(now, class, toll.work);
        let account = self.hold.contracts.account(toll.tenant);
        let held = account.reserve(now, toll.work, tokens);
        if held.usage == Use::BestEffort && !self.is_idle(now, class) {
            let account = self.hold.contracts.account(parked.toll.tenant);
            account.cancel(held);
            let over = account.over(parked.toll.work, tokens);
            return Err(Refusal::OverContract { limit: over.limit, retry_after: over.retry_after });
        }
        parked.toll.held = Some(held);
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
        let is_free = self.hold.line.is_empty() && self.hold.scene().is_open(lane, false);
        if is_bound || is_free {
            let Toll { class, tenant, weight, work, .. } = parked.toll;
            self.hold.line.pass(class, tenant, weight, work);
            self.hold.pace.on_sent(now, work, false);
            return self.place(now, request, parked, actions);
        }
        let ticket = self.hold.ticket(now, request, &parked, lane.into());
        let wait = self.hold.predict_wait(now, &ticket);
        if parked.toll.latest.is_some_and(|it| it < now + wait) {
            self.hold.refund(&parked.toll);
            return Err(Refusal::DeadlineUnmeetable);
        }
        let mut displaced = Vec::new();
        let joined = self.hold.line.join(ticket, &mut displaced);
        for ticket in displaced {
            let retry_after = self.hold.retry_after(now, &ticket);
            self.turn_away(&ticket, Refusal::LineFull { retry_after }, actions);
        }
        if joined.is_err() {
            self.hold.refund(&parked.toll);
            return Err(Refusal::LineFull { retry_after: self.hold.retry_after(now, &ticket) });
        }
        self.hold.parked.insert(request, parked);
        Ok(())
    }

    /// Places those who may go, in their order, until nobody may.
    pub(super) fn pump(&mut self, now: Moment, actions: &mut Vec<Action>) {
        while let Some(ticket) = self.hold.line.expired(now) {
            let refusal = self.why_expired(now, &ticket);
            self.turn_away(&ticket, refusal, actions);
        }
        while !self.hold.line.is_empty() {
            self.look_around(now);
            let Some(ticket) = self.hold.next(now) else { return };
            let Some(parked) = self.hold.parked.swap_remove(&ticket.request) else { continue };
            // Replicas may have gone down under others like it while it waited.
            if let Some(circle) = self.circle_of(now, parked.key, &parked.outline, &parked.extent) {
                self.hold.refund(&parked.toll);
                let refusal = Refusal::Quarantined { circle };
                actions.push(Action::Refuse { request: ticket.request, refusal });
                continue;
            }
            self.hold.pace.on_sent(now, ticket.work, !self.hold.line.is_empty());
            if let Err(refusal) = self.place(now, ticket.request, parked, actions) {
                actions.push(Action::Refuse { request: ticket.request, refusal });
            }
        }
    }

    /// Takes a request whose client left out of the line; tells whether it was there.
    pub(super) fn on_left_line(&mut self, request: RequestId) -> bool {
        self.hold.line.remove(request);
        let parked = self.hold.parked.swap_remove(&request);
        if let Some(parked) = &parked {
            self.hold.refund(&parked.toll);
        }
        parked.is_some()
    }

    /// Books a request that goes to a replica.
    pub(super) fn hold_on_sent(&mut self, now: Moment, booking: &Booking) {
        if booking.tried.is_empty() {
            self.hold.gate.on_sent(now, booking.key, booking.toll.tokens);
        }
    }

    /// Closes the books of a request that was sent: what it came to, as far as that is known.
    pub(super) fn hold_on_ended(&mut self, now: Moment, booking: &Booking, usage: Usage) {
        let Some(replica) = self.fleet.get(booking.replica) else { return };
        let output = usage.output.unwrap_or(booking.account.streamed_tokens);
        let input = usage.input.unwrap_or(booking.outline.prompt_tokens);
        let cached = usage.cached.unwrap_or(booking.account.cached_tokens).min(input);
        // Who left before the first token had some of the prompt read, nobody knows how much.
        let new = if booking.is_answering() || usage.input.is_some() { input - cached } else { 0 };
        let context = input.saturating_add(output / 2);
        let cost_ms = replica.hardware.cost.cost_ms(new, cached, output, context);
        let real = work_of(&replica.hardware, cost_ms);
        let Toll { class, tenant, work, held, .. } = booking.toll;
        let tokens = u64::from(input) + u64::from(output);
        self.hold.line.settle(class, tenant, work, real);
        if let Some(held) = held {
            self.hold.contracts.account(tenant).settle(held, real, tokens);
        }
        self.hold.gate.on_ended(now, booking.key, tokens);
        if usage.output.is_some() {
            self.hold.knees.learn(input, output);
        }
    }

    /// Gives back what was reserved for a request that failed everywhere.
    pub(super) fn hold_on_unserved(&mut self, now: Moment, booking: &Booking) {
        self.hold.refund(&booking.toll);
        self.hold.line.settle(
            booking.toll.class,
            booking.toll.tenant,
            booking.toll.work,
            Work::ZERO,
        );
        self.hold.gate.on_ended(now, booking.key, 0);
    }

    /// Counts what a stream has used by now against its contract.
    pub(super) fn hold_on_streamed(&mut self, request: RequestId, output: u32) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let Some(replica) = self.fleet.get(booking.replica) else { return };
        let account = &booking.account;
        // Only of a stream is the first byte the first token.
        if let (0, Some(first)) = (account.streamed_tokens, account.first) {
            let taken_ms = first.at.since(account.sent_at).as_secs_f64() * 1e3;
            self.hold.knees.on_first_token(replica, account.sent_at, taken_ms, account.ttft_ms);
        }
        let Some(held) = &mut booking.toll.held else { return };
        let prompt = booking.outline.prompt_tokens;
        let cached = booking.account.cached_tokens.min(prompt);
        let cost = &replica.hardware.cost;
        let cost_ms = cost.cost_ms(prompt - cached, cached, output, prompt + output / 2);
        let work = work_of(&replica.hardware, cost_ms);
        let tokens = u64::from(prompt) + u64::from(output);
        self.hold.contracts.account(booking.toll.tenant).flow(held, work, tokens);
    }

    /// Learns how much the fleet can do and hold, now that it changed or may have.
    pub(super) fn measure_fleet(&mut self) {
        let there = || self.takers().filter(|it| !it.leaving);
        let capacity: f64 = there().map(|it| it.hardware.capacity_mu_per_min).sum();
        let told: Vec<u64> = there().filter_map(|it| it.hearsay.report()?.kv_tokens_max).collect();
        // Those that do not tell are taken to be like those that do.
        let count = u64::try_from(told.len()).unwrap_or(0);
        let all = u64::try_from(there().count()).unwrap_or(0);
        let kv_tokens = told.iter().sum::<u64>() * all / count.max(1);
        self.hold.on_fleet(Work::from_mu(capacity), (0 < count).then_some(kv_tokens));
    }

    /// Has the policy choose among those with room, and books it; gives back what was reserved where
    /// nobody can take it.
    fn place(
        &mut self,
        now: Moment,
        request: RequestId,
        parked: Parked,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let limit = self.hold.headroom.limit(parked.toll.class.index());
        let limit = match parked.toll.held {
            Some(held) if held.usage == Use::BestEffort => limit.times(IDLE_PART),
            Some(_) | None => limit,
        };
        let ask = parked.ask(now);
        let fills = std::mem::take(&mut self.hold.fills);
        let home = parked.home;
        let chosen = self.pick_among(&ask, &[], |it| {
            let limit = if Some(it.id) == home { limit.times(HOME_PART) } else { limit };
            // Both are in the order of the fleet.
            let fill = fills.binary_search_by_key(&it.id, |fill| fill.id);
            fill.is_ok_and(|at| limit.admits(&fills[at]))
        });
        self.hold.fills = fills;
        let Some(replica) = chosen else {
            self.hold.refund(&parked.toll);
            return Err(self.nobody(now));
        };
        self.send(now, request, parked.booking(replica), actions);
        Ok(())
    }

    /// Tells whether any replica may take the request at all, whether or not it has room.
    fn is_anybody_there(&mut self, now: Moment, arrival: &Arrival) -> bool {
        let ask = Ask { now, key: arrival.key, outline: &arrival.outline, first_token: None };
        self.could_pick(&ask)
    }

    /// Tells whether there is capacity that nobody wants.
    fn is_idle(&self, now: Moment, class: usize) -> bool {
        let limit = self.hold.headroom.limit(class).times(IDLE_PART);
        let is_idle = |it: &Replica| it.admits(now) && limit.admits(&self.fill(now, it));
        self.hold.line.is_empty() && self.takers().any(is_idle)
    }

    fn fill(&self, now: Moment, replica: &Replica) -> Fill {
        Fill {
            id: replica.id,
            level: self.hold.knees.fill(now, replica),
            wait_ms: knee::wait_ms(now, replica),
        }
    }

    /// Notes how full every replica is, for the choice of who goes next.
    fn look_around(&mut self, now: Moment) {
        let mut fills = std::mem::take(&mut self.hold.fills);
        self.fills(now, &mut fills);
        self.hold.fills = fills;
        self.hold.look(now);
    }

    fn fills(&self, now: Moment, into: &mut Vec<Fill>) {
        // Where nobody is held, everybody has room.
        let free = |it: &Replica| Fill { id: it.id, level: 0.0, wait_ms: 0.0 };
        let fill = |it: &Replica| {
            if self.settings.line.holds { self.fill(now, it) } else { free(it) }
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

    /// Works out what a request will cost, where its cache is and by when it must go.
    fn park(&mut self, now: Moment, arrival: Arrival) -> Parked {
        let Arrival { key, outline, extent, claim, .. } = arrival;
        let home = self.policy.keeps_sessions().then(|| self.sessions.home(now, key)).flatten();
        let home = home.filter(|it| self.fleet.get(*it).is_some_and(|it| it.admits(now)));
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
        let decode_ms = cost.decode_ms(output, prompt.saturating_add(output / 2));
        let classes = &self.settings.line.classes;
        let class = claim.class.unwrap_or(classes.default_id());
        let first_token = classes.get(class).first_token;
        let toll = Toll {
            class,
            first_token,
            tenant: claim.tenant,
            weight: claim.weight,
            work: work_of(&hardware, prefill_ms + decode_ms),
            tokens: u64::from(prompt) + u64::from(output),
            is_long: self.hold.headroom.is_long(class.index(), prefill_ms),
            latest: hold::latest_start(&claim, prefill_ms, &hardware, output),
            target: first_token.map(|it| hold::before(now + it, prefill_ms + hardware.overhead_ms)),
            bytes: claim.bytes,
            held: None,
        };
        Parked { key, outline, extent, home, admission, toll }
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
    fn turn_away(&mut self, ticket: &Ticket, refusal: Refusal, actions: &mut Vec<Action>) {
        if let Some(parked) = self.hold.parked.swap_remove(&ticket.request) {
            self.hold.refund(&parked.toll);
        }
        actions.push(Action::Refuse { request: ticket.request, refusal });
    }

    /// Tells whether somebody waits who could go.
    pub(super) fn holds_in_vain(&self, now: Moment) -> bool {
        let mut fills = Vec::new();
        self.fills(now, &mut fills);
        let scene = Scene { fills: &fills, ..self.hold.scene() };
        self.hold.parked.values().any(|it| scene.is_open(it.lane(), false))
    }
}

/// Turns time of one class of replicas into work.
fn work_of(hardware: &Hardware, cost_ms: f64) -> Work {
    Work::from_mu(cost_ms / 60_000.0 * hardware.capacity_mu_per_min)
}

#[cfg(test)]
mod tests;
