//! Whose turn is it? Where several routers have a line, each of them sees at the same moment that a replica has
//! room, and would fill it: together they would send several prompts where one was to go. So a replica
//! that gets room is offered to one router after the other, by lot: each draws how long it waits, the shorter
//! the more of what waits is its own, and those that come later have heard by then that the room is taken.
//! A router that is alone, or the only one with a line, draws nothing and waits for nothing.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxHashMap;

use crate::domain::{Moment, ReplicaId, span_of_ms};

use super::lanes::{Fill, Fills, Limit};

/// How long the first of the routers waits on average. Several times what news takes from one to the other, so
/// that two seldom go at once.
const FIRST_MS: f64 = 20.0;
/// No router waits longer than this many times as long, however little of the line is its own.
const WAIT_MAX: f64 = 50.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    At(Moment),
    Come,
}

#[derive(Debug)]
pub(super) struct RoomTurns {
    chance: Pcg64Mcg,
    /// The replicas that have room, as far as this router has seen.
    open: FxHashMap<ReplicaId, Turn>,
}

impl RoomTurns {
    pub(super) fn new(seed: u64) -> Self {
        Self { chance: Pcg64Mcg::seed_from_u64(seed), open: FxHashMap::default() }
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// Closes the replicas among `fills` with room whose turn has not come. `share` is this router's part of all
    /// that waits.
    pub(super) fn take(&mut self, now: Moment, limit: Limit, share: f64, fills: &mut [Fill]) {
        for fill in fills {
            if !limit.admits(fill) {
                self.open.remove(&fill.id);
                continue;
            }
            let chance = &mut self.chance;
            let turn =
                self.open.entry(fill.id).or_insert_with(|| Turn::At(now + wait(share, chance)));
            match turn {
                Turn::At(at) if now < *at => fill.level = f64::INFINITY,
                Turn::At(_) => *turn = Turn::Come,
                Turn::Come => {}
            }
        }
    }

    /// Closes the same ones, without a draw.
    pub(super) fn close(&self, fills: &mut [Fill]) {
        let not_come = |it: &&mut Fill| self.open.get(&it.id) != Some(&Turn::Come);
        fills.iter_mut().filter(not_come).for_each(|it| it.level = f64::INFINITY);
    }

    /// Forgets replicas that take nothing.
    pub(super) fn keep(&mut self, open: &Fills) {
        let is_there = |id: &ReplicaId| open.0.binary_search_by_key(id, |it| it.id).is_ok();
        self.open.retain(|id, _| is_there(id));
    }

    /// Ends a turn: a request was sent to this replica.
    pub(super) fn on_sent(&mut self, replica: ReplicaId) {
        self.open.remove(&replica);
    }

    /// Says when the next turn comes.
    pub(super) fn next(&self) -> Option<Moment> {
        let at = |it: &Turn| if let Turn::At(at) = it { Some(*at) } else { None };
        self.open.values().filter_map(at).min()
    }
}

/// Draws how long a router waits that has this share of the line. Of several such draws the shortest is as often
/// a router's as its share says.
fn wait(share: f64, chance: &mut Pcg64Mcg) -> Duration {
    let lot: f64 = chance.random();
    span_of_ms(FIRST_MS * (-(1.0 - lot).ln() / share.max(1e-9)).min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { fill: 1.0, ..Limit::NONE };

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    fn fill(level: f64) -> Fill {
        Fill { level, ..Fill::empty(ReplicaId(0)) }
    }

    /// Says after how many milliseconds a replica that has room is open to a router.
    fn opens(turns: &mut RoomTurns, from: u64, share: f64) -> u64 {
        let is_open = |turns: &mut RoomTurns, ms| {
            let mut fills = [fill(0.5)];
            turns.take(at(ms), LIMIT, share, &mut fills);
            let mut seen = [fill(0.5)];
            turns.close(&mut seen);
            assert_eq!(LIMIT.admits(&fills[0]), LIMIT.admits(&seen[0]));
            LIMIT.admits(&fills[0])
        };
        (from..from + 10_000).find(|ms| is_open(turns, *ms)).unwrap() - from
    }

    #[test]
    fn the_router_with_more_of_the_line_is_more_often_first() {
        let (mut most, mut least) = (RoomTurns::new(1), RoomTurns::new(2));
        let mut firsts = 0;
        for round in 0..400 {
            let from = round * 10_000;
            firsts += u32::from(opens(&mut most, from, 0.75) < opens(&mut least, from, 0.25));
            most.on_sent(ReplicaId(0));
            least.on_sent(ReplicaId(0));
        }
        assert!((270..=330).contains(&firsts), "{firsts} of 400");
    }

    #[test]
    fn a_turn_that_has_come_lasts_until_it_is_used_or_the_room_is_gone() {
        let mut turns = RoomTurns::new(3);
        let taken = opens(&mut turns, 0, 0.5);
        assert_eq!(turns.next(), None, "nothing more is drawn");
        assert_eq!(opens(&mut turns, taken + 5_000, 0.5), 0);
        turns.take(at(20_000), LIMIT, 0.5, &mut [fill(1.0)]);
        assert!(0 < opens(&mut turns, 20_001, 0.5), "another request went there");
        turns.keep(&Fills(Vec::new()));
        assert!(turns.open.is_empty(), "the replica takes nothing");
    }

    #[test]
    fn a_router_with_hardly_anything_waits_a_second_at_most() {
        let mut turns = RoomTurns::new(4);
        assert!(opens(&mut turns, 0, 0.0) <= 1_000);
    }
}
