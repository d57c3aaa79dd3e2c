//! What one router finds out concerns all: requests that bring replicas down, replicas that were started again, how long
//! answers are, what work takes, what tenants have used, what is asked for. Here that is told, and taken in from others. Nothing that was
//! heard is told on.

use std::time::Duration;

use crate::cluster::{DeathWitness, FoundOut, News};
use crate::domain::{Moment, ReplicaId, RouterId, SliceKey, whole_u32};
use crate::queue::{Tenant, Work};
use crate::scaling::OfferedWork;

use super::health::Health;
use super::poison::Witness as Suspect;
use super::request::Fingerprint;
use super::{Brain, Notice};

impl Brain {
    /// Takes in what another router found out.
    pub(super) fn on_found(&mut self, now: Moment, router: RouterId, found: FoundOut) {
        match found {
            FoundOut::Quarantined { key, fingerprint, left_ms } => {
                let left = Duration::from_millis(left_ms.into());
                self.poison.hold_elsewhere(now, key, Fingerprint(fingerprint), left);
            }
            FoundOut::Acquitted { key, fingerprint } => {
                self.poison.clear_elsewhere(now, key, Fingerprint(fingerprint));
            }
            FoundOut::Died { replica, witnesses } => {
                let suspects: Vec<Suspect> = witnesses.into_iter().map(suspect).collect();
                if let Some(replica) = self.at(replica) {
                    self.poison.on_death_elsewhere(now, replica, &suspects);
                }
            }
            FoundOut::Restarted { replica } => {
                if let Some(id) = self.at(replica)
                    && self.peers.note_restart(now, replica)
                {
                    Health::on_restarted(&mut self.fleet, id, &mut Vec::new());
                    self.forget_cache(id);
                }
            }
            FoundOut::Taught(lesson) => self.books.hear(&lesson),
            FoundOut::Lengths(entry) => self.books.take_on(&entry),
            FoundOut::Learned(learned) => self.learning.hear(&learned),
            FoundOut::Spent { tenant, missing } => {
                self.admission.catch_up(now, Tenant(tenant), missing);
            }
            FoundOut::Demand { offered, beyond, refused } => {
                self.peers.books(router).into_iter().for_each(|it| it.tells_demand = true);
                let [offered_mu, beyond_contract_mu, refused_mu] =
                    [offered, beyond, refused].map(|it| Work::from_parts(it).as_mu());
                let work = OfferedWork { offered_mu, beyond_contract_mu, refused_mu };
                self.admission.offered.on_elsewhere(work);
            }
            FoundOut::TurnedAway { mark } => self.admission.offered.remember_refused(now, mark),
            // One concerns no pool, and the other the driver.
            FoundOut::Kept { .. } | FoundOut::Sized { .. } => {}
        }
    }

    /// Lists what was found out, for a router that knows nothing.
    pub(super) fn list_found(&self, now: Moment, into: &mut Vec<News>) {
        let held = self.poison.list_held(now);
        let held = held.map(|(key, fingerprint, left)| quarantined(key, fingerprint, left));
        let learned = self.learning.learned().into_iter().filter(|it| 0 < it.seen);
        let learned = learned.map(|it| FoundOut::Learned(Box::new(it)));
        let spent = self.admission.missing();
        let spent = spent.map(|(Tenant(tenant), missing)| FoundOut::Spent { tenant, missing });
        let lengths = self.books.lengths().map(|it| FoundOut::Lengths(Box::new(it)));
        // From now on what it is asked for is told, and not to be taken from what it sends.
        let demand = [FoundOut::Demand { offered: 0, beyond: 0, refused: 0 }];
        let all = held.chain(learned).chain(spent).chain(lengths).chain(demand);
        into.extend(all.map(News::Found));
    }

    /// Tells what was asked for since the last time.
    pub(super) fn tell_demand(&mut self) {
        let came = self.admission.offered.take_untold();
        if self.peers.own().is_some() && !came.is_none() {
            let OfferedWork { offered_mu, beyond_contract_mu, refused_mu } = came;
            let [offered, beyond, refused] =
                [offered_mu, beyond_contract_mu, refused_mu].map(|it| Work::from_mu(it).parts());
            self.peers.tell_found(FoundOut::Demand { offered, beyond, refused });
        }
    }

    pub(super) fn tell_conviction(&mut self, key: SliceKey, fingerprint: Fingerprint) {
        self.peers.tell_found(quarantined(key, fingerprint, self.settings.quarantine.ttl));
    }

    pub(super) fn tell_acquittal(&mut self, key: SliceKey, fingerprint: Fingerprint) {
        self.peers.tell_found(FoundOut::Acquitted { key, fingerprint: fingerprint.0 });
    }

    /// Notes that a replica is truly gone, and tells which requests of this router were there.
    pub(super) fn confirm_death(&mut self, now: Moment, replica: ReplicaId) {
        let witnesses = self.poison.on_confirmed(now, replica).filter(|it| !it.is_empty());
        if let (Some(witnesses), Some(_), Some(it)) =
            (witnesses, self.peers.own(), self.fleet.get(replica))
        {
            let witnesses = witnesses.iter().map(witness).collect();
            self.peers.tell_found(FoundOut::Died { replica: it.place, witnesses });
        }
    }

    /// Notes that another process answers at a replica's address, unless that was heard already.
    pub(super) fn on_restarted(&mut self, now: Moment, replica: ReplicaId) {
        self.confirm_death(now, replica);
        let Some(place) = self.fleet.get(replica).map(|it| it.place) else { return };
        if self.peers.note_restart(now, place) {
            self.peers.tell_found(FoundOut::Restarted { replica: place });
            self.forget_cache(replica);
        }
    }

    fn forget_cache(&mut self, replica: ReplicaId) {
        self.placement.on_restarted(replica);
        self.notices.push(Notice::Restarted { replica });
    }

    /// Tells now and then what was learned of costs.
    pub(super) fn tell_learned(&mut self, now: Moment) {
        if self.peers.is_learned_due(now) {
            for it in self.learning.learned().into_iter().filter(|it| 0 < it.seen) {
                self.peers.tell_found(FoundOut::Learned(Box::new(it)));
            }
        }
    }
}

fn quarantined(key: SliceKey, Fingerprint(fingerprint): Fingerprint, left: Duration) -> FoundOut {
    let left_ms = whole_u32(left.as_secs_f64() * 1e3);
    FoundOut::Quarantined { key, fingerprint, left_ms }
}

const fn suspect(it: DeathWitness) -> Suspect {
    let DeathWitness { fingerprint, workload, is_new } = it;
    Suspect { fingerprint: Fingerprint(fingerprint), workload, is_new }
}

const fn witness(it: &Suspect) -> DeathWitness {
    let Suspect { fingerprint: Fingerprint(fingerprint), workload, is_new } = *it;
    DeathWitness { fingerprint, workload, is_new }
}
