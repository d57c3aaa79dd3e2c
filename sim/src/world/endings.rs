//! How a request ends: served, lost with its replica, given up by a timeout, or withdrawn. A try that
//! fails is told to the brain, which says where else.

use cleave_core::brain::{Event, Failure, Outcome};
use cleave_core::domain::{RequestId, Usage};

use super::World;
use super::flight::Flight;
use super::replica::Standing;
use crate::measure::{End, Exposure};

impl World {
    /// Closes the books on a request.
    pub(super) fn end(&mut self, id: u64, end: End) {
        let Some(mut flight) = self.flights.remove(&id) else { return };
        let guilty = self.poison.is_some_and(|it| it.tenant == flight.tenant);
        flight.exposure = match flight.exposure {
            _ if guilty || !self.faulted => Exposure::None,
            Exposure::None if matches!(end, End::Refused { .. }) => Exposure::Struck,
            Exposure::None => Exposure::Bystander,
            exposed @ (Exposure::Bystander | Exposure::Struck) => exposed,
        };
        if let Some(pooled) = &mut self.pooled {
            pooled.on_end(id);
        }
        self.measures.on_end(self.now, flight.ended(end));
        self.ended.push(flight.ticket);
    }

    /// The replica can no longer be reached: a try that has shown nothing goes elsewhere, an answer
    /// under way is cut.
    pub(super) fn lose(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.replica = None;
        let (router, request) = (flight.router, RequestId(id));
        if self.pooled.is_some() {
            self.end(id, End::Refused { reason: "timeout" });
        } else if !flight.has_shown() {
            flight.first_token = None;
            self.tell(router, Event::Failed { request, failure: Failure::Lost });
        } else {
            self.tell(
                router,
                Event::Ended { request, outcome: Outcome::Cut, usage: Usage::default() },
            );
            self.end(id, End::Cut);
        }
    }

    /// Does what a router does that is told to wait no more.
    pub(super) fn give_up_try(&mut self, id: u64, replica: usize) {
        let Some(flight) = self.flights.get(&id).filter(|it| it.replica == Some(replica)) else {
            return;
        };
        let (router, started) = (flight.router, flight.has_shown());
        self.replicas[replica].engine.cancel(id);
        if started {
            self.lose(id);
        } else if let Some(flight) = self.flights.get_mut(&id) {
            (flight.replica, flight.first_token) = (None, None);
            let failure = Failure::Hung;
            self.tell(router, Event::Failed { request: RequestId(id), failure });
        }
    }

    /// Takes a request away from its replica before it is lost there.
    pub(super) fn withdraw(&mut self, id: u64) {
        if let Some(replica) = self.flights.get(&id).and_then(|it| it.replica) {
            self.replicas[replica].engine.cancel(id);
        }
        self.lose(id);
    }

    pub(super) fn expire_timer(&mut self) {
        let Some(timer) = self.timers.pop_front() else { return };
        self.now = timer.at;
        self.withdraw(timer.request);
    }

    /// Forgets timers of requests that have shown something, moved on or ended.
    pub(super) fn drop_old_timers(&mut self) {
        while let Some(timer) = self.timers.front() {
            let waits =
                |it: &Flight| it.tries == timer.tries && !it.has_shown() && it.replica.is_some();
            if self.flights.get(&timer.request).is_some_and(waits) {
                return;
            }
            self.timers.pop_front();
        }
    }

    /// Gives up a stream whose replica has hung for as long as the router waits.
    pub(super) fn give_up(&mut self, id: u64, tries: u32) {
        let Some(flight) = self.flights.get(&id).filter(|it| it.tries == tries) else { return };
        let Some(replica) = flight.replica else { return };
        if let Standing::Hung { since } = self.replicas[replica].standing
            && since + self.settings.timeouts.idle <= self.now
        {
            self.withdraw(id);
        }
    }
}
