//! Who was there when a replica went down: the brain's side of quarantine. It tells the quarantine who
//! was in flight, keeps suspects apart when they are tried again, and refuses whoever is held.

use std::collections::BTreeMap;

use crate::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey};
use crate::fleet::{Replica, Standing};

use super::booking::Booking;
use super::quarantine::{Circle, Fingerprint, Judgement};
use super::{Brain, Notice};

impl Brain {
    /// Tells whether a request is under quarantine, and in which circle. One whose guilt has shown
    /// since it was last seen is put there.
    pub(super) fn circle_of(
        &mut self,
        now: Moment,
        key: SliceKey,
        outline: &Outline,
        extent: &Extent,
    ) -> Option<Circle> {
        if self.quarantine.is_empty() {
            return None;
        }
        let is_known = self.sessions.home(now, key).is_some();
        let fingerprint = Fingerprint::of(key, outline, extent);
        let held = self.quarantine.check(now, key, fingerprint, is_known);
        held.or_else(|| self.judge(now, key, fingerprint))
    }

    /// Remembers who was in flight where a request lost its replica.
    pub(super) fn note_death_under(&mut self, now: Moment, request: RequestId) {
        if let Some(replica) = self.requests.get(&request).map(|it| it.replica) {
            self.note_death(now, replica);
        }
    }

    /// Notes for its workload that a request lost its replica. `is_death` says that the replica is gone;
    /// else it is open, unless the replica is known to be out.
    pub(super) fn note_lost_under(&mut self, now: Moment, booking: &Booking, is_death: bool) {
        let (key, replica, sent_at) = (booking.key, booking.replica, booking.account.sent_at);
        let standing = self.fleet.get(replica).map(|it| it.breaker.standing());
        let is_out = matches!(standing, Some(Standing::Out { .. }));
        self.subsets.on_lost(now, key, Some((replica, sent_at)));
        if is_death || is_out {
            self.subsets.on_gone(replica);
        }
    }

    pub(super) fn note_death(&mut self, now: Moment, replica: ReplicaId) {
        let there = self.requests.values().filter(|it| it.replica == replica);
        let members = there.map(|it| (it.key, it.fingerprint));
        self.quarantine.on_death(now, replica, members);
    }

    /// Judges a request by the deaths it was at, and tells operators if it is held from now on.
    pub(super) fn judge(
        &mut self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
    ) -> Option<Circle> {
        let Judgement::Guilty(circle) = self.quarantine.judge(now, key, fingerprint) else {
            return None;
        };
        if let Some(replica) = self.quarantine.last_place(fingerprint) {
            self.notices.push(Notice::Quarantined { replica, key, fingerprint, circle });
        }
        Some(circle)
    }

    /// Lists where a request should not be tried again: where it was, and where more of those are in
    /// flight that are as suspect as it is than need be. Kept apart, the next death tells who it was.
    pub(super) fn places_to_avoid(&self, now: Moment, booking: &Booking) -> Vec<ReplicaId> {
        let mut avoid = booking.tried.clone();
        let own = self.quarantine.suspicion(now, booking.fingerprint);
        if own == 0 {
            return avoid;
        }
        let mut suspects: BTreeMap<ReplicaId, usize> = BTreeMap::new();
        for it in self.requests.values() {
            if own <= self.quarantine.suspicion(now, it.fingerprint) {
                *suspects.entry(it.replica).or_default() += 1;
            }
        }
        let count = |it: &Replica| suspects.get(&it.id).copied().unwrap_or(0);
        let is_usable =
            |it: &&Replica| 0.0 < it.weight && it.admits(now) && !booking.tried.contains(&it.id);
        let least = self.fleet.iter().filter(is_usable).map(count).min().unwrap_or(0);
        avoid.extend(self.fleet.iter().filter(|it| least < count(it)).map(|it| it.id));
        avoid
    }
}
