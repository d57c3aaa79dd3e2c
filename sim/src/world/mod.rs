//! The world, pretended: routers, replicas, clients and what befalls them, in virtual time. Routers
//! run the very brain that serves; replicas run the engine machine; this room only carries messages
//! between them, in an order that is the same in every run of a seed. It decides nothing about
//! requests and judges nothing: that is the brain's and the measures' business. Threads or async
//! tasks would have been the obvious way, and no two runs would be alike.

mod edf;
mod elastic;
mod endings;
mod exchange;
mod faults;
mod flight;
mod heap;
mod heed;
mod ideal;
pub mod invariants;
mod pooled;
mod replica;
mod requests;
mod residency;
mod router;
mod settings;
mod srpt;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use cleave_core::brain::{Action, TtftError};
use cleave_core::domain::{Moment, RouterId};
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use crate::engine::Output;
use crate::measure::Measures;
use crate::traces::{Seen, Tenant, Ticket, TraceError, Workload};

pub use elastic::{FleetPoint, Sizing};
pub use heed::{PutOut, Quarantined};
pub use ideal::Ideal;
pub use settings::{
    Absent, Belief, Exchange, Fault, FaultKind, ReplicaSettings, Timeouts, View, WorldSettings,
};

use elastic::Elastic;
use flight::Flight;
use heap::{Happening, Heap};
use pooled::Pooled;
use replica::Replica;
use residency::Residency;
use router::Router;

/// How long after the last arrival everything must have ended.
const DRAIN_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("after {:.6} s: {what}", at.since(Moment::ZERO).as_secs_f64())]
    Broken { at: Moment, what: String },
    #[error("{in_flight} requests never ended")]
    Stuck { in_flight: usize },
}

/// An observer outside the run, where there is a clock and a terminal.
pub trait Watch {
    /// Another request has arrived.
    fn on_arrival(&mut self) {}

    /// Reads a clock, in nanoseconds from any zero; zero when there is none.
    fn nanos(&mut self) -> u64 {
        0
    }
}

/// No observer.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// How many decisions were made, and how long they took by the watcher's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    pub count: u64,
    pub nanos: u64,
}

/// A request that must have shown its first byte by then, unless it was tried elsewhere since.
#[derive(Clone, Copy, Debug)]
struct Timer {
    at: Moment,
    request: u64,
    tries: u32,
}

/// The tenant whose requests do harm, or did.
#[derive(Clone, Copy, Debug)]
struct Poison {
    tenant: Tenant,
    hangs: bool,
    active: bool,
}

/// Everything there is.
#[derive(Debug)]
pub struct World {
    settings: WorldSettings,
    block_tokens: NonZeroU32,
    now: Moment,
    /// When the workload that is being played began.
    zero: Moment,
    heap: Heap,
    replicas: Vec<Replica>,
    routers: Vec<Router>,
    /// Stands in for the routers when the bound is computed.
    pooled: Option<Pooled>,
    flights: BTreeMap<u64, Flight>,
    next_request: u64,
    timers: VecDeque<Timer>,
    seen: Seen,
    residency: Residency,
    chance: Pcg64Mcg,
    poison: Option<Poison>,
    /// How often each prompt was served whole by each router since that started; kept where
    /// invariants are checked.
    served: BTreeMap<(usize, u64), u32>,
    faulted: bool,
    measures: Measures,
    sessions_moved_before: u64,
    decisions: Decisions,
    /// What brains have decided and is not done yet.
    todo: VecDeque<(usize, Action)>,
    /// What has ended and the workload does not know yet.
    ended: Vec<Ticket>,
    outputs: Vec<Output>,
    actions: Vec<Action>,
    broken: Option<String>,
    /// How many connections between routers there were.
    connections: u64,
    /// How often the books of all routers were compared.
    books_compared: u64,
    put_out: Vec<PutOut>,
    quarantined: Quarantined,
    /// Replicas that a harmful request has reached.
    reached: BTreeSet<usize>,
    /// The rule that sizes the fleet, where one does.
    elastic: Option<Elastic>,
    /// Requests at replicas and work offered lately, by which requests stay.
    flow: (f64, f64),
}

impl World {
    /// Makes a fleet with its routers.
    pub fn new(settings: WorldSettings) -> Self {
        let mut world = Self::without_routers(settings);
        for router in 0..world.settings.routers {
            let number = u64::try_from(router).unwrap_or(0);
            let seed = world.settings.seed ^ number.rotate_left(32);
            let is_told = world.settings.exchange.is_some() && 1 < world.settings.routers;
            let routers = is_told.then(|| u32::try_from(world.settings.routers).unwrap_or(1));
            let made = Router::new(RouterId(number), &world.settings.brain, seed, routers);
            world.routers.push(made);
            world.introduce_fleet(router);
            world.start_upkeep(router);
        }
        world.start_exchange();
        world
    }

    /// Makes a fleet with one line and one cache for all, and neither routers nor faults: the bound.
    pub fn pooled(settings: WorldSettings) -> Self {
        let mut world = Self::without_routers(WorldSettings { faults: Vec::new(), ..settings });
        world.pooled = Some(Pooled::new(&world.settings.replicas));
        world
    }

    fn without_routers(settings: WorldSettings) -> Self {
        let engine = settings.replicas.first().expect("a world has replicas").engine;
        let replicas = settings.replicas.iter().enumerate();
        let replicas: Vec<_> =
            replicas.map(|(at, it)| Replica::new(at, *it, &settings.belief)).collect();
        let mut world = Self {
            block_tokens: NonZeroU32::new(engine.block_tokens).expect("a block holds tokens"),
            now: Moment::ZERO,
            zero: Moment::ZERO,
            heap: Heap::default(),
            routers: Vec::new(),
            pooled: None,
            flights: BTreeMap::new(),
            next_request: 0,
            timers: VecDeque::new(),
            seen: Seen::default(),
            residency: Residency::default(),
            chance: Pcg64Mcg::seed_from_u64(settings.seed),
            poison: None,
            connections: 0,
            books_compared: 0,
            served: BTreeMap::new(),
            faulted: false,
            measures: Measures::new(settings.slo, replicas.len()),
            sessions_moved_before: 0,
            decisions: Decisions::default(),
            todo: VecDeque::new(),
            ended: Vec::new(),
            outputs: Vec::new(),
            actions: Vec::new(),
            broken: None,
            put_out: Vec::new(),
            quarantined: Quarantined::default(),
            reached: BTreeSet::new(),
            elastic: None,
            flow: (0.0, 0.0),
            replicas,
            settings,
        };
        world.heap.push(Moment::ZERO, Happening::Sample);
        world
    }

    /// Forgets what was measured so far, and lets the script of faults begin.
    pub fn start_measuring(&mut self) {
        self.start_measuring_calm();
        self.measures.others = self.settings.others(self.now);
        if self.settings.calm {
            return;
        }
        for (number, fault) in self.settings.faults.iter().enumerate() {
            self.heap.push(self.now + fault.at, Happening::Fault { number });
        }
    }

    /// Forgets what was measured so far, and lets no more faults begin.
    pub fn start_measuring_calm(&mut self) {
        self.measures.start(self.now);
        self.sessions_moved_before = self.all_sessions_moved();
        self.decisions = Decisions::default();
        if let Some(pooled) = &mut self.pooled {
            pooled.ideal = Ideal::new(&self.settings.replicas);
        }
    }

    /// Lets time pass without requests.
    pub fn rest(&mut self, span: Duration) -> Result<(), RunError> {
        let until = self.now + span;
        while self.heap.next_at().is_some_and(|at| at <= until) {
            self.happen();
            self.act();
            self.check()?;
        }
        self.now = until;
        Ok(())
    }

    /// Plays a workload from now on until everything has ended.
    pub fn run(&mut self, workload: &mut Workload, watch: &mut dyn Watch) -> Result<(), RunError> {
        self.zero = self.now;
        let mut last_arrival = self.now;
        loop {
            let arrival = workload.next_arrival()?;
            let arrival = arrival.map(|at| self.now.max(self.zero + at.since(Moment::ZERO)));
            if arrival.is_none() && self.flights.is_empty() {
                return Ok(());
            }
            self.drop_old_timers();
            let known = self.heap.next_at().expect("upkeep never ends");
            let timer = self.timers.front().map(|it| it.at).filter(|at| *at < known);
            let next = timer.unwrap_or(known);
            match arrival {
                Some(at) if at < next => {
                    (self.now, last_arrival) = (at, at);
                    if let Some(request) = workload.take()? {
                        watch.on_arrival();
                        self.arrive(request, watch);
                    }
                }
                _ if timer.is_some() => self.expire_timer(),
                _ => self.happen(),
            }
            self.act();
            self.tell_ends(workload);
            self.check()?;
            if arrival.is_none() && last_arrival + DRAIN_MAX < self.now {
                return Err(RunError::Stuck { in_flight: self.flights.len() });
            }
        }
    }

    pub fn measures(&self) -> &Measures {
        &self.measures
    }

    /// What no fleet could beat, where this world was made to find out.
    pub fn ideal(&self) -> Option<&Ideal> {
        self.pooled.as_ref().map(|it| &it.ideal)
    }

    pub fn settings(&self) -> &WorldSettings {
        &self.settings
    }

    pub fn decisions(&self) -> Decisions {
        self.decisions
    }

    /// How well the routers predicted first tokens.
    pub fn ttft_error(&self) -> TtftError {
        let mut all = TtftError::default();
        self.routers.iter().for_each(|it| all.merge(&it.brain.snapshot().ttft_error));
        all
    }

    /// Sessions that changed replica while measuring.
    pub fn sessions_moved(&self) -> u64 {
        self.all_sessions_moved() - self.sessions_moved_before
    }

    fn all_sessions_moved(&self) -> u64 {
        self.routers.iter().map(Router::sessions_moved).sum()
    }

    /// Lets the next thing happen.
    fn happen(&mut self) {
        let Some((at, what)) = self.heap.pop() else { return };
        self.now = at;
        match what {
            Happening::Step { replica } => self.step(replica),
            Happening::Scrape { router } => self.scrape(router),
            Happening::Told { router } => self.deliver_reading(router),
            Happening::Exchange => self.exchange(),
            Happening::Send { router } => self.send_waiting(router),
            Happening::Heard { router } => self.deliver_letter(router),
            Happening::Probe { router } => self.probe(router),
            Happening::Wake { router } => self.wake(router),
            Happening::Sample => self.sample(),
            Happening::Look => self.look(),
            Happening::Started { asked_at, number } => self.started(asked_at, number),
            Happening::Fault { number } => self.begin_fault(number),
            Happening::Mend { number } => self.end_fault(number),
            Happening::Revive { replica } => self.revive(replica),
            Happening::Asked { router, replica, asked_at } => {
                self.answer_question(router, replica, asked_at);
            }
            Happening::GiveUp { request, tries } => self.give_up(request, tries),
        }
    }

    fn tell_ends(&mut self, workload: &mut Workload) {
        let at = Moment::ZERO + self.now.since(self.zero);
        for ticket in self.ended.drain(..) {
            workload.on_end(at, ticket);
        }
    }
}
