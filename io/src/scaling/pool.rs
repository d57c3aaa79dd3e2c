//! One pool that is scaled: what it is like, what is advised, and what is done about it, one thing at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use cleave_core::brain::Order;
use cleave_core::domain::{Moment, ReplicaId};
use cleave_core::scaling::{Advice, Reason, Rules, Scaler, victims};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::plan::{Plan, ScaleOrder, Scene, plan};
use super::starts::Starts;
use super::{BY, command, kubernetes};
use crate::proxy::{Actuator, Pool, Router, ScaleKind, ScaleStep, ScaledReplica, ScalingSettings};
use crate::telemetry::Incident;

/// How long after a failure the same is tried again, at first and at most.
const RETRY_MIN: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// What was asked for and has not come is asked for again, after this many start-up times.
const REPEAT_AFTER: u32 = 3;

const SOON: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct PoolScaler {
    scaler: Scaler,
    rules: Rules,
    starts: Starts,
    looked_at: Moment,
    advised: Option<Advice>,
    /// What the actuator was told last and did, and when.
    done: Option<(Moment, ScaleOrder)>,
    /// Replicas that are drained to be taken away, by address.
    victims: BTreeMap<String, ReplicaId>,
    /// Addresses of those that the actuator was told of.
    told: BTreeSet<String>,
    /// What the actuator does now, and how it will say that it is done.
    running: Option<(ScaleOrder, oneshot::Receiver<Result<(), String>>)>,
    failures: u32,
    retry_at: Moment,
}

fn rules(settings: &ScalingSettings) -> Rules {
    let ScalingSettings { min, max, start_up, .. } = *settings;
    let count = |it: u32| usize::try_from(it).unwrap_or(usize::MAX);
    Rules { min: count(min), max: count(max), start_up }
}

impl PoolScaler {
    pub(super) fn new(now: Moment, settings: &ScalingSettings) -> Self {
        let rules = rules(settings);
        Self {
            scaler: Scaler::new(rules),
            rules,
            starts: Starts::default(),
            looked_at: now,
            advised: None,
            done: None,
            victims: BTreeMap::new(),
            told: BTreeSet::new(),
            running: None,
            failures: 0,
            retry_at: Moment::ZERO,
        }
    }

    /// Looks at the pool, and does what is due.
    pub(super) fn tick(&mut self, router: &Router, pool: &Pool, settings: &ScalingSettings) {
        let now = pool.now();
        let elapsed = now.since(self.looked_at);
        self.looked_at = now;
        if self.rules != rules(settings) {
            self.rules = rules(settings);
            self.scaler.set_rules(self.rules);
        }
        let replicas = pool.scaled_replicas();
        if !pool.is_whole() || router.sharing().is_some_and(|it| it.is_joining()) {
            // They are found any moment, or other routers tell how many there should be.
            return pool.follow_work(Some(SOON));
        }
        for took in self.starts.look(now, &replicas) {
            self.scaler.on_ready(took);
        }
        let leads = router.sharing().is_none_or(|it| it.leads());
        let advice = self.advise(now, router, pool);
        pool.follow_work(Some(self.starts.next_in(now, self.scaler.start_up())));
        pool.scale.on_advice(SystemTime::now(), &advice, leads, elapsed);
        if leads {
            router.tell_size(pool);
        }
        self.tell(router, pool, &advice);
        self.take_result(now, router, pool);
        if settings.actuator != Actuator::None && leads {
            self.steer(now, router, pool, settings, &replicas, advice);
        }
    }

    fn advise(&mut self, now: Moment, router: &Router, pool: &Pool) -> Advice {
        let mut sample = pool.take_sample();
        // Where most of the routers are not heard, neither is most of the work.
        let is_alone = router.sharing().is_some_and(|it| !it.standing().has_majority());
        sample.is_missing |= is_alone;
        self.scaler.observe(now, &sample);
        let replicas = |it: u32| usize::try_from(it).unwrap_or(usize::MAX);
        let advice = match router.led_size(pool, self.advised.is_none()) {
            Some(it) => self.scaler.follow(now, replicas(it.replicas), it.reason),
            None => self.scaler.decide(now),
        };
        let before = self.advised.map_or_else(|| sample.there(), |it| it.wanted);
        self.starts.ask(now, advice.wanted.saturating_sub(before));
        self.starts.on_missing(advice.wanted.saturating_sub(sample.ready));
        advice
    }

    /// Tells operators of a number that changed, and of what they should look at.
    fn tell(&mut self, router: &Router, pool: &Pool, advice: &Advice) {
        let before = self.advised.replace(*advice);
        let (was, is) = (before.map_or(advice.terms.ready, |it| it.wanted), advice.wanted);
        let needs_care = matches!(
            advice.reason,
            Reason::MaxReached | Reason::NotComing | Reason::HalfOut | Reason::CapacityUnknown
        );
        let is_new = before.is_none_or(|it| it.reason != advice.reason);
        if was == is && !(needs_care && is_new) {
            return;
        }
        let state = match was.cmp(&is) {
            std::cmp::Ordering::Less => "growing",
            std::cmp::Ordering::Greater => "shrinking",
            std::cmp::Ordering::Equal => "staying",
        };
        router.events.publish(Incident {
            kind: "scaling",
            pool: Some(pool.name.clone()),
            state,
            reason: Some(advice.reason.as_str()),
            detail: Some(format!("{was} to {is} replicas: {}", advice.reason)),
            alert: needs_care && is_new,
            ..Incident::default()
        });
    }

    /// Takes in how the last step went, if it is over.
    fn take_result(&mut self, now: Moment, router: &Router, pool: &Pool) {
        let Some((order, coming)) = &mut self.running else { return };
        let result = match coming.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return,
            Err(oneshot::error::TryRecvError::Closed) => Err("it was lost".to_owned()),
            Ok(result) => result,
        };
        let order = std::mem::take(order);
        self.running = None;
        let error = result.err();
        if let Some(error) = &error {
            let pause = RETRY_MIN.saturating_mul(1 << self.failures.min(10)).min(RETRY_MAX);
            (self.failures, self.retry_at) = (self.failures.saturating_add(1), now + pause);
            router.events.publish(Incident {
                kind: "scaling",
                pool: Some(pool.name.clone()),
                state: "failed",
                detail: Some(format!("asked for {} replicas: {error}", order.replicas)),
                alert: true,
                ..Incident::default()
            });
        } else {
            (self.failures, self.retry_at) = (0, now);
            self.told.extend(order.victims.iter().cloned());
            self.done = Some((now, order.clone()));
        }
        let ScaleOrder { replicas, victims } = order;
        pool.scale.on_step(ScaleStep { at: SystemTime::now(), replicas, victims, error });
    }

    /// Drains what should go, and tells the actuator what is new to it.
    fn steer(
        &mut self,
        now: Moment,
        router: &Router,
        pool: &Pool,
        settings: &ScalingSettings,
        replicas: &[ScaledReplica],
        advice: Advice,
    ) {
        self.forget_gone(pool, replicas);
        let (leaving, held): (BTreeSet<String>, BTreeSet<String>) = split(pool);
        let idle = pool.drained_replicas();
        let (told, wanted) = (&self.told, advice.wanted);
        let scene = Scene { replicas, held: &held, leaving: &leaving, told, idle: &idle, wanted };
        let by_number = has_order(&settings.actuator);
        let made = plan(&scene, |count| {
            if by_number {
                let stays = |it: &&ScaledReplica| {
                    !leaving.contains(&it.address) && !held.contains(&it.address)
                };
                last_numbers(replicas.iter().filter(stays), count)
            } else {
                victims(&pool.holdings(), count)
            }
        });
        let Plan { drain, undrain, order } = made;
        let give = |order: Order| {
            // Orders are written down; one that cannot be is told of, and given again at the next look.
            _ = router.order_for_size(pool, order, BY);
        };
        for replica in undrain {
            give(Order::Undrain { replica });
        }
        for replica in drain {
            give(Order::Drain { replica });
        }
        pool.scale.set_victims(split(pool).0.into_iter().collect());
        let there = replicas.len();
        let is_late = |at: Moment, told: &ScaleOrder| {
            told.replicas != there && at + self.scaler.start_up() * REPEAT_AFTER <= now
        };
        let is_news = match &self.done {
            // What starts the pool may have its own mind; a first order that changes nothing is not given.
            None => order != ScaleOrder { replicas: there, victims: Vec::new() },
            Some((at, told)) => *told != order || is_late(*at, told),
        };
        if is_news && self.running.is_none() && self.retry_at <= now {
            let goes = |it: &&ScaledReplica| order.victims.contains(&it.address);
            let names = replicas.iter().filter(goes).filter_map(|it| it.name.clone()).collect();
            self.act(pool, settings, advice.terms.ready, order, names);
        }
    }

    /// Forgets victims that are gone; what has come to their address since is another replica, and is not drained.
    fn forget_gone(&mut self, pool: &Pool, replicas: &[ScaledReplica]) {
        let leaving = split(pool).0;
        self.victims.retain(|it, _| leaving.contains(it));
        for address in leaving {
            let there = replicas.iter().find(|it| it.address == address).map(|it| it.id);
            let known = self.victims.get(&address).copied();
            match there {
                // A router that was started again does not know when it was drained.
                Some(id) if known.is_none_or(|it| it == id) => _ = self.victims.insert(address, id),
                Some(_) | None => {
                    pool.forget_drained(&address);
                    self.victims.remove(&address);
                    self.told.remove(&address);
                }
            }
        }
        let Self { victims, told, .. } = self;
        told.retain(|it| victims.contains_key(it));
    }

    /// Tells the actuator; `names` is what an orchestrator calls the victims.
    fn act(
        &mut self,
        pool: &Pool,
        settings: &ScalingSettings,
        ready: usize,
        order: ScaleOrder,
        names: Vec<String>,
    ) {
        let (done, coming) = oneshot::channel();
        let (name, actuator) = (pool.name.clone(), settings.actuator.clone());
        self.running = Some((order.clone(), coming));
        TaskTracker::new().spawn(async move {
            let result = match &actuator {
                Actuator::Command(command) => command::run(command, &name, ready, &order).await,
                Actuator::Kubernetes(object) => kubernetes::run(object, &order, &names).await,
                Actuator::None => Ok(()),
            };
            // A pool that is gone does not wait for it.
            _ = done.send(result);
        });
    }
}

/// Tells whether the orchestrator always takes the replica with the highest number.
const fn has_order(actuator: &Actuator) -> bool {
    match actuator {
        Actuator::None | Actuator::Command(_) => false,
        Actuator::Kubernetes(it) => !matches!(it.target.kind, ScaleKind::Deployment),
    }
}

/// Names those with the highest numbers at the end of their names.
fn last_numbers<'a>(
    replicas: impl Iterator<Item = &'a ScaledReplica>,
    count: usize,
) -> Vec<ReplicaId> {
    let number = |it: &ScaledReplica| {
        let last = it.name.as_deref().and_then(|it| it.rsplit('-').next());
        last.and_then(|it| it.parse::<u32>().ok())
    };
    let mut numbered: Vec<_> = replicas.map(|it| (number(it), it.id)).collect();
    numbered.sort_unstable();
    numbered.into_iter().rev().take(count).map(|it| it.1).collect()
}

/// Lists the addresses that are drained by scaling, and those that operators drained.
fn split(pool: &Pool) -> (BTreeSet<String>, BTreeSet<String>) {
    let drained = pool.orders().drained;
    let (own, others): (Vec<_>, Vec<_>) = drained.into_iter().partition(|it| it.1.by == BY);
    let names = |all: Vec<(String, crate::proxy::Given)>| all.into_iter().map(|it| it.0).collect();
    (names(own), names(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orchestrator_that_counts_takes_the_highest_number() {
        let replica = |id: u32, name: &str| ScaledReplica {
            id: ReplicaId(id),
            address: format!("http://a:{id}"),
            name: Some(name.to_owned()),
            is_up: true,
        };
        let all = [replica(0, "vllm-9"), replica(1, "vllm-10"), replica(2, "vllm-0")];
        assert_eq!(last_numbers(all.iter(), 2), [ReplicaId(1), ReplicaId(0)]);
    }
}
