//! What other routers found of requests that bring replicas down. What one of them holds all hold, and a death counts
//! with all that was in flight there, whichever router sent it.

use std::time::Duration;

use crate::brain::request::Fingerprint;
use crate::domain::{Moment, ReplicaId, SliceKey};

use super::super::death::{Death, Witness};
use super::{CONFIRMED_IN, Quarantine};

impl Quarantine {
    /// Notes a death that another router confirmed, with the requests that it had there.
    pub(in crate::brain::poison) fn on_death_elsewhere(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        members: &[Witness],
    ) {
        if self.ttl.is_zero() || members.is_empty() {
            return;
        }
        let of_it = |it: &&mut Death| it.replica == replica && now.since(it.at) < CONFIRMED_IN;
        let known = self.deaths.iter_mut().rev().find(of_it).map(|it| it.at);
        // It is the death that is known here, as far as one is.
        self.on_death(known.unwrap_or(now), replica, std::iter::empty());
        if let Some(death) = self.deaths.iter_mut().rev().find(of_it) {
            death.confirmed = true;
            death.add(members.iter().copied());
        }
    }

    /// Holds what another router holds, for as long as it does.
    pub(in crate::brain::poison) fn hold_elsewhere(
        &mut self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
        left: Duration,
    ) {
        if self.ttl.is_zero() || fingerprint == Fingerprint(0) || self.is_held(now, fingerprint) {
            return;
        }
        self.hold(now, key, fingerprint);
        if let Some(held) = self.requests.get_mut(&fingerprint) {
            held.0 = now + left.min(self.ttl);
        }
    }

    /// Frees what another router has seen served whole.
    pub(in crate::brain::poison) fn clear_elsewhere(
        &mut self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
    ) {
        if self.is_held(now, fingerprint) {
            self.clear(now, key, fingerprint);
        }
    }

    /// Lists the requests that are held, and for how long.
    pub(in crate::brain::poison) fn list_held(
        &self,
        now: Moment,
    ) -> impl Iterator<Item = (SliceKey, Fingerprint, Duration)> + '_ {
        let held = self.requests.iter().filter(move |it| now < it.1.0);
        held.map(move |(fingerprint, (until, key))| (*key, *fingerprint, until.since(now)))
    }
}
