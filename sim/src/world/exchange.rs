//! Routers tell each other what they do, with the messages and the protocol that serve: what a brain has to tell is
//! written into frames, is under way for some time, and is read at the other end. This room only carries the frames,
//! loses some where it is told to, and all of them between routers that are apart.

use cleave_core::brain::{Event, Telling};
use cleave_core::cluster::{Election, Hello, Link, LinkEvent, VERSION, VERSION_MIN};
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
    connection: u64,
    frame: Vec<u8>,
}

impl World {
    /// Lets the routers meet.
    pub(super) fn start_exchange(&mut self) {
        if self.exchanges() {
            let older = self.settings.exchange.map_or(0, |it| it.older);
            self.routers.iter_mut().take(older).for_each(|it| it.is_older = true);
            self.connect();
            self.heap.push(Moment::ZERO + BEAT, Happening::Exchange);
        }
    }

    fn exchanges(&self) -> bool {
        self.settings.exchange.is_some() && 1 < self.routers.len()
    }

    /// Makes links between all routers that have none and can reach each other.
    fn connect(&mut self) {
        for one in 0..self.routers.len() {
            for other in 0..one {
                let has = |at: usize, peer| self.routers[at].links.contains_key(&peer);
                if has(one, other) || has(other, one) || self.is_cut(one, other) {
                    continue;
                }
                self.connections += 1;
                for (at, peer) in [(one, other), (other, one)] {
                    let it = &mut self.routers[at];
                    let version = VERSION - u32::from(it.is_older);
                    let (version_min, router) = (VERSION_MIN, it.id);
                    it.connections.insert(peer, self.connections);
                    let hello = Hello { version, version_min, router, address: String::new() };
                    it.links.insert(peer, Link::new(self.now, hello));
                }
            }
        }
        (0..self.routers.len()).for_each(|it| self.flush(it));
    }

    fn is_cut(&self, one: usize, other: usize) -> bool {
        self.routers[one].is_apart || self.routers[other].is_apart
    }

    /// Keeps a router from all others, or lets it reach them again.
    pub(super) fn set_apart(&mut self, router: usize, is_apart: bool) {
        self.routers[router].is_apart = is_apart;
    }

    /// Lets a router that was started again meet the others, which notice that it was gone.
    pub(super) fn reconnect(&mut self, router: usize) {
        if !self.exchanges() {
            return;
        }
        for other in (0..self.routers.len()).filter(|it| *it != router) {
            self.part(other, router);
        }
        self.connect();
    }

    /// Breaks all connections of a router. It notices, and each of the others does at once or by the silence.
    pub(super) fn hang_up(&mut self, router: usize) {
        if !self.exchanges() {
            return;
        }
        let peers: Vec<usize> = self.routers[router].links.keys().copied().collect();
        for peer in peers {
            self.part(router, peer);
            if self.chance.random_bool(0.5) {
                self.part(peer, router);
            }
        }
        self.connect();
    }

    /// Ends the link of a router to another one, which it takes for lost.
    fn part(&mut self, router: usize, peer: usize) {
        let link = self.routers[router].links.remove(&peer);
        if let Some(peer) = link.and_then(|it| it.peer().map(|it| it.router)) {
            self.tell(router, Event::Parted { router: peer, is_lost: true });
            self.elect(router, |it| it.on_parted(peer, false));
        }
    }

    /// Takes in what a router learned of the others, and tells them what it sees and its brain whether it leads.
    fn elect(&mut self, router: usize, change: impl FnOnce(&mut Election)) {
        let it = &mut self.routers[router];
        let (led, seen) = (it.election.leads(), it.election.view());
        change(&mut it.election);
        let view = it.election.view();
        if view != seen {
            it.links.values_mut().for_each(|link| link.tell_view(view.clone()));
        }
        let leads = it.election.leads();
        if leads != led {
            self.tell(router, Event::Elected { leads });
        }
    }

    /// Sends what the brain of a router has to tell.
    pub(super) fn share(&mut self, router: usize) {
        let it = &mut self.routers[router];
        if it.links.is_empty() {
            // There is none to tell; one that comes is told everything.
            it.brain.take_news();
            return;
        }
        let told = it.brain.take_news();
        for Telling { to, news } in told {
            let news = [news];
            for link in it.links.values_mut() {
                let peer = link.peer().map(|it| it.router);
                if to.is_none() || to == peer {
                    link.tell(self.now, POOL, &news);
                }
            }
        }
        self.flush(router);
    }

    /// Sends what has waited for more to go with it.
    pub(super) fn send_waiting(&mut self, router: usize) {
        if self.routers[router].send_at <= self.now {
            self.routers[router].send_at = Moment::MAX;
            self.flush(router);
        }
    }

    /// Puts what links have to send now on its way, and notes when the rest is to go.
    fn flush(&mut self, router: usize) {
        let Some(exchange) = self.settings.exchange else { return };
        let from = self.routers[router].id;
        for other in (0..self.routers.len()).filter(|it| *it != router) {
            let (to, is_cut) = (self.routers[other].id, self.is_cut(router, other));
            while let Some(link) = self.routers[router].links.get_mut(&other)
                && let Some(frame) = link.take(self.now)
            {
                let is_met = link.peer().is_some();
                // Without its hello there is no connection.
                let is_lost =
                    is_met && 0.0 < exchange.loss && self.chance.random_bool(exchange.loss);
                if is_lost || is_cut {
                    continue;
                }
                let connection = self.routers[router].connections.get(&other).copied();
                let connection = connection.unwrap_or_default();
                let letter = Letter { from: router, ids: (from, to), connection, frame };
                self.routers[other].letters.push_back(letter);
                self.heap.push(self.now + exchange.delay, Happening::Heard { router: other });
            }
        }
        let it = &mut self.routers[router];
        let due = it.links.values().map(Link::due).min().unwrap_or(Moment::MAX);
        if due < it.send_at {
            it.send_at = due;
            self.heap.push(due, Happening::Send { router });
        }
    }

    /// Looks after all links.
    pub(super) fn exchange(&mut self) {
        self.compare_books();
        for router in 0..self.routers.len() {
            let peers: Vec<usize> = self.routers[router].links.keys().copied().collect();
            for peer in peers {
                let mut events = Vec::new();
                if let Some(link) = self.routers[router].links.get_mut(&peer) {
                    link.on_time(self.now, &mut events);
                }
                self.on_link(router, peer, events);
            }
            self.flush(router);
        }
        self.connect();
        self.heap.push(self.now + BEAT, Happening::Exchange);
    }

    /// Hands a frame to the router it was sent to.
    pub(super) fn deliver_letter(&mut self, router: usize) {
        let Some(letter) = self.routers[router].letters.pop_front() else { return };
        let Letter { from, ids, connection, frame } = letter;
        let is_same = self.routers[router].connections.get(&from) == Some(&connection);
        if ids != (self.routers[from].id, self.routers[router].id) || !is_same {
            // One of them was started again since, or the connection is gone.
            return;
        }
        let mut events = Vec::new();
        let Some(link) = self.routers[router].links.get_mut(&from) else { return };
        if let Err(error) = link.on_frame(self.now, &frame, &mut events) {
            self.broken = self.broken.take().or(Some(format!("a frame that is none: {error}")));
        }
        self.on_link(router, from, events);
        self.flush(router);
    }

    /// Does what the link of a router to another one asks for.
    fn on_link(&mut self, router: usize, peer: usize, events: Vec<LinkEvent>) {
        let id = self.routers[peer].id;
        for event in events {
            match event {
                LinkEvent::Heard { news, is_whole, .. } => {
                    self.tell(router, Event::Heard { router: id, news, is_whole });
                }
                LinkEvent::Lacks => {
                    let it = &mut self.routers[router];
                    let whole = it.brain.whole(self.now);
                    if let Some(link) = it.links.get_mut(&peer) {
                        link.tell_whole(&[(POOL, whole)]);
                    }
                }
                LinkEvent::Met(_) => {
                    self.elect(router, |it| it.on_met(id));
                    let it = &mut self.routers[router];
                    let view = it.election.view();
                    it.links
                        .get_mut(&peer)
                        .into_iter()
                        .for_each(|link| link.tell_view(view.clone()));
                }
                LinkEvent::View(view) => self.elect(router, |it| it.on_view(id, view)),
                LinkEvent::Silent => self.part(router, peer),
                LinkEvent::Unfit(_)
                | LinkEvent::Members(_)
                | LinkEvent::Left
                | LinkEvent::Asked { .. }
                | LinkEvent::Answered { .. } => {}
            }
        }
    }
}
