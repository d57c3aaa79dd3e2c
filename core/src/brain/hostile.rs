//! A driver that must not be trusted: it tells a brain every kind of event, in any order, with figures that
//! make no sense. What it tells is read from bytes, so that a property and a fuzzer can both choose it.
//! A brain must come through with its books in order, and with nothing on them when all has ended.

mod news;

use std::sync::Arc;
use std::time::Duration;

use crate::cost::{Hardware, StepTimes};
use crate::domain::{
    Extent, Moment, Outline, Place, ReplicaId, Report, RequestId, RouterId, SliceKey, Usage,
};
use crate::fleet::Probe;
use crate::policy::PolicyKind;
use crate::queue::{Claim, ClassId, Limits, Tenant, Weight, Work};
use crate::sharding::Assignment;

use super::{
    Action, Brain, Event, Failure, LineSettings, Order, Outcome, Settings, SubsetSettings,
    invariants,
};

const FIGURES: [u64; 16] = [
    0,
    1,
    2,
    100,
    4_095,
    70_000,
    1 << 24,
    (1 << 24) + 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 53,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
    12_345,
];
const FLOATS: [f64; 10] =
    [0.0, 1.0, 0.5, -1.0, -0.0, 1e-300, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
const SPANS_MS: [u64; 8] = [0, 1, 40, 900, 3_000, 61_000, 3_700_000, 1 << 50];
const FAILURES: [Failure; 8] = [
    Failure::Unreachable,
    Failure::Late,
    Failure::Lost,
    Failure::Died,
    Failure::Hung,
    Failure::Status,
    Failure::Busy,
    Failure::Ours,
];
const OUTCOMES: [Outcome; 3] = [Outcome::Done, Outcome::Cancelled, Outcome::Cut];
const REPLICAS_MAX: u32 = 8;

/// A brain and what its driver has told it.
struct Drive<'a> {
    bytes: &'a [u8],
    brain: Brain,
    now: Moment,
    requests: u64,
    replicas: u32,
    actions: Vec<Action>,
}

/// Tells a brain what `bytes` say, ends everything, and checks the books.
///
/// # Panics
///
/// If the brain does, or if its books are wrong at any time.
pub fn drive(bytes: &[u8]) {
    let mut drive = Drive::new(bytes);
    while !drive.bytes.is_empty() {
        let event = drive.event();
        if let Some(event) = event {
            drive.tell(event);
        }
        drive.wait();
        if drive.byte().is_multiple_of(8) {
            drive.look();
        }
    }
    drive.look();
    for number in 0..drive.requests {
        let usage = drive.usage();
        drive.tell(Event::Ended { request: RequestId(number), outcome: Outcome::Done, usage });
    }
    assert!(invariants::books_are_empty(&drive.brain), "something is left on the books");
}

impl<'a> Drive<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut drive = Self {
            bytes,
            brain: Brain::new(Settings::default()),
            now: Moment::ZERO + Duration::from_secs(1_000),
            requests: 0,
            replicas: 0,
            actions: Vec::new(),
        };
        let (holds, gates) = (drive.flag(), drive.flag());
        let line = LineSettings { holds, gates, ..LineSettings::default() };
        let policy = drive.one_of(PolicyKind::SERVED);
        let floor = drive.flag().then_some(1);
        let subsets = SubsetSettings { floor, ..SubsetSettings::default() };
        let router = drive.flag().then_some(RouterId(0));
        drive.brain = Brain::new(Settings { policy, subsets, line, router, ..Settings::default() });
        (0..2).for_each(|_| drive.join());
        drive
    }

    /// Tells one event, and checks what came of it.
    fn tell(&mut self, event: Event) {
        self.actions.clear();
        self.brain.on_event(self.now, event, &mut self.actions);
        self.brain.take_news();
        self.check();
    }

    fn wait(&mut self) {
        if self.flag() {
            self.now = self.now + Duration::from_millis(self.one_of(&SPANS_MS));
        }
        self.actions.clear();
        self.brain.on_time(self.now, &mut self.actions);
        self.check();
    }

    fn check(&self) {
        let brain = &self.brain;
        assert_eq!(invariants::broken(brain, self.now, &self.actions), None, "{:?}", self.actions);
        assert!(brain.next_wakeup().is_some(), "it is woken in any case");
    }

    /// Looks at what operators are shown.
    fn look(&mut self) {
        let (tenant, now) = (self.tenant(), self.now);
        let brain = &mut self.brain;
        let (_, loads, tenants) = (brain.snapshot(), brain.load(now), brain.tenants());
        let is_number = |it: &f64| it.is_finite() && 0.0 <= *it;
        assert!(loads.iter().all(|it| is_number(&it.in_flight_mu) && is_number(&it.pace)));
        let held: u64 = tenants.iter().map(|it| it.usage.reserved).sum();
        assert!(held <= self.requests, "{held} reserved for {} requests", self.requests);
        brain.contract(now, tenant);
        let sample = brain.take_sample(now);
        assert!([sample.offered_mu, sample.held_mu, sample.refused_mu].iter().all(is_number));
        assert!(brain.holdings(now).iter().all(|it| is_number(&it.cache_ms)));
    }

    fn event(&mut self) -> Option<Event> {
        let (request, replica) = (self.request(), self.replica());
        Some(match self.byte() % 22 {
            0..=4 => self.arrived(),
            5 => Event::Failed { request, failure: self.one_of(&FAILURES) },
            6 | 7 => Event::Answering { request },
            8 | 9 => Event::Streamed { request, output_tokens: self.short() },
            10..=12 => {
                let (outcome, usage) = (self.one_of(&OUTCOMES), self.usage());
                Event::Ended { request, outcome, usage }
            }
            13 => {
                self.join();
                return None;
            }
            14 => Event::Weighed { replica, weight: self.one_of(&FLOATS) },
            15 => Event::Leaving { replica },
            16 => self.contracted(),
            17 => Event::Probed { replica, probe: self.probe() },
            18 => Event::Reported { replica, report: self.report() },
            19 => self.heard(),
            20 => self.ordered(replica),
            _ => match self.byte() % 5 {
                0 => Event::Sign { replica, at: self.moment() },
                1 => Event::Unawaited { replica },
                2 => self.classed(replica),
                3 => self.scaling(),
                _ => Event::Restarted { replica },
            },
        })
    }

    fn arrived(&mut self) -> Event {
        let request = RequestId(self.requests);
        self.requests += 1;
        let key = SliceKey((u64::from(self.byte() % 4) << 40) | u64::from(self.byte() % 8));
        let blocks: Vec<u64> = (0..self.byte() % 40).map(|it| key.0 ^ u64::from(it)).collect();
        let outline = Outline {
            blocks: blocks.into(),
            block_tokens: self.short(),
            prompt_tokens: self.short(),
            output_tokens: self.flag().then(|| self.short()),
            adapter: self.figure(),
            kept_at: (self.byte() % 8 == 1).then(|| self.place()),
        };
        let extent = Extent {
            model: self.figure(),
            text_bytes: self.short(),
            attachments: self.short(),
            sounds: self.short(),
            sound_ms: self.short(),
            attachment_bytes: self.short(),
            dense_bytes: self.short(),
            body_bytes: self.short(),
            media: self.short(),
            is_continued: self.flag(),
            block_bytes: self.short(),
            answers: self.short(),
            output_tokens_max: self.flag().then(|| self.short()),
            digest: self.figure(),
            streams: self.flag(),
        };
        let claim = Claim {
            tenant: self.tenant(),
            weight: Weight::new(self.one_of(&[1.0, 0.001, 1_000.0])).unwrap_or(Weight::ONE),
            class: self.flag().then(|| ClassId(self.byte())),
            sent_by: self.flag().then(|| self.moment()),
            first_token_by: self.flag().then(|| self.moment()),
            done_by: self.flag().then(|| self.moment()),
            bytes: usize::try_from(self.figure()).unwrap_or(usize::MAX),
        };
        Event::Arrived { request, key, outline, extent, claim }
    }

    fn join(&mut self) {
        if self.replicas == REPLICAS_MAX {
            return;
        }
        let replica = ReplicaId(self.replicas);
        self.replicas += 1;
        let name = address(replica.0);
        let weight = if replica.0 == 0 { 1.0 } else { self.one_of(&FLOATS) };
        self.tell(Event::Joined { replica, name, weight, hardware: Arc::default() });
        self.tell(Event::Probed { replica, probe: Probe::Passed });
    }

    /// Other hardware, within what a configuration lets pass.
    fn classed(&mut self, replica: ReplicaId) -> Event {
        let step = StepTimes { floor_ms: self.one_of(&[1e-3, 5.0, 1e3]), ..StepTimes::LLAMA_8B };
        Event::Classed { replica, hardware: Arc::new(Hardware::of_steps("odd", step)) }
    }

    fn scaling(&mut self) -> Event {
        let ready_in = self.flag().then(|| Duration::from_millis(self.figure()));
        Event::Scaling { ready_in, hardware: Arc::default() }
    }

    fn contracted(&mut self) -> Event {
        let count = self.byte() % 4;
        let limits = (0..count).map(|_| {
            let limits = Limits {
                work_per_min: self.flag().then(|| Work::from_parts(self.figure())),
                tokens_per_min: self.flag().then(|| self.figure()),
                requests_per_min: self.flag().then(|| self.figure()),
                burst: Duration::from_millis(self.figure()),
                is_hard: self.flag(),
            };
            (self.tenant(), limits)
        });
        Event::Contracted { limits: limits.collect() }
    }

    fn probe(&mut self) -> Probe {
        let (asked_at, last_byte_at) = (self.moment(), self.flag().then(|| self.moment()));
        match self.byte() % 8 {
            0 => Probe::Generated,
            1 => Probe::Unable,
            2 => Probe::Stranger,
            3 => Probe::Failed,
            4 => Probe::Refused,
            5 => Probe::Mute { asked_at, last_byte_at },
            6 => Probe::TimedOut { asked_at, last_byte_at },
            _ => Probe::Passed,
        }
    }

    fn report(&mut self) -> Report {
        Report {
            taken_at: self.moment(),
            waiting: self.short(),
            running: self.short(),
            waiting_tokens: self.flag().then(|| self.figure()),
            kv_used_share: self.one_of(&FLOATS),
            kv_tokens_max: self.flag().then(|| self.figure()),
        }
    }

    fn ordered(&mut self, replica: ReplicaId) -> Event {
        let workload = u32::from(self.byte() % 4) << 8;
        Event::Ordered(match self.byte() % 8 {
            0 => Order::Freeze,
            1 => Order::Unfreeze,
            2 => Order::Pin { workload, replicas: vec![replica] },
            3 => Order::Drain { replica },
            4 => Order::Undrain { replica },
            5 => Order::Forget { place: self.place() },
            6 => Order::Restore { assignment: Arc::new(Assignment::empty()) },
            _ => Order::Zone { replica, zone: self.flag().then(|| self.short()) },
        })
    }

    fn usage(&mut self) -> Usage {
        let mut told = || self.flag().then(|| self.short());
        Usage { input: told(), output: told(), cached: told() }
    }

    fn request(&mut self) -> RequestId {
        RequestId(u64::from(self.byte()) % self.requests.max(1))
    }

    fn replica(&mut self) -> ReplicaId {
        ReplicaId(u32::from(self.byte()) % (REPLICAS_MAX + 1))
    }

    fn tenant(&mut self) -> Tenant {
        Tenant(u64::from(self.byte() % 3))
    }

    /// A moment near to now, or anywhere.
    fn moment(&mut self) -> Moment {
        if self.flag() {
            self.now + Duration::from_millis(self.one_of(&SPANS_MS))
        } else {
            Moment::from_nanos(self.figure())
        }
    }

    /// Where some replica is, or could be.
    fn place(&mut self) -> Place {
        Place::of(&address(u32::from(self.byte() % 8)))
    }

    fn short(&mut self) -> u32 {
        u32::try_from(self.figure()).unwrap_or(u32::MAX)
    }

    fn figure(&mut self) -> u64 {
        self.one_of(&FIGURES)
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Takes the next byte; zeros when there is none left.
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }
}

fn address(number: u32) -> String {
    format!("http://gpu-{number}:8000")
}
