//! One pool: its brain under one lock, and the replicas the brain speaks of. The lock is held for a
//! decision and never across a wait; what a decision needs is prepared before it is taken.

mod brain_state;
mod cluster;
mod live;
mod member;
mod ordering;
mod recovery;
mod roster;
mod scaling;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trap;
mod troubles;
mod verdict;
mod views;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cleave_core::brain::{self, Event, Notice, Refusal};
use cleave_core::cost::learned::Learned;
use cleave_core::domain::{Moment, ReplicaId};
use cleave_core::queue::Classes;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use crate::replicas::{ProbeSettings, Trouble};
use crate::telemetry::{Events, PoolMetrics};
use crate::tokenizer::Tokenizer;

use super::announce::{denied, incident, never_up, rebuilt};
use super::clock::Clock;
use super::flow::FlowMeter;
use super::orders::StandingOrders;
use super::panics::attempt;
use super::scale::ScaleBoard;
use super::settings::{CacheScope, PoolSettings};
use super::sharing::Sharing;

use self::brain_state::BrainState;
use self::recovery::Recovery;

pub(super) use self::brain_state::Question;
pub use self::live::LiveMember;
pub(super) use self::member::{KeyUse, Member, WaitingRequest};
pub use self::scaling::ScaledReplica;
#[cfg(test)]
pub(super) use self::trap::{KINDS, Trap, When};

/// Timers are no finer than this.
const WAKE_PAUSE_MIN: Duration = Duration::from_millis(1);
/// How soon it is noticed that the pool has no owner any more.
const WAKE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// More than the brain ever makes a request wait beside the line.
const VERDICT_MARGIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Pool {
    pub name: String,
    /// Its name to other routers.
    key: u64,
    /// Where other routers are told what happens; `None` for a router that is alone.
    sharing: Option<Arc<Sharing>>,
    pub(super) metrics: PoolMetrics,
    /// What has ended since the last sample.
    pub(super) flow: FlowMeter,
    /// What was last advised about the number of its replicas.
    pub scale: ScaleBoard,
    clock: Clock,
    events: Arc<Events>,
    classes: Classes,
    brain_state: Mutex<BrainState>,
    standing: Mutex<StandingOrders>,
    /// What unwinding threads had to tell, for the timer to pass on.
    later: Mutex<Vec<Event>>,
    /// Told when the brain wants to be woken sooner than was planned.
    sooner: Arc<Notify>,
    members: ArcSwap<Vec<Arc<Member>>>,
    spec: ArcSwap<PoolSettings>,
    /// How long the last round of planning took.
    planning_nanos: AtomicU64,
    /// How much longer than its class may wait a request waits for a verdict.
    verdict_margin: Duration,
}

/// Wakes the brain of a pool whenever it asks for it, for as long as the pool has an owner.
pub(super) async fn keep_time(pool: Weak<Pool>) {
    loop {
        let Some(there) = pool.upgrade() else { return };
        let (next, sooner) = (there.on_time(), Arc::clone(&there.sooner));
        let pause = next.since(there.clock.now()).clamp(WAKE_PAUSE_MIN, WAKE_PAUSE_MAX);
        drop(there);
        tokio::select! {
            () = sleep(pause) => {}
            () = sooner.notified() => sleep(WAKE_PAUSE_MIN).await,
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
        sharing: Option<Arc<Sharing>>,
    ) -> Arc<Self> {
        let router = sharing.as_ref().map(|it| it.router());
        let brain = brain::Settings { router, ..settings.brain.clone() };
        Arc::new(Self {
            name: settings.name.clone(),
            key: Self::key_of(&settings.name),
            sharing,
            metrics,
            flow: FlowMeter::default(),
            scale: ScaleBoard::default(),
            clock,
            events,
            classes: settings.brain.line.classes.clone(),
            brain_state: Mutex::new(BrainState::new(brain, questions)),
            standing: Mutex::default(),
            later: Mutex::default(),
            sooner: Arc::default(),
            members: ArcSwap::default(),
            spec: ArcSwap::from_pointee(PoolSettings { replicas: Vec::new(), ..settings }),
            planning_nanos: AtomicU64::new(0),
            verdict_margin: VERDICT_MARGIN,
        })
    }

    /// The classes of its requests, as at its start.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Says which parts of its brain are on, as at its start.
    pub fn parts(&self) -> String {
        self.lock().settings.summary()
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

    /// How long the last round of planning took, with all else that was due then.
    pub(super) fn planning(&self) -> Duration {
        Duration::from_nanos(self.planning_nanos.load(Relaxed))
    }

    /// Hands the brain what an earlier run has learned of costs.
    pub(super) fn recall(&self, costs: Vec<Learned>) {
        self.tell(Event::Recalled { costs });
    }

    /// Tells the brain what happened. An unwinding thread leaves that to others: the brain is not
    /// called while its caller panics.
    pub(super) fn tell(&self, event: Event) {
        if thread::panicking() {
            self.later.lock().unwrap_or_else(PoisonError::into_inner).push(event);
            return self.sooner.notify_one();
        }
        // The waiting requests have been told of a panic, and no other asks for more.
        _ = self.think(|brain_state, now| {
            if let Event::Ended { request, .. } = event {
                brain_state.forget(request);
            }
            brain_state.hear(now, event);
        });
    }

    /// Lets the brain do what only time brings; returns when it wants to be woken next.
    fn on_time(&self) -> Moment {
        let later = std::mem::take(&mut *self.later.lock().unwrap_or_else(PoisonError::into_inner));
        for event in later {
            self.tell(event);
        }
        let members = self.members.load();
        let woken = self.think(|brain_state, now| {
            let rounds = brain_state.brain.rounds_planned();
            for member in members.iter() {
                let replica = member.id;
                let heard = match member.last_byte_at() {
                    _ if !member.is_awaited() => Event::Unawaited { replica },
                    Some(at) => Event::Sign { replica, at },
                    None => continue,
                };
                brain_state.hear(now, heard);
            }
            if let Some(leads) = self.sharing.as_ref().map(|it| it.leads())
                && leads != brain_state.brain.leads()
            {
                brain_state.hear(now, Event::Elected { leads });
            }
            let next = brain_state.pass_time(now);
            if rounds != brain_state.brain.rounds_planned() {
                let took = self.clock.now().since(now).as_nanos();
                self.planning_nanos.store(u64::try_from(took).unwrap_or(u64::MAX), Relaxed);
            }
            next
        });
        // After a panic the new brain is woken soon.
        woken.unwrap_or_else(|_| self.clock.now())
    }

    /// Has the brain think about something, under the lock, and hands out what it decided.
    fn think<T>(&self, about: impl FnOnce(&mut BrainState, Moment) -> T) -> Result<T, Refusal> {
        let mut released = Vec::new();
        let thought = self.guard(&mut released, |brain_state, now, released| {
            let thought = about(brain_state, now);
            if brain_state.is_due_sooner() {
                self.sooner.notify_one();
            }
            let notices = brain_state.brain.take_notices();
            if let Some(sharing) = &self.sharing {
                // Under the lock, so that others hear of it in the order in which it happened.
                sharing.tell(self.key, brain_state.brain.take_news());
            }
            brain_state.hand_out(released);
            (thought, notices)
        });
        let thought = thought.map(|(thought, notices)| {
            for notice in &notices {
                self.publish(notice);
            }
            thought
        });
        for replica in released {
            self.release(replica);
        }
        thought
    }

    /// Does something with the brain under the lock, the only way to it for whatever may change it.
    /// If the brain panics, the pool has a new one before the lock is free.
    fn guard<T>(
        &self,
        released: &mut Vec<ReplicaId>,
        work: impl FnOnce(&mut BrainState, Moment, &mut Vec<ReplicaId>) -> T,
    ) -> Result<T, Refusal> {
        let recovery = {
            let mut brain_state = self.lock();
            // Read under the lock, so that the brain's time never runs backwards.
            let now = self.clock.now();
            let done = attempt(|| {
                brain_state.reopen(now);
                work(&mut brain_state, now, released)
            });
            if let Ok(done) = done {
                return Ok(done);
            }
            let recovery = brain_state.recover(now);
            brain_state.hand_out(released);
            recovery
        };
        Err(self.on_panic(recovery))
    }

    /// Counts a panic and tells of it: of the first ones, then more rarely, so that a flood of them does
    /// not push everything else out of `/events`.
    fn on_panic(&self, recovery: Recovery) -> Refusal {
        let (refusal, Recovery { remedy, kept, refused, old }) = (recovery.refusal(), recovery);
        self.metrics.panics.inc();
        self.sooner.notify_one();
        if remedy.in_row.is_power_of_two() {
            self.events.publish(rebuilt(&self.name, remedy, kept, refused));
        }
        // What is half changed may not even drop well.
        _ = attempt(|| drop(old));
        refusal
    }

    /// Tells operators, while the replica is still known by its address.
    fn publish(&self, notice: &Notice) {
        let members = self.members.load();
        let member = members.iter().find(|it| it.id == notice.replica());
        let replica = member.map(|it| it.origin.as_str().to_owned());
        let trouble = member.and_then(|it| it.trouble());
        self.events.publish(incident(&self.name, replica, trouble.as_ref(), notice));
    }

    /// Counts an answer by which a replica refused the router's key, and tells operators of the first in a
    /// row.
    pub(super) fn on_denied(&self, member: &Member, what: KeyUse) {
        if member.on_denied(what) {
            let has_key = member.access().key.is_some();
            self.events.publish(denied(&self.name, member.origin.as_str(), has_key));
        }
    }

    /// Notes what a probe found wrong with a replica, and tells operators of one that never came up.
    pub(super) fn on_trouble(&self, member: &Member, found: Option<&Trouble>) {
        if member.on_probed(found)
            && let Some(found) = found
        {
            self.events.publish(never_up(&self.name, member.origin.as_str(), found));
        }
    }

    /// Has its brain panic; for tests.
    #[cfg(test)]
    pub(super) fn set_trap(&self, trap: Trap) {
        self.lock().trap = trap;
    }

    /// Counts the panics that its traps have brought; for tests.
    #[cfg(test)]
    pub(super) fn traps_sprung(&self) -> u32 {
        self.lock().trap.sprung
    }

    fn lock(&self) -> MutexGuard<'_, BrainState> {
        // Panics of the brain are contained while the lock is held, so that it is never half changed.
        match self.brain_state.try_lock() {
            Ok(free) => free,
            Err(TryLockError::Poisoned(free)) => free.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let asked = Instant::now();
                let held = self.brain_state.lock().unwrap_or_else(PoisonError::into_inner);
                self.metrics.lock_wait.observe(asked.elapsed().as_secs_f64());
                held
            }
        }
    }
}
