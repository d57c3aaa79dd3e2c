//! Routers tell each other what they have booked where, now and then, and hear it some time later.
//! What they do with it is the brain's business; a single router has no peer to tell.

use cleave_core::brain::{Event, HeardLoad};
use cleave_core::domain::{Moment, RouterId};
use cleave_core::fleet::Booked;

use super::World;
use super::heap::Happening;
use super::router::offset;

/// What one router said of its books at one moment.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    from: RouterId,
    taken_at: Moment,
    loads: Vec<HeardLoad>,
}

impl World {
    /// Lets a router begin to tell the others.
    pub(super) fn start_exchange(&mut self, router: usize) {
        if let Some(exchange) = self.settings.exchange.filter(|_| 1 < self.settings.routers) {
            let at = Moment::ZERO + offset(exchange.interval, router, self.settings.routers);
            self.heap.push(at, Happening::Exchange { router });
        }
    }

    /// Sends what a router has booked to all others.
    pub(super) fn exchange(&mut self, router: usize) {
        let Some(exchange) = self.settings.exchange else { return };
        let sender = &self.routers[router];
        let loads = sender.brain.load(self.now).into_iter().map(|it| HeardLoad {
            replica: it.id,
            booked: Booked { load: it.booked, in_flight: it.in_flight },
        });
        let letter = Letter { from: sender.id, taken_at: self.now, loads: loads.collect() };
        for other in (0..self.routers.len()).filter(|it| *it != router) {
            self.routers[other].letters.push_back(letter.clone());
            self.heap.push(self.now + exchange.delay, Happening::Heard { router: other });
        }
        self.heap.push(self.now + exchange.interval, Happening::Exchange { router });
    }

    pub(super) fn deliver_letter(&mut self, router: usize) {
        if let Some(Letter { from, taken_at, loads }) = self.routers[router].letters.pop_front() {
            self.tell(router, Event::Heard { router: from, taken_at, loads });
        }
    }
}
