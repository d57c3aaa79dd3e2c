//! Which request brings replicas down? All that is in flight when a replica dies or hangs comes under
//! suspicion together; a request that then finishes elsewhere is cleared, and
//! one that stands out at the next death is quarantined: refused, so that it cannot walk through the
//! fleet. Suspects are spread over replicas when they are tried again (the brain does that), so that
//! a second death tells them apart. What repeats is held in widening scopes: the request, its
//! session, the new sessions of its workload, the workload.
//!
//! One death proves nothing, and a rack that loses power makes all requests suspects alike: it takes at
//! least two deaths, and fewer requests that were at as many of them than deaths. Completions weigh against
//! deaths (`completions`), so that what is asked all day is not blamed for crashes it was merely there for.
//! And a workload is held only where others are a real share of what is served (`company`): where clients
//! send no key all are one workload, and to hold that one would do the attacker's work.

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::brain::request::Fingerprint;
use crate::domain::{Moment, ReplicaId, SliceKey};

use super::QuarantineScope;
use super::company::Company;
use super::completions::CompletionCounts;
#[cfg(test)]
use super::death::WITNESSES_MAX;
use super::death::{Death, Witness};

/// Deaths remembered.
const DEATHS_MAX: usize = 16;
/// Requests, sessions and workloads held, each.
const HELD_MAX: usize = 1024;
/// Requests lost at one replica within this time are lost in one death.
const ONE_DEATH: Duration = Duration::from_secs(2);

/// How much later than the requests' loss a death may be confirmed.
const CONFIRMED_IN: Duration = Duration::from_secs(60);
/// Bytes that arrive within this time after a death may have been on their way before it.
const ON_ITS_WAY: Duration = Duration::from_millis(500);
/// How long after an offence a workload counts as offending.
const OFFENDS_FOR: Duration = Duration::from_secs(60);
/// This many completions of a prompt outweigh one death.
const COMPLETIONS_PER_DEATH: u32 = 5;
/// This many completions of a workload outweigh one of its sessions that offended.
const COMPLETIONS_PER_OFFENCE: u32 = 20;

/// What the operator may set about quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineSettings {
    /// Whether anything is suspected or held at all.
    pub enabled: bool,
    /// How long a prompt, a session or a workload is held, and how long suspicion lasts.
    pub ttl: Duration,
}

impl Default for QuarantineSettings {
    fn default() -> Self {
        Self { enabled: true, ttl: Duration::from_secs(10 * 60) }
    }
}

/// The judgement on a request that lost its replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Innocent,
    /// It is to blame if the deaths that are not confirmed yet turn out to be deaths.
    Open,
    /// It is held from now on.
    Guilty(QuarantineScope),
}

/// What a workload has done.
#[derive(Clone, Copy, Debug)]
struct Offences {
    until: Moment,
    /// Different sessions that offended.
    sessions: u32,
    last: SliceKey,
}

#[derive(Debug)]
pub(super) struct Quarantine {
    /// Zero when it is switched off.
    ttl: Duration,
    deaths: VecDeque<Death>,
    /// Until when each is held, and the session that it came in.
    requests: IndexMap<Fingerprint, (Moment, SliceKey), FxBuildHasher>,
    sessions: IndexMap<SliceKey, (Moment, u32), FxBuildHasher>,
    workloads: IndexMap<u32, Offences, FxBuildHasher>,
    completions: CompletionCounts,
    company: Company,
    held_total: u64,
}

impl Quarantine {
    pub(super) fn new(settings: QuarantineSettings) -> Self {
        Self {
            ttl: if settings.enabled { settings.ttl } else { Duration::ZERO },
            deaths: VecDeque::new(),
            requests: IndexMap::default(),
            sessions: IndexMap::default(),
            workloads: IndexMap::default(),
            completions: CompletionCounts::new(settings.ttl),
            company: Company::default(),
            held_total: 0,
        }
    }

    /// Requests, sessions and workloads that were put under quarantine since the start.
    pub(super) const fn held_total(&self) -> u64 {
        self.held_total
    }

    /// Counts the requests held now.
    pub(super) fn held(&self) -> usize {
        self.requests.len()
    }

    /// Tells whether nothing is held and nothing suspected, which is the usual case.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.workloads.is_empty() && self.deaths.is_empty()
    }

    /// Tells whether a request that arrives is held. `known` says that its session was served before.
    pub(super) fn check(
        &self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
        known: bool,
    ) -> Option<QuarantineScope> {
        if self.is_held(now, fingerprint) {
            return Some(QuarantineScope::Request);
        }
        if self.sessions.get(&key).is_some_and(|(until, count)| now < *until && 2 <= *count) {
            return Some(QuarantineScope::Session);
        }
        let offences = self.offences(now, key.workload())?;
        match offences.sessions {
            0 | 1 => None,
            2 if known => None,
            2 => Some(QuarantineScope::NewSessions),
            _ => Some(QuarantineScope::Workload),
        }
    }

    fn is_held(&self, now: Moment, fingerprint: Fingerprint) -> bool {
        self.requests.get(&fingerprint).is_some_and(|it| now < it.0)
    }

    /// Finds what a workload has done, if that outweighs what it was served well of late, and it is one of
    /// several: a few bad requests do not make a workload of thousands a bad one, nor all there is.
    fn offences(&self, now: Moment, workload: u32) -> Option<Offences> {
        let offences = self.workloads.get(&workload).filter(|it| now < it.until)?;
        let good = self.completions.count(now, of_workload(workload));
        let outweighed = COMPLETIONS_PER_OFFENCE.saturating_mul(offences.sessions) < good;
        let is_one_of_several = self.company.is_one_of_several(now, self.ttl, workload);
        (!outweighed && is_one_of_several).then_some(*offences)
    }

    /// Notes that a replica died, or hangs, with these in flight. Said again for the same death, it
    /// only adds what was not known to be there.
    pub(super) fn on_death(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        members: impl Iterator<Item = (SliceKey, Fingerprint, bool)>,
    ) {
        if self.ttl.is_zero() {
            return;
        }
        let ttl = self.ttl;
        self.deaths.retain(|it| now.since(it.at) < ttl);
        let known =
            self.deaths.iter().position(|it| it.replica == replica && now.since(it.at) < ONE_DEATH);
        let at = known.unwrap_or_else(|| {
            if self.deaths.len() == DEATHS_MAX {
                self.deaths.pop_front();
            }
            let death = Death { replica, at: now, confirmed: false, members: Vec::new() };
            self.deaths.push_back(death);
            self.deaths.len() - 1
        });
        self.deaths[at].add(members.map(|(key, fingerprint, is_new)| Witness {
            fingerprint,
            workload: key.workload(),
            is_new,
        }));
    }

    /// Notes that a replica is truly gone, which makes its last death count. Returns the requests that were there, if
    /// that was not known before.
    pub(super) fn on_confirmed(&mut self, now: Moment, replica: ReplicaId) -> Option<&[Witness]> {
        let of_it = |it: &&mut Death| it.replica == replica && now.since(it.at) < CONFIRMED_IN;
        let death = self.deaths.iter_mut().rev().find(of_it)?;
        let is_new = !std::mem::replace(&mut death.confirmed, true);
        is_new.then_some(&death.members)
    }

    /// Notes that a request sent before a replica's supposed death goes on there: it did not die.
    pub(super) fn on_survivor(&mut self, now: Moment, replica: ReplicaId, sent_at: Moment) {
        if !self.deaths.is_empty() {
            self.deaths.retain(|it| {
                let outlived = sent_at <= it.at && ON_ITS_WAY <= now.since(it.at);
                it.confirmed || it.replica != replica || !outlived
            });
        }
    }

    /// Notes that a request was served whole: it is no danger, and if it is held it should not be.
    /// Tells whether it was.
    pub(super) fn clear(&mut self, now: Moment, key: SliceKey, fingerprint: Fingerprint) -> bool {
        if self.ttl.is_zero() || fingerprint == Fingerprint(0) {
            return false;
        }
        self.completions.note(now, fingerprint);
        self.completions.note(now, of_workload(key.workload()));
        self.company.note(now, key.workload());
        for death in &mut self.deaths {
            death.members.retain(|it| it.fingerprint != fingerprint);
        }
        let was_held = self.requests.swap_remove(&fingerprint).is_some();
        if was_held {
            self.sessions.swap_remove(&key);
            if let Some(offences) = self.workloads.get_mut(&key.workload()) {
                offences.sessions = offences.sessions.saturating_sub(1);
            }
            self.workloads.retain(|_, it| 0 < it.sessions);
        }
        was_held
    }

    /// Weighs the deaths at which a request was, and was not served whole since, against its earlier
    /// completions. Deaths that are not confirmed yet count if `open` says so.
    fn weight(&self, now: Moment, fingerprint: Fingerprint, open: bool) -> usize {
        let counts = |it: &&Death| it.counts(now, self.ttl, open) && it.has(fingerprint);
        let deaths = self.deaths.iter().filter(counts).count();
        if deaths == 0 {
            return 0;
        }
        let completions = self.completions.count(now, fingerprint);
        let outweighed = completions.div_ceil(COMPLETIONS_PER_DEATH);
        deaths.saturating_sub(usize::try_from(outweighed).unwrap_or(usize::MAX))
    }

    /// Says how suspect a request is: the deaths that speak against it.
    pub(super) fn suspicion(&self, now: Moment, fingerprint: Fingerprint) -> usize {
        self.weight(now, fingerprint, true)
    }

    /// Judges a request, and holds it if it is the one to blame.
    pub(super) fn judge(
        &mut self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
    ) -> Judgement {
        if self.is_to_blame(now, key, fingerprint, false) {
            Judgement::Guilty(self.hold(now, key, fingerprint))
        } else if self.is_to_blame(now, key, fingerprint, true) {
            Judgement::Open
        } else {
            Judgement::Innocent
        }
    }

    /// Tells whether a request is to blame if the deaths that are not confirmed yet turn out to be deaths.
    pub(super) fn is_open(&self, now: Moment, key: SliceKey, fingerprint: Fingerprint) -> bool {
        self.is_to_blame(now, key, fingerprint, true)
    }

    fn is_to_blame(
        &self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
        open: bool,
    ) -> bool {
        let counts = |it: &&Death| it.counts(now, self.ttl, open) && it.has(fingerprint);
        let Some(latest) = self.deaths.iter().rev().find(counts) else { return false };
        let weight = self.weight(now, fingerprint, open);
        let as_heavy = |it: &&Witness| weight <= self.weight(now, it.fingerprint, open);
        let stands_out = 2 <= weight && latest.members.iter().filter(as_heavy).count() < weight;
        // A workload that has offended before has no more credit: its request is to blame if it is
        // the only one there of such a workload.
        let offended = |it: &&Witness| self.offences(now, it.workload).is_some();
        let relapsed = 1 <= weight
            && self.offences(now, key.workload()).is_some()
            && latest.members.iter().filter(offended).count() == 1;
        stands_out || relapsed || 1 <= weight && self.is_only_newcomer(now, latest, fingerprint)
    }

    /// Tells whether a request of a workload that offends right now is the only one at a death that was
    /// the first of its session, and had not begun to be answered there or ever before. Where a workload
    /// cannot be held because it is all there is, each of its crashing prompts would else take two
    /// replicas.
    fn is_only_newcomer(&self, now: Moment, death: &Death, fingerprint: Fingerprint) -> bool {
        let offends = |it: &Witness| {
            let offences = self.workloads.get(&it.workload);
            offences.is_some_and(|it| now + self.ttl < it.until + OFFENDS_FOR)
        };
        let is_new = |it: &&Witness| {
            it.is_new && offends(it) && self.completions.count(now, it.fingerprint) == 0
        };
        let mut new = death.members.iter().filter(is_new);
        new.next().is_some_and(|it| it.fingerprint == fingerprint) && new.next().is_none()
    }

    /// Lists the replicas that went down with a request, the last one last.
    pub(super) fn places(&self, fingerprint: Fingerprint) -> Vec<ReplicaId> {
        self.deaths.iter().filter(|it| it.has(fingerprint)).map(|it| it.replica).collect()
    }

    fn hold(&mut self, now: Moment, key: SliceKey, fingerprint: Fingerprint) -> QuarantineScope {
        let until = now + self.ttl;
        // The deaths it was at are explained, and are held against no other request.
        for death in self.deaths.iter_mut().filter(|it| it.has(fingerprint)) {
            death.members.retain(|it| it.fingerprint == fingerprint);
        }
        self.held_total += 1;
        make_room(&mut self.requests, now, |it| it.0);
        self.requests.insert(fingerprint, (until, key));
        make_room(&mut self.workloads, now, |it| it.until);
        let fresh = Offences { until, sessions: 0, last: SliceKey(!key.0) };
        let offences = self.workloads.entry(key.workload()).or_insert(fresh);
        if offences.until <= now {
            *offences = fresh;
        }
        let another = offences.last != key;
        let before = offences.sessions;
        *offences = Offences { until, sessions: before + u32::from(another), last: key };
        let relapsed = 1 < offences.sessions;
        make_room(&mut self.sessions, now, |it| it.0);
        let session = self.sessions.entry(key).or_insert((until, 0));
        let before_in_session = if now < session.0 { session.1 } else { 0 };
        // In a workload that goes on offending, a session gets no second chance.
        *session = (until, before_in_session + if relapsed { 2 } else { 1 });
        let times = session.1;
        match (self.offences(now, key.workload()).map_or(0, |it| it.sessions), times) {
            (3.., _) if another => QuarantineScope::Workload,
            (2, _) if another => QuarantineScope::NewSessions,
            (_, 2..) => QuarantineScope::Session,
            _ => QuarantineScope::Request,
        }
    }

    #[cfg(test)]
    fn bytes_max() -> usize {
        // An index map keeps a hash and an index beside each entry.
        let entry = |bytes: usize| HELD_MAX * 2 * (bytes + 2 * size_of::<usize>());
        DEATHS_MAX * (size_of::<Death>() + 2 * WITNESSES_MAX * size_of::<Witness>())
            + entry(size_of::<(Fingerprint, (Moment, SliceKey))>())
            + entry(size_of::<(SliceKey, (Moment, u32))>())
            + entry(size_of::<(u32, Offences)>())
            + CompletionCounts::bytes()
            + Company::bytes()
    }
}

/// Names a workload where prompts have names too.
fn of_workload(workload: u32) -> Fingerprint {
    Fingerprint(u64::from(workload).wrapping_mul(0xD6E8_FEB8_6659_FD93).max(1))
}

/// Makes room for one more: what is over goes first, then what is over soonest.
fn make_room<K, V>(
    held: &mut IndexMap<K, V, FxBuildHasher>,
    now: Moment,
    until: impl Fn(&V) -> Moment,
) where
    K: std::hash::Hash + Eq,
{
    held.retain(|_, it| now < until(it));
    if held.len() == HELD_MAX
        && let Some(at) = (0..held.len()).min_by_key(|at| until(&held[*at]))
    {
        held.swap_remove_index(at);
    }
}

mod elsewhere;
#[cfg(test)]
mod tests;
