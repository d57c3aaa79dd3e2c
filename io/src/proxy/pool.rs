//! One pool: its brain under one lock, and the replicas the brain speaks of. The lock is held for a
//! decision and never across a wait; what a decision needs is prepared before it is taken.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use cleave_core::brain::{Action, Brain, Event, Notice, Refusal, ReplicaLoad, Snapshot};
use cleave_core::domain::{Moment, ReplicaId, RequestId};
use cleave_core::protocol::Model;
use tokio_util::sync::CancellationToken;

use crate::replicas::{Origin, ProbeSettings};
use crate::telemetry::{Events, PoolMetrics};

use super::announce::incident;
use super::clock::Clock;
use super::settings::PoolSettings;

#[derive(Debug)]
pub struct Pool {
    pub name: String,
    pub(super) metrics: PoolMetrics,
    clock: Clock,
    events: Arc<Events>,
    mind: Mutex<Mind>,
    members: ArcSwap<Vec<Arc<Member>>>,
    spec: ArcSwap<PoolSettings>,
}

/// The brain and the list it writes its actions to, reused.
#[derive(Debug)]
struct Mind {
    brain: Brain,
    actions: Vec<Action>,
}

/// One replica, as the data plane needs it.
#[derive(Debug)]
pub(super) struct Member {
    pub id: ReplicaId,
    pub origin: Origin,
    /// When a byte last came from it, in the clock's nanoseconds; 0 for never.
    last_byte: AtomicU64,
    /// What it says it serves.
    pub(super) models: ArcSwap<Vec<Model>>,
    /// Ends its probing.
    pub(super) gone: CancellationToken,
}

impl Member {
    fn new(id: ReplicaId, origin: Origin) -> Arc<Self> {
        let (last_byte, models, gone) = Default::default();
        Arc::new(Self { id, origin, last_byte, models, gone })
    }

    pub(super) fn on_byte(&self, now: Moment) {
        self.last_byte.store(now.as_nanos(), Relaxed);
    }

    pub(super) fn last_byte_at(&self) -> Option<Moment> {
        let nanos = self.last_byte.load(Relaxed);
        (nanos != 0).then(|| Moment::from_nanos(nanos))
    }
}

impl Pool {
    pub(super) fn new(
        settings: PoolSettings,
        metrics: PoolMetrics,
        clock: Clock,
        events: Arc<Events>,
    ) -> Arc<Self> {
        let brain = Brain::new(settings.brain.clone());
        Arc::new(Self {
            name: settings.name.clone(),
            metrics,
            clock,
            events,
            mind: Mutex::new(Mind { brain, actions: Vec::new() }),
            members: ArcSwap::default(),
            spec: ArcSwap::from_pointee(PoolSettings { replicas: Vec::new(), ..settings }),
        })
    }

    pub fn snapshot(&self) -> Snapshot {
        self.lock().brain.snapshot()
    }

    /// What is booked on each replica.
    pub fn load(&self) -> Vec<ReplicaLoad> {
        self.lock().brain.load()
    }

    /// What it serves, as far as is known.
    pub fn models(&self) -> Vec<String> {
        super::table::models_of(self).into_iter().map(|it| it.id).collect()
    }

    pub(super) fn spec(&self) -> Arc<PoolSettings> {
        self.spec.load_full()
    }

    pub(super) fn members(&self) -> Arc<Vec<Arc<Member>>> {
        self.members.load_full()
    }

    pub(super) fn probe_settings(&self) -> ProbeSettings {
        self.spec.load().probe.clone()
    }

    /// Asks the brain where a request goes, now or next.
    pub(super) fn place(&self, request: RequestId, event: Event) -> Result<Arc<Member>, Refusal> {
        let mut verdict = None;
        self.tell_and(event, |action| match *action {
            Action::Send { request: whose, replica } if whose == request => {
                verdict = Some(Ok(replica));
            }
            Action::Refuse { request: whose, refusal } if whose == request => {
                verdict = Some(Err(refusal));
            }
            Action::Send { .. } | Action::Refuse { .. } | Action::Release { .. } => {}
        });
        let replica = verdict.expect("the brain answers for every request that asks")?;
        let members = self.members.load();
        let at = members.binary_search_by_key(&replica, |it| it.id);
        Ok(members[at.expect("who can be chosen is a member")].clone())
    }

    /// Tells the brain what happened.
    pub(super) fn tell(&self, event: Event) {
        self.tell_and(event, |_| {});
    }

    /// Lets the brain tidy up.
    pub(super) fn on_time(&self) {
        self.lock().brain.on_time(self.clock.now());
    }

    fn tell_and(&self, event: Event, mut see: impl FnMut(&Action)) {
        let mut released = Vec::new();
        let notices = {
            let mut mind = self.lock();
            // Read under the lock, so that the brain's time never runs backwards.
            let now = self.clock.now();
            let Mind { brain, actions } = &mut *mind;
            brain.on_event(now, event, actions);
            for action in actions.drain(..) {
                see(&action);
                if let Action::Release { replica } = action {
                    released.push(replica);
                }
            }
            brain.take_notices()
        };
        notices.iter().for_each(|it| self.publish(it));
        for replica in released {
            self.release(replica);
        }
    }

    /// Takes on new settings: replicas come, change weight, or finish and leave. Returns those that
    /// came.
    pub(super) fn apply(&self, new: PoolSettings, ids: &AtomicU32) -> Vec<Arc<Member>> {
        let members = self.members();
        let present: BTreeMap<&Origin, &Arc<Member>> = members
            .iter()
            .filter(|it| !it.gone.is_cancelled())
            .map(|it| (&it.origin, it))
            .collect();
        let wanted: BTreeMap<&Origin, f64> =
            new.replicas.iter().map(|it| (&it.origin, it.weight)).collect();
        let mut joined = Vec::new();
        for (origin, weight) in &wanted {
            match present.get(origin) {
                Some(member) => {
                    self.tell(Event::Weighed { replica: member.id, weight: *weight });
                }
                None => joined.push(self.join((*origin).clone(), *weight, ids)),
            }
        }
        for (origin, member) in present {
            if !wanted.contains_key(origin) {
                member.gone.cancel();
                self.tell(Event::Leaving { replica: member.id });
            }
        }
        self.spec.store(Arc::new(new));
        joined
    }

    fn join(&self, origin: Origin, weight: f64, ids: &AtomicU32) -> Arc<Member> {
        let member = Member::new(ReplicaId(ids.fetch_add(1, Relaxed)), origin);
        // First a member, then a candidate: who can be chosen must be found.
        self.members.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(member.clone());
            all
        });
        let name = member.origin.as_str().to_owned();
        self.tell(Event::Joined { replica: member.id, name, weight });
        member
    }

    /// Tells operators, while the replica is still known by its address.
    fn publish(&self, notice: &Notice) {
        let members = self.members.load();
        let member = members.iter().find(|it| it.id == notice.replica());
        let replica = member.map(|it| it.origin.as_str().to_owned());
        self.events.publish(incident(&self.name, replica, notice));
    }

    fn release(&self, replica: ReplicaId) {
        self.members
            .rcu(|all| all.iter().filter(|it| it.id != replica).cloned().collect::<Vec<_>>());
    }

    fn lock(&self) -> MutexGuard<'_, Mind> {
        // A panic in one request must not take the others; the brain's own asserts guard its books.
        self.mind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use cleave_core::brain::{self, Outcome, SessionSettings};
    use cleave_core::domain::{SliceKey, Usage};
    use cleave_core::fleet::Probe;

    use crate::proxy::settings::ReplicaSettings;
    use crate::telemetry::Metrics;

    use super::*;

    const SESSIONS: u64 = 1_000_000;
    const THREADS: u64 = 8;
    const TABLE_BYTES: usize = 1 << 20;
    /// Bytes the table takes for one session.
    const SESSION_BYTES: usize = 16;

    fn pool_of(replicas: u32) -> Arc<Pool> {
        let replica = |number| ReplicaSettings {
            origin: format!("http://replica-{number}:8000").parse().unwrap(),
            weight: 1.0,
        };
        let sessions = SessionSettings { bytes_max: TABLE_BYTES, ..SessionSettings::default() };
        let settings = PoolSettings {
            name: "stress".to_owned(),
            models: Vec::new(),
            aliases: BTreeMap::new(),
            replicas: (0..replicas).map(replica).collect(),
            brain: brain::Settings { sessions, ..brain::Settings::default() },
            probe: ProbeSettings::default(),
        };
        let pool = Pool::new(
            settings.clone(),
            Metrics::default().pool("stress"),
            Clock::start(),
            Arc::default(),
        );
        for member in pool.apply(settings, &AtomicU32::new(0)) {
            pool.tell(Event::Probed { replica: member.id, probe: Probe::Passed });
        }
        pool
    }

    /// Takes one turn of a session from its arrival to its end; returns who served it.
    fn turn(pool: &Pool, request: u64, session: u64) -> ReplicaId {
        let (request, key) = (RequestId(request), SliceKey::new(1, "m", &session.to_string()));
        let (outline, extent) = Default::default();
        let member = pool.place(request, Event::Arrived { request, key, outline, extent }).unwrap();
        pool.tell(Event::Answering { request });
        let (outcome, usage) = (Outcome::Done, Usage::default());
        pool.tell(Event::Ended { request, outcome, usage });
        member.id
    }

    #[test]
    fn a_million_sessions_from_many_threads_stay_within_their_bytes_and_none_is_lost() {
        let pool = pool_of(8);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let pool = &pool;
                scope.spawn(move || {
                    for session in (thread..SESSIONS).step_by(8) {
                        let home = turn(pool, session, session);
                        // Every hundredth comes back, perhaps after it was forgotten.
                        if session % 100 == thread {
                            assert_eq!(turn(pool, SESSIONS + session, session), home);
                        }
                    }
                });
            }
        });
        let snapshot = pool.snapshot();
        let again = (0..SESSIONS).filter(|it| it % 100 == it % THREADS).count();
        let sent: u64 = snapshot.replicas.iter().map(|it| it.sent_total).sum();
        assert_eq!(sent, SESSIONS + u64::try_from(again).unwrap());
        assert_eq!((snapshot.requests_in_flight, snapshot.sessions_moved_total), (0, 0));
        let held: u32 = snapshot.replicas.iter().map(|it| it.sessions).sum();
        let capacity = TABLE_BYTES / SESSION_BYTES;
        assert!((capacity / 2..=capacity).contains(&usize::try_from(held).unwrap()), "{held}");
    }
}
