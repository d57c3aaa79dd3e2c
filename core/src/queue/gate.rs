//! Sessions are admitted by the KV they will hold. While the working sets of the living fit the
//! fleet's memory, every later turn finds its cache; beyond that every session evicts every other, and
//! goodput collapses. So new sessions wait while it is full, and later turns of the living always
//! pass. A session lives from its first turn until it has been idle for longer than its kind thinks.
//!
//! Where the fleet's memory is unknown or ample the gate is open and has no effect. So it is where the fleet
//! has the time to compute all that comes again, cached or not.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, SliceKey, float, whole};

use super::cold_demand::ColdDemand;
use super::think_times::ThinkTimes;
use super::work::Work;

/// A fleet whose turns in flight hold less than this part of its KV stands idle.
const IDLE_PART: u64 = 16;
/// New sessions wait only where arrivals would cost this many times what the fleet can do, if nothing were
/// cached. At 1, conversations past their knee wait although their cache saves little.
const COLD_FACTOR: f64 = 1.5;

/// How the gate is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateSettings {
    /// The share of the fleet's KV that the living may hold before new sessions wait.
    pub kv_share: f64,
    /// How many sessions are told apart; a place takes about a hundred bytes.
    pub sessions_max: usize,
}

impl Default for GateSettings {
    fn default() -> Self {
        Self { kv_share: 1.0, sessions_max: 65_536 }
    }
}

/// Whether a request may be sent as far as its session goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAnswer {
    /// Its session lives.
    Live,
    /// It begins a session, and there is room.
    Fresh,
    /// It begins a session, and there is none.
    Wait,
}

/// The gate at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateSnapshot {
    pub sessions: usize,
    /// What the living hold, those that may not come back at their odds.
    pub tokens: u64,
    /// What they may hold; nothing when the fleet's memory is not known.
    pub tokens_max: Option<u64>,
}

#[derive(Debug)]
pub struct Gate {
    settings: GateSettings,
    living: IndexMap<SliceKey, Live, FxBuildHasher>,
    /// Those that are idle, by when they are given up.
    idle: BTreeSet<(Moment, SliceKey)>,
    /// Summed over the living.
    counted: u64,
    /// Summed over those with a turn in flight.
    flowing: u64,
    tokens_max: Option<u64>,
    capacity_per_min: Work,
    demand: ColdDemand,
    think_times: ThinkTimes,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    /// The context of its latest turn.
    tokens: u64,
    /// What is counted of it.
    counted: u64,
    /// What is counted of its turns in flight.
    flowing: u64,
    turns: u32,
    in_flight: u32,
    idle_since: Moment,
    leaves_at: Moment,
}

impl Gate {
    pub fn new(settings: GateSettings) -> Self {
        Self {
            settings,
            living: IndexMap::default(),
            idle: BTreeSet::new(),
            counted: 0,
            flowing: 0,
            tokens_max: None,
            capacity_per_min: Work::ZERO,
            demand: ColdDemand::default(),
            think_times: ThinkTimes::default(),
        }
    }

    /// Takes in how many tokens the KV of all replicas holds together, as far as they tell, and what they can
    /// do in a minute.
    pub fn on_room(&mut self, kv_tokens: Option<u64>, capacity_per_min: Work) {
        self.capacity_per_min = capacity_per_min;
        let share = self.settings.kv_share.clamp(0.0, 1.0);
        self.tokens_max = kv_tokens.map(|it| whole(float(it) * share));
    }

    /// Takes in what a request that arrives would cost with nothing of it cached.
    pub fn on_arrival(&mut self, now: Moment, cold: Work) {
        self.demand.on_arrival(now, cold);
    }

    /// Says whether a turn of this session may be sent now.
    pub fn ask(&self, key: SliceKey) -> GateAnswer {
        if self.living.contains_key(&key) {
            GateAnswer::Live
        } else if self.is_open() {
            GateAnswer::Fresh
        } else {
            GateAnswer::Wait
        }
    }

    /// Says whether a new session may begin: the living sessions leave some room, the fleet could compute
    /// everything again, or it has next to nothing to do, whichever sessions may come back to it. How much
    /// it will need is not asked, or the largest would never be let in.
    pub fn is_open(&self) -> bool {
        if self.demand.mu_per_min() < COLD_FACTOR * self.capacity_per_min.as_mu() {
            return true;
        }
        let is_idle = |max: u64| self.flowing < max / IDLE_PART || self.flowing == 0;
        self.tokens_max.is_none_or(|max| self.counted < max || is_idle(max))
    }

    /// Says how much context a session had at its latest turn; nothing for one that does not live.
    pub fn tokens_of(&self, key: SliceKey) -> u64 {
        self.living.get(&key).map_or(0, |it| it.tokens)
    }

    /// Notes that a turn was sent.
    pub fn on_sent(&mut self, now: Moment, key: SliceKey, tokens: u64) {
        self.make_room(key);
        let fresh = || Live {
            tokens: 0,
            counted: 0,
            flowing: 0,
            turns: 0,
            in_flight: 0,
            idle_since: now,
            leaves_at: now,
        };
        let live = self.living.entry(key).or_insert_with(fresh);
        if live.in_flight == 0 && 0 < live.turns {
            self.idle.remove(&(live.leaves_at, key));
            self.think_times.on_back(live.turns, now.since(live.idle_since));
        }
        live.turns = live.turns.saturating_add(1);
        live.in_flight += 1;
        live.tokens = live.tokens.max(tokens);
        self.counted = self.counted - live.counted + live.tokens;
        self.flowing = self.flowing - live.flowing + live.tokens;
        (live.counted, live.flowing) = (live.tokens, live.tokens);
    }

    /// Notes that a turn ended with a context of `tokens`.
    pub fn on_ended(&mut self, now: Moment, key: SliceKey, tokens: u64) {
        let leaves_at = now + self.think_times.leave_after();
        let Some(live) = self.living.get_mut(&key).filter(|it| 0 < it.in_flight) else { return };
        live.in_flight -= 1;
        live.tokens = tokens;
        if live.in_flight == 0 {
            (live.idle_since, live.leaves_at) = (now, leaves_at);
            self.idle.insert((leaves_at, key));
        }
        let wanted = if live.in_flight == 0 {
            self.think_times.expected(live.turns, tokens)
        } else {
            tokens
        };
        let flowing = if live.in_flight == 0 { 0 } else { tokens };
        self.counted = self.counted - live.counted + wanted;
        self.flowing = self.flowing - live.flowing + flowing;
        (live.counted, live.flowing) = (wanted, flowing);
    }

    /// Gives up sessions that have been idle for too long; tells whether any left.
    pub fn on_time(&mut self, now: Moment) -> bool {
        self.demand.on_time(now);
        let before = self.living.len();
        while let Some((_, key)) = self.idle.first().copied().filter(|it| it.0 <= now) {
            self.leave(key);
        }
        self.living.len() < before
    }

    /// Lists the living: the context of each, and what of it is counted.
    pub fn living(&self) -> impl Iterator<Item = (SliceKey, u64, u64)> + '_ {
        self.living.iter().map(|(key, it)| (*key, it.tokens, it.counted))
    }

    pub fn snapshot(&self) -> GateSnapshot {
        let (sessions, tokens_max) = (self.living.len(), self.tokens_max);
        GateSnapshot { sessions, tokens: self.counted, tokens_max }
    }

    fn make_room(&mut self, key: SliceKey) {
        if self.living.len() < self.settings.sessions_max.max(1) || self.living.contains_key(&key) {
            return;
        }
        // The session that would leave soonest leaves now. Where all are busy, one is no longer
        // told apart.
        let soonest = self.idle.first().map(|it| it.1);
        let leaves = soonest.or_else(|| self.living.first().map(|it| *it.0));
        if let Some(leaves) = leaves {
            self.leave(leaves);
        }
    }

    fn leave(&mut self, key: SliceKey) {
        let Some(live) = self.living.swap_remove(&key) else { return };
        self.idle.remove(&(live.leaves_at, key));
        self.counted -= live.counted;
        self.flowing -= live.flowing;
        self.think_times.on_gone(live.turns);
    }
}
