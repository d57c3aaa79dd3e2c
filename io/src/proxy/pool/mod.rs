//! One pool: its brain under one lock, and the replicas the brain speaks of. The lock is held for a
//! decision and never across a wait; what a decision needs is prepared before it is taken.

mod member;
mod mind;
mod roster;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use cleave_core::brain::{
    AssignmentView, Brain, Event, Explanation, Notice, Order, Refusal, ReplicaLoad, Shadows,
    Snapshot, TenantSnapshot, Waited, WorkloadDrift,
};
use cleave_core::domain::{Moment, RequestId};
use cleave_core::queue::{Classes, Tenant, Usage};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use crate::replicas::{Origin, ProbeSettings};
use crate::telemetry::{Events, PoolMetrics};
use crate::tokenizer::Tokenizer;

use super::announce::{incident, ordered};
use super::clock::Clock;
use super::recall::Recall;
use super::settings::{CacheScope, PoolSettings};

use self::mind::{Asked, Mind};

pub(super) use self::member::{Member, Waiting};
pub(super) use self::mind::Question;

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

    /// Passes an order on, and tells of it.
    pub fn order(&self, order: Order) {
        let members = self.members.load();
        let address = |id| members.iter().find(|it| it.id == id).map(|it| it.origin.as_str());
        if let Some(told) = ordered(&self.name, &order, address) {
            self.events.publish(told);
        }
        self.tell(Event::Ordered(order));
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
                    _ if !member.is_awaited() => Event::Unawaited { replica },
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

    /// Tells operators, while the replica is still known by its address.
    fn publish(&self, notice: &Notice) {
        let members = self.members.load();
        let member = members.iter().find(|it| it.id == notice.replica());
        let replica = member.map(|it| it.origin.as_str().to_owned());
        self.events.publish(incident(&self.name, replica, notice));
    }

    fn lock(&self) -> MutexGuard<'_, Mind> {
        // A panic in one request must not take the others; the brain's own asserts guard its books.
        self.mind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
