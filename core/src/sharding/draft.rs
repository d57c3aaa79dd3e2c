//! The assignment while it is being planned: pieces that become slices, seats that stand for
//! replicas, and which seat is hottest. The phases change it only through the deeds here, which
//! keep the books of both sides.
//!
//! Load is counted as *lift*: what a piece adds to the utilisation of each of its holders,
//! `load / capacity of all holders`. Holders share a slice in proportion to their capacity, so the
//! lift is the same for all of them, and replicas of different size need no special case.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{Moment, Place};

use super::assignment::{Note, SliceReason};
use super::load::LoadMap;
use super::numbers::{at, count, short};
use super::rule::Bounds;
use super::settings::PlannerSettings;
use super::slice::Slice;

pub(super) const NONE: u32 = u32::MAX;

/// One replica.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) place: Place,
    pub(super) capacity: f64,
    pub(super) zone: u32,
    /// It held nothing before.
    pub(super) fresh: bool,
    pub(super) group: u32,
    /// Its utilisation: the lifts of all it holds.
    pub(super) used: f64,
    pub(super) pieces: Vec<u32>,
}

/// One slice to be.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) slice: Slice,
    pub(super) load: f64,
    pub(super) state: f64,
    pub(super) holders: Vec<u32>,
    /// Of all holders.
    pub(super) capacity: f64,
    pub(super) rule: u32,
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) alive: bool,
    pub(super) note: Note,
    /// What was done to it in this round.
    pub(super) why: Option<SliceReason>,
}

impl Piece {
    pub(super) fn lift(&self) -> f64 {
        if self.capacity <= 0.0 { 0.0 } else { self.load / self.capacity }
    }

    /// What it costs to take it from one of its holders.
    pub(super) fn price(&self) -> f64 {
        self.state / count(self.holders.len().max(1))
    }
}

/// A rule with its books; the first one is for keys that no rule is about.
#[derive(Debug)]
pub(super) struct Ruled {
    pub(super) bounds: Bounds,
    pub(super) whole: bool,
    pub(super) exclusive: bool,
    /// The group of seats its pieces may be on.
    pub(super) group: u32,
    /// The seats that hold any of it, and how many pieces; `None` when nothing bounds them
    /// together.
    pub(super) members: Option<BTreeMap<u32, u32>>,
}

/// Seats that share load among themselves: the common ones, or those of one exclusive rule.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) seats: Vec<u32>,
    pub(super) zones: usize,
    /// The utilisation that every seat would have if load were water.
    pub(super) mean: f64,
}

/// How often each deed was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanActions {
    pub split: u32,
    pub merged: u32,
    pub moved: u32,
    pub swapped: u32,
    pub filled: u32,
    pub replicated: u32,
    pub dereplicated: u32,
    pub placed: u32,
}

#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) map: &'a LoadMap,
    pub(super) settings: &'a PlannerSettings,
    pub(super) now: Moment,
    pub(super) seats: Vec<Seat>,
    pub(super) pieces: Vec<Piece>,
    pub(super) rules: Vec<Ruled>,
    pub(super) groups: Vec<Group>,
    /// Group, utilisation and seat, from cold to hot; empty until the phases begin to look.
    pub(super) order: BTreeSet<(u32, u64, u32)>,
    pub(super) holders_total: usize,
    pub(super) capacity_mean: f64,
    /// State that may still move by choice in this round.
    pub(super) budget: f64,
    pub(super) deeds: PlanActions,
}

impl Draft<'_> {
    /// How far from the mean of a group its seats may be.
    pub(super) fn band(&self, group: u32) -> f64 {
        // Beyond its capacity a fleet has other troubles than a few percent of it.
        self.settings.band * self.groups[at(group)].mean.max(1.0)
    }

    pub(super) fn group_of(&self, piece: u32) -> u32 {
        self.rules[at(self.pieces[at(piece)].rule)].group
    }

    /// Tells how many replicas a piece should and may have, as far as there are that many.
    pub(super) fn bounds_of(&self, piece: u32) -> (usize, usize) {
        let rule = &self.rules[at(self.pieces[at(piece)].rule)];
        let seats = self.groups[at(rule.group)].seats.len();
        let floor = at(rule.bounds.floor.max(1)).min(seats);
        (floor, at(rule.bounds.cap).min(seats).max(floor))
    }

    pub(super) fn holders_max(&self) -> usize {
        at(self.settings.slices_max.max(1)).saturating_mul(self.seats.len())
    }

    pub(super) fn is_splittable(&self, piece: u32) -> bool {
        let Piece { slice, rule, .. } = self.pieces[at(piece)];
        let last = self.grain_of(slice.high, rule);
        self.grain_of(slice.low, rule) != last && !self.rules[at(rule)].whole
    }

    /// Names the keys that `key` is never parted from, by their first one. A rule may part all.
    pub(super) fn grain_of(&self, key: u64, rule: u32) -> u64 {
        let bits = if rule == 0 { self.settings.grain_bits } else { 0 };
        let parted = u64::MAX.checked_shl(bits).unwrap_or(0);
        key & parted
    }

    /// Finds where to cut a piece so that the lower part carries about `share` of its load: between
    /// two grains, inside none.
    pub(super) fn cut(&self, piece: u32, share: f64) -> Option<u64> {
        let Piece { slice, rule, .. } = self.pieces[at(piece)];
        let key = self.map.cut(&slice, share)?;
        let border = self.grain_of(key, rule);
        if slice.low < border {
            return Some(border);
        }
        // The load is in the first grain; what is beside it can leave.
        let bits = if rule == 0 { self.settings.grain_bits } else { 0 };
        let above = border.checked_add(1_u64.checked_shl(bits)?)?;
        (above <= slice.high).then_some(above)
    }

    pub(super) fn is_cooling(&self, piece: u32) -> bool {
        let note = &self.pieces[at(piece)].note;
        note.since != 0
            && note.settled_at != Moment::ZERO
            && self.now.since(note.settled_at) < self.settings.cool_down
    }

    /// Tells whether a seat may become a holder of a piece, beside those that will.
    pub(super) fn allows(&self, piece: u32, taken: &[u32], seat: u32) -> bool {
        let it = &self.pieces[at(piece)];
        let rule = &self.rules[at(it.rule)];
        self.seats[at(seat)].group == rule.group
            && !it.holders.contains(&seat)
            && !taken.contains(&seat)
            && rule.members.as_ref().is_none_or(|members| {
                let new = taken.iter().filter(|it| !members.contains_key(it)).count();
                members.contains_key(&seat) || members.len() + new < at(rule.bounds.cap)
            })
    }

    /// As [`Self::allows`], when the piece leaves another seat for it; the zones its holders are
    /// in do not become fewer.
    pub(super) fn allows_instead(&self, piece: u32, from: u32, to: u32) -> bool {
        let it = &self.pieces[at(piece)];
        let rule = &self.rules[at(it.rule)];
        let fits = rule.members.as_ref().is_none_or(|members| {
            let leaves = usize::from(members.get(&from) == Some(&1));
            members.contains_key(&to) || members.len() < at(rule.bounds.cap).saturating_add(leaves)
        });
        if !fits || self.seats[at(to)].group != rule.group || it.holders.contains(&to) {
            return false;
        }
        let zone = |seat: u32| self.seats[at(seat)].zone;
        let others = || it.holders.iter().filter(|holder| **holder != from);
        zone(from) == zone(to)
            || others().all(|holder| zone(*holder) != zone(to))
            || others().any(|holder| zone(*holder) == zone(from))
    }

    /// Counts the holders of a piece, those to be included, in the zone of a seat.
    pub(super) fn in_zone_of(&self, piece: u32, taken: &[u32], seat: u32) -> usize {
        let zone = self.seats[at(seat)].zone;
        let holders = self.pieces[at(piece)].holders.iter().chain(taken);
        holders.filter(|it| self.seats[at(**it)].zone == zone).count()
    }

    /// Counts the holders of a piece in the zone that has the fewest; `None` where zones do not
    /// matter.
    pub(super) fn fewest_in_zone(&self, piece: u32, taken: &[u32]) -> Option<usize> {
        let zones = self.groups[at(self.group_of(piece))].zones;
        if zones < 2 {
            return None;
        }
        let holders = self.pieces[at(piece)].holders.iter().chain(taken);
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        holders.for_each(|it| *counts.entry(self.seats[at(*it)].zone).or_default() += 1);
        let fewest = counts.values().copied().min().unwrap_or(0);
        Some(if counts.len() < zones { 0 } else { fewest })
    }

    pub(super) fn add_holders(&mut self, piece: u32, seats: &[u32]) {
        self.lift_off(piece);
        for &seat in seats {
            self.hold(piece, seat);
        }
        self.lift_on(piece);
    }

    pub(super) fn drop_holder(&mut self, piece: u32, seat: u32) {
        self.lift_off(piece);
        self.unhold(piece, seat);
        self.lift_on(piece);
    }

    pub(super) fn replace_holder(&mut self, piece: u32, from: u32, to: u32) {
        self.lift_off(piece);
        self.unhold(piece, from);
        self.hold(piece, to);
        self.lift_on(piece);
        self.pieces[at(piece)].note.previous = Some(self.seats[at(from)].place);
    }

    /// Takes a piece's lift off its holders, so that they can change.
    fn lift_off(&mut self, piece: u32) {
        let lift = self.pieces[at(piece)].lift();
        for holder in 0..self.pieces[at(piece)].holders.len() {
            self.bump(self.pieces[at(piece)].holders[holder], -lift);
        }
    }

    fn lift_on(&mut self, piece: u32) {
        let it = &mut self.pieces[at(piece)];
        it.capacity = it.holders.iter().map(|holder| self.seats[at(*holder)].capacity).sum();
        let lift = it.lift();
        for holder in 0..self.pieces[at(piece)].holders.len() {
            self.bump(self.pieces[at(piece)].holders[holder], lift);
        }
    }

    fn hold(&mut self, piece: u32, seat: u32) {
        self.pieces[at(piece)].holders.push(seat);
        self.seats[at(seat)].pieces.push(piece);
        self.holders_total += 1;
        self.enrol(self.pieces[at(piece)].rule, seat);
    }

    fn unhold(&mut self, piece: u32, seat: u32) {
        self.pieces[at(piece)].holders.retain(|it| *it != seat);
        let held = &mut self.seats[at(seat)].pieces;
        if let Some(position) = held.iter().position(|it| *it == piece) {
            held.swap_remove(position);
        }
        self.holders_total -= 1;
        if let Some(members) = &mut self.rules[at(self.pieces[at(piece)].rule)].members
            && let Some(pieces) = members.get_mut(&seat)
        {
            *pieces -= 1;
            if *pieces == 0 {
                members.remove(&seat);
            }
        }
    }

    pub(super) fn enrol(&mut self, rule: u32, seat: u32) {
        if let Some(members) = &mut self.rules[at(rule)].members {
            *members.entry(seat).or_insert(0) += 1;
        }
    }

    fn bump(&mut self, seat: u32, lift: f64) {
        let it = &mut self.seats[at(seat)];
        let before = (it.group, it.used.to_bits(), seat);
        it.used = (it.used + lift).max(0.0);
        let after = (it.group, it.used.to_bits(), seat);
        if !self.order.is_empty() && before != after {
            self.order.remove(&before);
            self.order.insert(after);
        }
    }

    /// Begins to keep seats in order of utilisation.
    pub(super) fn index(&mut self) {
        let seats = self.seats.iter().enumerate();
        self.order = seats.map(|(at, it)| (it.group, it.used.to_bits(), short(at))).collect();
    }

    /// Lists the seats of a group from cold to hot.
    pub(super) fn coldest(&self, group: u32) -> impl DoubleEndedIterator<Item = u32> {
        self.order.range((group, 0, 0)..=(group, u64::MAX, u32::MAX)).map(|it| it.2)
    }

    /// Cuts a piece before `key`; both parts have its holders, and nothing moves. Returns the
    /// upper part.
    pub(super) fn split(&mut self, piece: u32, key: u64) -> u32 {
        let upper_at = short(self.pieces.len());
        let it = &self.pieces[at(piece)];
        let slice = Slice { low: key, high: it.slice.high };
        let lower = Slice { low: it.slice.low, high: key - 1 };
        let (load, state) = (self.load_of(&slice), self.state_of(&slice));
        let upper = Piece {
            slice,
            load: load.min(it.load),
            state: state.min(it.state),
            holders: it.holders.clone(),
            capacity: it.capacity,
            rule: it.rule,
            before: piece,
            after: it.after,
            alive: true,
            note: it.note,
            why: it.why.or(Some(SliceReason::Split)),
        };
        for seat in &upper.holders {
            self.seats[at(*seat)].pieces.push(upper_at);
            self.enrol(upper.rule, *seat);
        }
        self.holders_total += upper.holders.len();
        if upper.after != NONE {
            self.pieces[at(upper.after)].before = upper_at;
        }
        let it = &mut self.pieces[at(piece)];
        it.slice = lower;
        it.load -= upper.load;
        it.state -= upper.state;
        it.after = upper_at;
        it.why = it.why.or(Some(SliceReason::Split));
        self.pieces.push(upper);
        self.deeds.split += 1;
        upper_at
    }

    pub(super) fn load_of(&self, slice: &Slice) -> f64 {
        self.map.load_of(slice)
    }

    pub(super) fn state_total(&self) -> f64 {
        if 0.0 < self.map.state_total() { self.map.state_total() } else { self.map.total() }
    }

    /// Where the state of keys is unknown, load stands for it.
    pub(super) fn state_of(&self, slice: &Slice) -> f64 {
        if 0.0 < self.map.state_total() {
            self.map.state_of(slice)
        } else {
            self.map.load_of(slice)
        }
    }

    /// Lists the living pieces in order of key.
    pub(super) fn in_order(&self) -> impl Iterator<Item = u32> {
        let next = |it: &u32| Some(self.pieces[at(*it)].after).filter(|next| *next != NONE);
        std::iter::successors(Some(0), next)
    }
}
