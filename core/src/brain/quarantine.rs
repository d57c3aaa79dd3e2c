//! Which request brings replicas down? Whoever is in flight when a replica dies or hangs comes under
//! suspicion together with everybody else who was there; who then finishes elsewhere is cleared, and
//! who stands out at the next death is quarantined: refused, so that it cannot walk through the
//! fleet. Suspects are spread over replicas when they are tried again (the brain does that), so that
//! a second death tells them apart. What repeats is held in widening circles: the request, its
//! session, the new sessions of its workload, the workload.
//!
//! One death proves nothing, and a rack that loses power makes everybody a suspect alike: it takes at
//! least two deaths, and fewer who were at as many of them than deaths.

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Extent, Moment, Outline, ReplicaId, SliceKey};

/// Deaths remembered, and suspects remembered of each.
const DEATHS_MAX: usize = 16;
const MEMBERS_MAX: usize = 512;
/// Requests, sessions and workloads held, each.
const HELD_MAX: usize = 1024;
/// Requests lost at one replica within this time are lost in one death.
const ONE_DEATH: Duration = Duration::from_secs(2);

/// How much later than the requests' loss a death may be confirmed.
const CONFIRMED_IN: Duration = Duration::from_secs(60);

/// What the operator may set about quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineSettings {
    /// How long somebody is held, and how long suspicion lasts; nobody is held when it is zero.
    pub ttl: Duration,
}

impl Default for QuarantineSettings {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10 * 60) }
    }
}

/// A prompt of a workload, whatever session it comes in; 0 when nothing is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Marks a request by its workload and its whole prompt; 0 when its prompt is not known.
    pub(super) fn of(key: SliceKey, outline: &Outline, extent: &Extent) -> Self {
        let last = outline.blocks.last().copied().unwrap_or(0);
        if last == 0 && extent.digest == 0 {
            return Self(0);
        }
        let parts = [
            u64::from(key.workload()),
            last,
            extent.digest,
            u64::from(extent.text_bytes),
            u64::from(extent.attachment_bytes),
        ];
        let mixed = parts.iter().fold(0x9E37_79B9_7F4A_7C15_u64, |hash, part| {
            (hash.rotate_left(23) ^ part).wrapping_mul(0xD6E8_FEB8_6659_FD93)
        });
        Self(mixed.max(1))
    }
}

/// Who is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circle {
    Request,
    Session,
    /// Sessions of the workload that were not there before.
    NewSessions,
    Workload,
}

impl Circle {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Session => "session",
            Self::NewSessions => "new_sessions",
            Self::Workload => "workload",
        }
    }
}

/// One request that was there when a replica died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    fingerprint: Fingerprint,
    workload: u32,
}

#[derive(Debug)]
struct Death {
    replica: ReplicaId,
    at: Moment,
    /// Whether something else than lost requests shows it: nobody listens there, it hangs, another
    /// process came. A connection can break without that.
    confirmed: bool,
    /// In order.
    members: Vec<Member>,
}

impl Death {
    fn has(&self, fingerprint: Fingerprint) -> bool {
        self.members.binary_search_by_key(&fingerprint, |it| it.fingerprint).is_ok()
    }
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
    ttl: Duration,
    deaths: VecDeque<Death>,
    requests: IndexMap<Fingerprint, Moment, FxBuildHasher>,
    sessions: IndexMap<SliceKey, (Moment, u32), FxBuildHasher>,
    workloads: IndexMap<u32, Offences, FxBuildHasher>,
    held_total: u64,
}

impl Quarantine {
    pub(super) fn new(settings: QuarantineSettings) -> Self {
        Self {
            ttl: settings.ttl,
            deaths: VecDeque::new(),
            requests: IndexMap::default(),
            sessions: IndexMap::default(),
            workloads: IndexMap::default(),
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

    /// Tells whether nobody is held, as almost always.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.workloads.is_empty()
    }

    /// Tells whether a request that arrives is held. `known` says that its session was served before.
    pub(super) fn check(
        &self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
        known: bool,
    ) -> Option<Circle> {
        if self.requests.get(&fingerprint).is_some_and(|until| now < *until) {
            return Some(Circle::Request);
        }
        if self.sessions.get(&key).is_some_and(|(until, count)| now < *until && 2 <= *count) {
            return Some(Circle::Session);
        }
        let offences = self.workloads.get(&key.workload()).filter(|it| now < it.until)?;
        match offences.sessions {
            0 | 1 => None,
            2 if known => None,
            2 => Some(Circle::NewSessions),
            _ => Some(Circle::Workload),
        }
    }

    /// Notes that a replica died, or hangs, with these in flight. Said again for the same death, it
    /// only adds who was not known to be there.
    pub(super) fn on_death(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        members: impl Iterator<Item = (SliceKey, Fingerprint)>,
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
        let all = &mut self.deaths[at].members;
        let room = MEMBERS_MAX - all.len();
        let named = members.filter(|it| it.1 != Fingerprint(0)).take(room);
        all.extend(
            named.map(|(key, fingerprint)| Member { fingerprint, workload: key.workload() }),
        );
        all.sort_unstable();
        all.dedup();
    }

    /// Notes that a replica is truly gone, which makes its last death count.
    pub(super) fn on_confirmed(&mut self, now: Moment, replica: ReplicaId) {
        let of_it = |it: &&mut Death| it.replica == replica && now.since(it.at) < CONFIRMED_IN;
        if let Some(death) = self.deaths.iter_mut().rev().find(of_it) {
            death.confirmed = true;
        }
    }

    /// Notes that a request sent before a replica's supposed death goes on there: it did not die.
    pub(super) fn on_survivor(&mut self, replica: ReplicaId, sent_at: Moment) {
        if !self.deaths.is_empty() {
            self.deaths.retain(|it| it.replica != replica || it.at < sent_at);
        }
    }

    /// Notes that a request was served whole: it is no danger.
    pub(super) fn clear(&mut self, fingerprint: Fingerprint) {
        for death in &mut self.deaths {
            death.members.retain(|it| it.fingerprint != fingerprint);
        }
    }

    /// Counts the deaths at which a request was, and was not served whole since.
    pub(super) fn suspicion(&self, fingerprint: Fingerprint) -> usize {
        self.deaths.iter().filter(|it| it.has(fingerprint)).count()
    }

    /// Judges a request that has just lost its replica, and holds it if it is the one to blame.
    pub(super) fn judge(
        &mut self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
    ) -> Option<Circle> {
        let latest = self.deaths.iter().rposition(|it| it.has(fingerprint))?;
        let deaths = self.deaths_of(fingerprint, latest);
        let members = &self.deaths[latest].members;
        let as_often =
            members.iter().filter(|it| deaths <= self.deaths_of(it.fingerprint, latest)).count();
        let stands_out = 2 <= deaths && as_often < deaths;
        // A workload that has offended before has no more credit: its request is to blame if it is
        // the only one there of such a workload.
        let offended = |it: &&Member| self.has_offended(now, it.workload);
        let relapsed =
            self.has_offended(now, key.workload()) && members.iter().filter(offended).count() == 1;
        (stands_out || relapsed).then(|| self.hold(now, key, fingerprint))
    }

    /// Counts the deaths at which a request was; the latest counts before it is confirmed, because
    /// by then the request would be at its next replica.
    fn deaths_of(&self, fingerprint: Fingerprint, latest: usize) -> usize {
        let counts =
            |(at, it): &(usize, &Death)| (it.confirmed || *at == latest) && it.has(fingerprint);
        self.deaths.iter().enumerate().filter(counts).count()
    }

    fn has_offended(&self, now: Moment, workload: u32) -> bool {
        self.workloads.get(&workload).is_some_and(|it| now < it.until)
    }

    fn hold(&mut self, now: Moment, key: SliceKey, fingerprint: Fingerprint) -> Circle {
        let until = now + self.ttl;
        self.held_total += 1;
        make_room(&mut self.requests, now, |until| *until);
        self.requests.insert(fingerprint, until);
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
        // In a workload that goes on offending, a session is not given a second time.
        *session = (until, before_in_session + if relapsed { 2 } else { 1 });
        match (self.workloads[&key.workload()].sessions, session.1) {
            (3.., _) if another => Circle::Workload,
            (2, _) if another => Circle::NewSessions,
            (_, 2..) => Circle::Session,
            _ => Circle::Request,
        }
    }

    #[cfg(test)]
    fn bytes_max() -> usize {
        // An index map keeps a hash and an index beside each entry.
        let entry = |bytes: usize| HELD_MAX * 2 * (bytes + 2 * size_of::<usize>());
        DEATHS_MAX * (size_of::<Death>() + 2 * MEMBERS_MAX * size_of::<Member>())
            + entry(size_of::<(Fingerprint, Moment)>())
            + entry(size_of::<(SliceKey, (Moment, u32))>())
            + entry(size_of::<(u32, Offences)>())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn key(workload: u64, session: u64) -> SliceKey {
        SliceKey((workload << 32) | session)
    }

    fn quarantine() -> Quarantine {
        Quarantine::new(QuarantineSettings::default())
    }

    /// A replica dies with these prompts of workload 1 in flight, each its own session.
    fn death(it: &mut Quarantine, second: u64, replica: u32, prompts: &[u64]) {
        let members = prompts.iter().map(|prompt| (key(1, *prompt), Fingerprint(*prompt)));
        it.on_death(at(second), ReplicaId(replica), members);
        it.on_confirmed(at(second), ReplicaId(replica));
    }

    fn judged(it: &mut Quarantine, second: u64, prompt: u64) -> Option<Circle> {
        it.judge(at(second), key(1, prompt), Fingerprint(prompt))
    }

    fn arrives(it: &Quarantine, second: u64, workload: u64, prompt: u64) -> Option<Circle> {
        it.check(at(second), key(workload, prompt), Fingerprint(prompt), false)
    }

    #[test]
    fn one_death_proves_nothing_and_the_second_tells_who_it_was() {
        let mut it = quarantine();
        death(&mut it, 0, 0, &[1, 2, 3, 4]);
        for prompt in 1..=4 {
            assert_eq!(judged(&mut it, 0, prompt), None);
        }
        death(&mut it, 1, 1, &[4, 8, 9]);
        assert_eq!(judged(&mut it, 1, 8), None, "a bystander");
        assert_eq!(judged(&mut it, 1, 4), Some(Circle::Request));
        assert_eq!(arrives(&it, 2, 1, 4), Some(Circle::Request));
        assert_eq!(arrives(&it, 2, 1, 1), None);
        assert_eq!(arrives(&it, 601, 1, 4), None, "nobody is held for ever");
    }

    #[test]
    fn two_who_were_at_both_deaths_share_the_blame_until_the_third() {
        let mut it = quarantine();
        death(&mut it, 0, 0, &[1, 2, 3]);
        death(&mut it, 1, 1, &[2, 3]);
        assert_eq!((judged(&mut it, 1, 2), judged(&mut it, 1, 3)), (None, None));
        it.clear(Fingerprint(3));
        death(&mut it, 2, 2, &[2]);
        assert_eq!(judged(&mut it, 2, 2), Some(Circle::Request));
    }

    #[test]
    fn a_rack_without_power_makes_nobody_guilty() {
        let mut it = quarantine();
        let all: Vec<u64> = (1..50).collect();
        for replica in 0..8 {
            death(&mut it, u64::from(replica), replica, &all);
            assert!(all.iter().all(|prompt| judged(&mut it, 8, *prompt).is_none()));
        }
    }

    #[test]
    fn the_same_death_counts_once_and_one_that_was_none_does_not_count() {
        let mut it = quarantine();
        death(&mut it, 0, 0, &[1]);
        death(&mut it, 1, 0, &[1]);
        assert_eq!(judged(&mut it, 1, 1), None, "told twice");
        death(&mut it, 10, 1, &[1]);
        it.on_survivor(ReplicaId(1), at(5));
        assert_eq!(judged(&mut it, 10, 1), None, "somebody lived on there");
        death(&mut it, 20, 2, &[1]);
        it.on_survivor(ReplicaId(2), at(21));
        assert_eq!(judged(&mut it, 21, 1), Some(Circle::Request), "that came after the restart");
    }

    #[test]
    fn connections_that_break_without_a_death_make_nobody_guilty() {
        let mut it = quarantine();
        let member = [(key(1, 1), Fingerprint(1))];
        for replica in 0..5 {
            it.on_death(at(10 * u64::from(replica)), ReplicaId(replica), member.into_iter());
            assert_eq!(judged(&mut it, 10 * u64::from(replica), 1), None);
        }
    }

    #[test]
    fn what_repeats_is_held_in_widening_circles() {
        let mut it = quarantine();
        let session = key(1, 77);
        let offend = |it: &mut Quarantine, second: u64, session: SliceKey, prompt: u64| {
            for replica in 0..2 {
                let member = [(session, Fingerprint(prompt))].into_iter();
                it.on_death(at(second + u64::from(replica)), ReplicaId(replica), member);
                it.on_confirmed(at(second + u64::from(replica)), ReplicaId(replica));
            }
            it.judge(at(second + 1), session, Fingerprint(prompt))
        };
        assert_eq!(offend(&mut it, 0, session, 1), Some(Circle::Request));
        assert_eq!(it.check(at(5), session, Fingerprint(50), true), None);
        assert_eq!(offend(&mut it, 10, session, 2), Some(Circle::Session));
        assert_eq!(it.check(at(15), session, Fingerprint(50), true), Some(Circle::Session));
        assert_eq!(offend(&mut it, 20, key(1, 78), 3), Some(Circle::NewSessions));
        assert_eq!(
            it.check(at(25), key(1, 90), Fingerprint(50), true),
            None,
            "it was there before"
        );
        assert_eq!(it.check(at(25), key(1, 90), Fingerprint(50), false), Some(Circle::NewSessions));
        assert_eq!(offend(&mut it, 30, key(1, 90), 4), Some(Circle::Workload));
        assert_eq!(it.check(at(35), key(1, 91), Fingerprint(51), true), Some(Circle::Workload));
        assert_eq!(it.check(at(35), key(2, 91), Fingerprint(51), false), None, "others go on");
        assert_eq!(it.held_total(), 4);
    }

    #[test]
    fn a_workload_that_offended_has_no_second_try_but_its_bystanders_keep_theirs() {
        let mut it = quarantine();
        death(&mut it, 0, 0, &[1]);
        death(&mut it, 3, 1, &[1]);
        assert!(judged(&mut it, 3, 1).is_some());
        let other = (key(2, 5), Fingerprint(5));
        let mine = (key(1, 6), Fingerprint(6));
        it.on_death(at(10), ReplicaId(2), [other, mine].into_iter());
        assert_eq!(it.judge(at(10), other.0, other.1), None);
        assert_eq!(it.judge(at(10), mine.0, mine.1), Some(Circle::NewSessions));
    }

    #[test]
    fn nothing_is_held_when_it_is_switched_off_or_when_nothing_is_known() {
        let mut off = Quarantine::new(QuarantineSettings { ttl: Duration::ZERO });
        let mut unknown = quarantine();
        for replica in 0..4 {
            death(&mut off, u64::from(replica), replica, &[1]);
            death(&mut unknown, u64::from(replica), replica, &[0]);
        }
        assert_eq!((judged(&mut off, 4, 1), judged(&mut unknown, 4, 0)), (None, None));
    }

    #[test]
    fn however_many_offend_its_memory_stays_within_its_bound() {
        let mut it = quarantine();
        for prompt in 1..5000 {
            let many: Vec<u64> = (prompt..prompt + 3000).collect();
            death(&mut it, 10 * prompt, 0, &many);
            it.hold(at(prompt), key(prompt, prompt), Fingerprint(prompt));
        }
        assert!(it.deaths.len() <= DEATHS_MAX);
        assert!(it.deaths.iter().all(|death| death.members.len() <= MEMBERS_MAX));
        assert!(it.requests.len() <= HELD_MAX && it.sessions.len() <= HELD_MAX);
        assert!(it.workloads.len() <= HELD_MAX);
        let bytes = it.deaths.iter().map(|it| it.members.capacity() * size_of::<Member>());
        assert!(bytes.sum::<usize>() + HELD_MAX * 96 < Quarantine::bytes_max());
        assert!(Quarantine::bytes_max() < 1 << 20);
    }
}
