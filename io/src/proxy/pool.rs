//! One pool: its brain under one lock, and the replicas the brain speaks of. The lock is held for a
//! decision and never across a wait; what a decision needs is prepared before it is taken.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use cleave_core::brain::{
    Action, AssignmentView, Brain, Event, Explanation, Notice, Order, Refusal, ReplicaLoad,
    Shadows, Snapshot, TenantSnapshot, Waited, WorkloadDrift,
};
use cleave_core::domain::{Birth, Moment, ReplicaId, RequestId};
use cleave_core::protocol::Model;
use cleave_core::queue::{Classes, Tenant, Usage};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use twox_hash::XxHash3_64;

use crate::replicas::{Origin, ProbeSettings};
use crate::telemetry::{Events, PoolMetrics};
use crate::tokenizer::Tokenizer;

use super::announce::incident;
use super::clock::Clock;
use super::recall::Recall;
use super::settings::{CacheScope, PoolSettings, ReplicaSettings};

/// Timers are no finer than this.
const WAKE_PAUSE_MIN: Duration = Duration::from_millis(1);
/// How soon it is noticed that nobody has the pool any more.
const WAKE_PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Pool {
    pub name: String,
    pub(super) metrics: PoolMetrics,
    clock: Clock,
    events: Arc<Events>,
    classes: Classes,
    mind: Mutex<Mind>,
    /// Told when the brain wants to be woken sooner than was planned.
    sooner: Arc<Notify>,
    members: ArcSwap<Vec<Arc<Member>>>,
    spec: ArcSwap<PoolSettings>,
    /// How long the last round of planning took.
    planning_nanos: AtomicU64,
}

type Verdict = Result<ReplicaId, Refusal>;

/// The brain, the list it writes its actions to, reused, and those who wait for one.
#[derive(Debug)]
struct Mind {
    brain: Brain,
    actions: Vec<Action>,
    /// Requests without a verdict yet. As many as the brain holds, which bounds them.
    waiting: BTreeMap<RequestId, oneshot::Sender<Verdict>>,
    /// Requests that are at a replica, should they have to give it up.
    recalls: HashMap<RequestId, Arc<Recall>>,
    questions: mpsc::Sender<Question>,
    /// When the brain is woken next.
    wake_at: Moment,
}

/// A replica that is to be asked for a token, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) replica: ReplicaId,
    pub(super) limit: Duration,
}

/// What came of asking the brain.
#[derive(Debug)]
enum Asked {
    Now(Verdict),
    Later(oneshot::Receiver<Verdict>),
}

impl Mind {
    fn new(brain: Brain, questions: mpsc::Sender<Question>) -> Self {
        let (actions, waiting, recalls) = Default::default();
        Self { brain, actions, waiting, recalls, questions, wake_at: Moment::ZERO }
    }

    /// Takes the verdict on a request that has just asked, or a place among those who wait for one.
    fn take_verdict(&mut self, request: RequestId) -> Asked {
        let own = |action: &Action| action.verdict().filter(|it| it.0 == request);
        let found = self.actions.iter().enumerate().find_map(|(at, it)| Some((at, own(it)?.1)));
        if let Some((at, verdict)) = found {
            self.actions.remove(at);
            if verdict.is_err() {
                self.recalls.remove(&request);
            }
            return Asked::Now(verdict);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(request, sender);
        Asked::Later(receiver)
    }

    /// Hands verdicts to those who wait for them, calls back those who wait in vain, passes questions
    /// on, and lists the replicas that are let go.
    fn hand_out(&mut self, released: &mut Vec<ReplicaId>) {
        for action in self.actions.drain(..) {
            if let Some((request, verdict)) = action.verdict()
                && let Some(waiting) = self.waiting.remove(&request)
            {
                if verdict.is_err() {
                    self.recalls.remove(&request);
                }
                // Who is no longer there tells the brain so, which then takes it off its books.
                _ = waiting.send(verdict);
            }
            match action {
                Action::Send { .. } | Action::Refuse { .. } => {}
                Action::Release { replica } => released.push(replica),
                Action::GiveUp { request, replica } => {
                    if let Some(recall) = self.recalls.get(&request) {
                        recall.give_up(replica);
                    }
                }
                // With more questions open than there is room for, the brain asks again later.
                Action::Ask { replica, limit } => {
                    _ = self.questions.try_send(Question { replica, limit });
                }
            }
        }
    }

    /// Tells whether the brain wants to be woken before it was going to be.
    fn is_due_sooner(&mut self) -> bool {
        let next = self.brain.next_wakeup().filter(|at| *at < self.wake_at);
        self.wake_at = next.unwrap_or(self.wake_at);
        next.is_some()
    }
}

/// Wakes the brain of a pool whenever it asks for it, for as long as anybody has the pool.
pub(super) fn keep_time(pool: &Arc<Pool>) -> impl Future<Output = ()> + Send + use<> {
    let (clock, sooner) = (pool.clock, Arc::clone(&pool.sooner));
    let pool = Arc::downgrade(pool);
    async move {
        loop {
            let Some(next) = pool.upgrade().map(|it| it.on_time()) else { return };
            let pause = next.since(clock.now()).clamp(WAKE_PAUSE_MIN, WAKE_PAUSE_MAX);
            tokio::select! {
                () = sleep(pause) => {}
                () = sooner.notified() => sleep(WAKE_PAUSE_MIN).await,
            }
        }
    }
}

/// One replica, as the data plane needs it.
#[derive(Debug)]
pub(super) struct Member {
    pub id: ReplicaId,
    pub origin: Origin,
    /// When a byte last came from it, in the clock's nanoseconds; 0 for never.
    last_byte: AtomicU64,
    /// How many wait for it at this moment, rather than for their client.
    awaited: AtomicU32,
    /// What it says it serves.
    pub(super) models: ArcSwap<Vec<Model>>,
    /// Which process answers there, where it tells.
    birth: Mutex<Option<Birth>>,
    /// Ends its probing.
    pub(super) gone: CancellationToken,
}

impl Member {
    fn new(id: ReplicaId, origin: Origin) -> Arc<Self> {
        let (last_byte, awaited, models, birth, gone) = Default::default();
        Arc::new(Self { id, origin, last_byte, awaited, models, birth, gone })
    }

    pub(super) fn on_byte(&self, now: Moment) {
        self.last_byte.store(now.as_nanos(), Relaxed);
    }

    /// Counts one who waits for it, until that is dropped.
    pub(super) fn wait(self: &Arc<Self>) -> Waiting {
        self.awaited.fetch_add(1, Relaxed);
        Waiting(Arc::clone(self))
    }

    /// Notes what its engine says of its own life; tells whether that is another one than before.
    pub(super) fn is_reborn(&self, birth: Birth) -> bool {
        let mut known = self.birth.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.replace(birth);
        before.is_some_and(|it| birth.is_after(&it))
    }

    pub(super) fn last_byte_at(&self) -> Option<Moment> {
        let nanos = self.last_byte.load(Relaxed);
        (nanos != 0).then(|| Moment::from_nanos(nanos))
    }
}

/// Somebody who waits for a replica.
#[derive(Debug)]
pub(super) struct Waiting(Arc<Member>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Relaxed);
    }
}

impl Pool {
    pub(super) fn new(
        settings: PoolSettings,
        metrics: PoolMetrics,
        clock: Clock,
        events: Arc<Events>,
        questions: mpsc::Sender<Question>,
    ) -> Arc<Self> {
        let brain = Brain::new(settings.brain.clone());
        Arc::new(Self {
            name: settings.name.clone(),
            metrics,
            clock,
            events,
            classes: settings.brain.line.classes.clone(),
            mind: Mutex::new(Mind::new(brain, questions)),
            sooner: Arc::default(),
            members: ArcSwap::default(),
            spec: ArcSwap::from_pointee(PoolSettings { replicas: Vec::new(), ..settings }),
            planning_nanos: AtomicU64::new(0),
        })
    }

    pub fn snapshot(&self) -> Snapshot {
        self.lock().brain.snapshot()
    }

    /// The classes of its requests, as at its start.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// What each tenant has used.
    pub fn tenants(&self) -> Vec<TenantSnapshot> {
        self.lock().brain.tenants()
    }

    /// Where a tenant stands; nothing for one without a contract.
    pub(super) fn contract(&self, tenant: Tenant) -> Option<Usage> {
        self.lock().brain.contract(self.clock.now(), tenant)
    }

    /// What is booked on each replica.
    pub fn load(&self) -> Vec<ReplicaLoad> {
        self.lock().brain.load(self.clock.now())
    }

    /// What was predicted for decisions that were kept.
    pub fn shadows(&self) -> Shadows {
        self.lock().brain.shadows()
    }

    /// Has the next decision on a request explained.
    pub(super) fn explain(&self, request: RequestId) {
        self.lock().brain.explain(request);
    }

    /// Takes what was written down of a request since it was marked: what it went through before it was
    /// sent, and why it was sent where it was.
    pub(super) fn take_explanation(
        &self,
        request: RequestId,
    ) -> (Option<Waited>, Option<Explanation>) {
        let brain = &mut self.lock().brain;
        (brain.take_waited(request), brain.take_explanation(request))
    }

    /// How far predictions of work were off, for each workload.
    pub(super) fn workload_drifts(&self) -> Vec<WorkloadDrift> {
        self.lock().brain.workload_drifts()
    }

    /// What it serves, as far as is known.
    pub fn models(&self) -> Vec<String> {
        super::table::models_of(self).into_iter().map(|it| it.id).collect()
    }

    /// The model by which a replica is asked for a token: the first it lists, or is known to serve.
    pub(super) fn model_of(&self, member: &Member) -> String {
        let listed = member.models.load().first().map(|it| it.id.clone());
        listed.or_else(|| self.spec.load().models.first().cloned()).unwrap_or_default()
    }

    /// Tells whether a replica that lists these models belongs here: it serves something that the pool
    /// is configured to serve or, failing that, that another of its replicas serves.
    pub(super) fn is_served_by(&self, member: &Member, models: &[Model]) -> bool {
        let spec = self.spec.load();
        let configured = || spec.models.iter().any(|id| models.iter().any(|it| it.id == *id));
        if !spec.models.is_empty() || models.is_empty() {
            return models.is_empty() || configured();
        }
        let members = self.members.load();
        let others: Vec<_> = members
            .iter()
            .filter(|it| it.id != member.id)
            .map(|it| it.models.load_full())
            .filter(|it| !it.is_empty())
            .collect();
        let shares =
            |theirs: &Vec<Model>| theirs.iter().any(|it| models.iter().any(|own| own.id == it.id));
        others.is_empty() || others.iter().any(|it| shares(it))
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

    pub(super) fn tokenizer(&self) -> Option<Tokenizer> {
        self.spec.load().tokenizer.clone()
    }

    /// Tells whether tenants may not find each other's prompts in a cache.
    pub(super) fn keeps_tenants_apart(&self) -> bool {
        self.spec.load().cache == CacheScope::PerTenant
    }

    /// Shows which replicas hold which keys.
    pub fn assignment(&self) -> AssignmentView {
        self.lock().brain.assignment(self.clock.now())
    }

    /// How long the last round of planning took, with all else that was due then.
    pub(super) fn planning(&self) -> Duration {
        Duration::from_nanos(self.planning_nanos.load(Relaxed))
    }

    /// Passes an order on.
    pub fn order(&self, order: Order) {
        self.tell(Event::Ordered(order));
    }

    /// Finds a replica by its address, with or without the scheme.
    pub fn find(&self, address: &str) -> Option<ReplicaId> {
        let members = self.members.load();
        let found = members.iter().filter(|it| !it.gone.is_cancelled());
        let named =
            |it: &&Arc<Member>| it.origin.as_str() == address || it.origin.authority() == address;
        found.into_iter().find(named).map(|it| it.id)
    }

    /// Names who served the session of a request before, if it has moved.
    pub(super) fn moved_from(&self, request: RequestId) -> Option<Origin> {
        let replica = self.lock().brain.moved_from(request)?;
        let members = self.members.load();
        members.iter().find(|it| it.id == replica).map(|it| it.origin.clone())
    }

    /// Asks the brain where a request goes, now or next, and waits while it cannot say. Who stops
    /// waiting must tell the brain that the request has ended.
    pub(super) async fn place(
        &self,
        request: RequestId,
        recall: &Arc<Recall>,
        event: Event,
    ) -> Result<Arc<Member>, Refusal> {
        let asked = self.think(|mind, now| {
            mind.recalls.insert(request, Arc::clone(recall));
            mind.brain.on_event(now, event, &mut mind.actions);
            mind.take_verdict(request)
        });
        let verdict = match asked {
            Asked::Now(verdict) => verdict,
            Asked::Later(coming) => {
                coming.await.expect("the brain answers for every request that asks")
            }
        };
        let replica = verdict?;
        let members = self.members.load();
        let at = members.binary_search_by_key(&replica, |it| it.id);
        Ok(members[at.expect("who can be chosen is a member")].clone())
    }

    /// Tells the brain what happened.
    pub(super) fn tell(&self, event: Event) {
        self.think(|mind, now| {
            if let Event::Ended { request, .. } = event {
                mind.waiting.remove(&request);
                mind.recalls.remove(&request);
            }
            mind.brain.on_event(now, event, &mut mind.actions);
        });
    }

    /// Lets the brain do what only time brings; returns when it wants to be woken next.
    fn on_time(&self) -> Moment {
        let members = self.members.load();
        self.think(|mind, now| {
            let rounds = mind.brain.rounds_planned();
            for member in members.iter() {
                let replica = member.id;
                let heard = match member.last_byte_at() {
                    _ if member.awaited.load(Relaxed) == 0 => Event::Unawaited { replica },
                    Some(at) => Event::Sign { replica, at },
                    None => continue,
                };
                mind.brain.on_event(now, heard, &mut mind.actions);
            }
            mind.brain.on_time(now, &mut mind.actions);
            if rounds != mind.brain.rounds_planned() {
                let took = self.clock.now().since(now).as_nanos();
                self.planning_nanos.store(u64::try_from(took).unwrap_or(u64::MAX), Relaxed);
            }
            mind.wake_at = mind.brain.next_wakeup().unwrap_or(Moment::MAX);
            mind.wake_at
        })
    }

    /// Has the brain think about something, under the lock, and hands out what it decided.
    fn think<T>(&self, about: impl FnOnce(&mut Mind, Moment) -> T) -> T {
        let mut released = Vec::new();
        let (thought, notices) = {
            let mut mind = self.lock();
            // Read under the lock, so that the brain's time never runs backwards.
            let thought = about(&mut mind, self.clock.now());
            mind.hand_out(&mut released);
            if mind.is_due_sooner() {
                self.sooner.notify_one();
            }
            (thought, mind.brain.take_notices())
        };
        for notice in &notices {
            self.publish(notice);
        }
        for replica in released {
            self.release(replica);
        }
        thought
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
        let wanted: BTreeMap<&Origin, &ReplicaSettings> =
            new.replicas.iter().map(|it| (&it.origin, it)).collect();
        let mut joined = Vec::new();
        for (origin, replica) in &wanted {
            match present.get(origin) {
                Some(member) => {
                    self.tell(Event::Weighed { replica: member.id, weight: replica.weight });
                    let hardware = Arc::clone(&replica.hardware);
                    self.tell(Event::Classed { replica: member.id, hardware });
                    self.tell_zone(member.id, replica);
                }
                None => joined.push(self.join(replica, ids)),
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

    fn join(&self, replica: &ReplicaSettings, ids: &AtomicU32) -> Arc<Member> {
        let weight = replica.weight;
        let member = Member::new(ReplicaId(ids.fetch_add(1, Relaxed)), replica.origin.clone());
        // First a member, then a candidate: who can be chosen must be found.
        self.members.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(member.clone());
            all
        });
        let name = member.origin.as_str().to_owned();
        let hardware = Arc::clone(&replica.hardware);
        self.tell(Event::Joined { replica: member.id, name, weight, hardware });
        self.tell_zone(member.id, replica);
        member
    }

    fn tell_zone(&self, id: ReplicaId, replica: &ReplicaSettings) {
        // Names differ in their hashes, but for a chance of one in 2^32.
        let number = |it: &String| (XxHash3_64::oneshot(it.as_bytes()) >> 32).try_into().ok();
        let zone = replica.zone.as_ref().and_then(number);
        self.tell(Event::Ordered(Order::Zone { replica: id, zone }));
    }

    /// Names the zones of its replicas, by their address, as far as they are in one.
    pub fn zones(&self) -> BTreeMap<String, String> {
        let spec = self.spec.load();
        let zone = |it: &ReplicaSettings| Some((it.origin.as_str().to_owned(), it.zone.clone()?));
        spec.replicas.iter().filter_map(zone).collect()
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
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::thread;

    use cleave_core::brain::{self, Outcome, SessionSettings};
    use cleave_core::domain::{SliceKey, Usage};
    use cleave_core::fleet::Probe;
    use cleave_core::policy::PolicyName;
    use cleave_core::queue::Claim;

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
            hardware: Arc::default(),
            zone: None,
        };
        let sessions = SessionSettings { bytes_max: TABLE_BYTES, ..SessionSettings::default() };
        let settings = PoolSettings {
            name: "stress".to_owned(),
            models: Vec::new(),
            aliases: BTreeMap::new(),
            cache: CacheScope::Shared,
            tokenizer: None,
            replicas: (0..replicas).map(replica).collect(),
            brain: brain::Settings {
                policy: PolicyName::Session,
                sessions,
                ..brain::Settings::default()
            },
            probe: ProbeSettings::default(),
            resume: false,
        };
        let pool = Pool::new(
            settings.clone(),
            Metrics::default().pool("stress"),
            Clock::start(),
            Arc::default(),
            mpsc::channel(1).0,
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
        let arrived = Event::Arrived { request, key, outline, extent, claim: Claim::default() };
        let Poll::Ready(placed) = pin!(pool.place(request, &Arc::default(), arrived))
            .poll(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("nobody waits where there is room");
        };
        let member = placed.unwrap();
        pool.tell(Event::Answering { request });
        let (outcome, usage) = (Outcome::Done, Usage::default());
        pool.tell(Event::Ended { request, outcome, usage });
        member.id
    }

    #[test]
    fn a_verdict_that_comes_later_reaches_who_waits_for_it() {
        let mut mind = Mind::new(Brain::new(brain::Settings::default()), mpsc::channel(1).0);
        let [held, gone, quick] = [1, 2, 3].map(RequestId);
        let Asked::Later(mut coming) = mind.take_verdict(held) else { panic!("nothing was said") };
        drop(mind.take_verdict(gone));
        let replica = ReplicaId(7);
        let send = |request| Action::Send { request, replica };
        mind.actions = vec![send(held), send(quick), Action::Release { replica }, send(gone)];
        assert!(matches!(mind.take_verdict(quick), Asked::Now(Ok(ReplicaId(7)))));
        let mut released = Vec::new();
        mind.hand_out(&mut released);
        assert_eq!((coming.try_recv(), released), (Ok(Ok(replica)), vec![replica]));
        assert!(mind.waiting.is_empty() && mind.actions.is_empty());
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
