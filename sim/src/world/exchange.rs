//! Routers tell each other what they do, with the messages and the protocol that serve: what a brain has to tell is
//! written into frames, is under way for some time, and is read at the other end. This room only carries the frames,
//! and loses some where it is told to.

use cleave_core::brain::{Event, Telling};
use cleave_core::cluster::{Hello, Link, LinkEvent, VERSION, VERSION_MIN};
use cleave_core::domain::{Moment, RouterId};
use rand::RngExt as _;
use std::time::Duration;

use super::World;
use super::heap::Happening;

/// The one pool of a world.
const POOL: u64 = 0;
/// How often links are looked after.
const BEAT: Duration = Duration::from_millis(100);

/// A frame under way from one router to another, by the ids they had then.
#[derive(Debug)]
pub(super) struct Letter {
    from: usize,
    ids: (RouterId, RouterId),
    frame: Vec<u8>,
}

impl World {
    /// Lets the routers meet.
    pub(super) fn start_exchange(&mut self) {
        if self.settings.exchange.is_some() && 1 < self.routers.len() {
            (0..self.routers.len()).for_each(|it| self.connect(it));
            self.heap.push(Moment::ZERO + BEAT, Happening::Exchange);
        }
    }

    /// Makes the links of a router, and those of all others to it.
    fn connect(&mut self, router: usize) {
        for other in (0..self.routers.len()).filter(|it| *it != router) {
            for (at, peer) in [(router, other), (other, router)] {
                let it = &mut self.routers[at];
                let (version, version_min, router) = (VERSION, VERSION_MIN, it.id);
                let hello = Hello { version, version_min, router, address: String::new() };
                it.links.insert(peer, Link::new(self.now, hello));
            }
        }
        (0..self.routers.len()).for_each(|it| self.flush(it));
    }

    /// Lets a router that was started again meet the others, which notice that it was gone.
    pub(super) fn reconnect(&mut self, router: usize, before: RouterId) {
        if self.settings.exchange.is_none() || self.routers.len() < 2 {
            return;
        }
        self.connect(router);
        for other in (0..self.routers.len()).filter(|it| *it != router) {
            self.tell(other, Event::Parted { router: before, is_lost: true });
        }
    }

    /// Sends what the brain of a router has to tell.
    pub(super) fn share(&mut self, router: usize) {
        let it = &mut self.routers[router];
        if it.links.is_empty() {
            return;
        }
        let told = it.brain.take_news();
        for Telling { to, news } in told {
            let news = [news];
            for link in it.links.values_mut() {
                let peer = link.peer().map(|it| it.router);
                if to.is_none() || to == peer {
                    link.tell(POOL, &news);
                }
            }
        }
        self.flush(router);
    }

    /// Puts what links have to send on its way.
    fn flush(&mut self, router: usize) {
        let Some(exchange) = self.settings.exchange else { return };
        let from = self.routers[router].id;
        for other in (0..self.routers.len()).filter(|it| *it != router) {
            let to = self.routers[other].id;
            while let Some(link) = self.routers[router].links.get_mut(&other)
                && let Some(frame) = link.take(self.now)
            {
                let is_met = link.peer().is_some();
                // Without its hello there is no connection.
                if is_met && 0.0 < exchange.loss && self.chance.random_bool(exchange.loss) {
                    continue;
                }
                let letter = Letter { from: router, ids: (from, to), frame };
                self.routers[other].letters.push_back(letter);
                self.heap.push(self.now + exchange.delay, Happening::Heard { router: other });
            }
        }
    }

    /// Looks after all links.
    pub(super) fn exchange(&mut self) {
        for router in 0..self.routers.len() {
            let mut events = Vec::new();
            let it = &mut self.routers[router];
            it.links.values_mut().for_each(|link| link.on_time(self.now, &mut events));
            self.flush(router);
        }
        self.heap.push(self.now + BEAT, Happening::Exchange);
    }

    /// Hands a frame to the router it was sent to.
    pub(super) fn deliver_letter(&mut self, router: usize) {
        let Some(Letter { from, ids, frame }) = self.routers[router].letters.pop_front() else {
            return;
        };
        if ids != (self.routers[from].id, self.routers[router].id) {
            // One of them was started again since, and the connection is gone.
            return;
        }
        let mut events = Vec::new();
        let Some(link) = self.routers[router].links.get_mut(&from) else { return };
        if let Err(error) = link.on_frame(self.now, &frame, &mut events) {
            self.broken = self.broken.take().or(Some(format!("a frame that is none: {error}")));
        }
        for event in events {
            match event {
                LinkEvent::Heard { news, is_whole, .. } => {
                    self.tell(router, Event::Heard { router: ids.0, news, is_whole });
                }
                LinkEvent::Lacks => {
                    let it = &mut self.routers[router];
                    let whole = it.brain.whole(self.now);
                    if let Some(link) = it.links.get_mut(&from) {
                        link.tell_whole(&[(POOL, whole)]);
                    }
                }
                LinkEvent::Met(_)
                | LinkEvent::Unfit(_)
                | LinkEvent::Members(_)
                | LinkEvent::Left
                | LinkEvent::Silent => {}
            }
        }
        self.flush(router);
    }
}
