//! Laws of the line and of contracts, over whatever may happen in whatever order.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::domain::{Moment, RequestId};

use super::*;

const COUNT_MAX: usize = 40;
const BYTES_MAX: usize = 4_000;

#[derive(Clone, Debug)]
enum Step {
    Join {
        class: u8,
        tenant: u64,
        lane: u32,
        deadline: Option<u64>,
        target: Option<u64>,
        wait: u64,
        mu: f64,
        bytes: usize,
    },
    Next {
        lanes: u32,
    },
    Remove {
        which: usize,
    },
    Pass {
        nanos: u64,
    },
    Settle {
        which: usize,
        mu: f64,
    },
}

/// Amounts of work as a client or a bad prediction may make them.
fn amounts() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => 0.001..50.0,
        1 => prop::sample::select(vec![f64::NAN, -5.0, f64::INFINITY, f64::MAX, 0.0, -0.0, 1e12]),
    ]
}

fn moments() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..1_000_u64, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1)]
}

fn steps() -> impl Strategy<Value = Step> {
    let join = (
        any::<u8>(),
        0..5_u64,
        0..3_u32,
        prop::option::of(moments()),
        prop::option::of(moments()),
        moments(),
        amounts(),
        prop_oneof![9 => 0..300_usize, 1 => Just(usize::MAX)],
    );
    prop_oneof![
        6 => join.prop_map(|(class, tenant, lane, deadline, target, wait, mu, bytes)| {
            Step::Join { class, tenant, lane, deadline, target, wait, mu, bytes }
        }),
        4 => (0..8_u32).prop_map(|lanes| Step::Next { lanes }),
        1 => any::<usize>().prop_map(|which| Step::Remove { which }),
        1 => (0..300_u64).prop_map(|nanos| Step::Pass { nanos }),
        1 => (any::<usize>(), amounts()).prop_map(|(which, mu)| Step::Settle { which, mu }),
    ]
}

/// What should be in the line, kept the slow way.
#[derive(Default)]
struct Model {
    waiting: BTreeMap<RequestId, Ticket>,
    served: Vec<Ticket>,
    now: Moment,
}

impl Model {
    fn is_open(lanes: u32, lane: Lane) -> bool {
        lanes & (1 << lane.0) != 0
    }

    /// The line agrees in number, bytes and work.
    fn agrees(&self, line: &Line) -> Result<(), TestCaseError> {
        prop_assert_eq!(line.len(), self.waiting.len());
        prop_assert_eq!(line.bytes(), self.waiting.values().map(|it| it.bytes).sum::<usize>());
        prop_assert_eq!(line.work(), self.waiting.values().map(|it| it.work).sum::<Work>());
        prop_assert!(line.len() <= COUNT_MAX && line.bytes() <= BYTES_MAX);
        prop_assert_eq!(line.next_expiry(), self.waiting.values().map(|it| it.expires_at).min());
        Ok(())
    }

    fn next(&mut self, line: &mut Line, lanes: u32) -> Result<(), TestCaseError> {
        let open = |it: &&Ticket| Self::is_open(lanes, it.lane);
        let eligible: Vec<Ticket> = self.waiting.values().filter(open).copied().collect();
        let next = line.next(self.now, |it| Self::is_open(lanes, it), |it| it.request.0 % 5 == 0);
        // A request goes exactly if one may.
        prop_assert_eq!(next.is_some(), !eligible.is_empty());
        let Some(next) = next else { return Ok(()) };
        prop_assert!(eligible.contains(&next));
        let peers = eligible.iter().filter(|it| (it.class, it.tenant) == (next.class, next.tenant));
        let first = peers.min_by_key(|it| (it.due() < self.now, it.due(), it.request)).copied();
        prop_assert_eq!(first, Some(next), "in time, then earliest deadline first");
        self.waiting.remove(&next.request);
        self.served.push(next);
        Ok(())
    }

    fn pass(&mut self, line: &mut Line, nanos: u64) -> Result<(), TestCaseError> {
        self.now = self.now + Duration::from_nanos(nanos);
        while let Some(gone) = line.expired(self.now) {
            prop_assert!(gone.expires_at <= self.now);
            prop_assert_eq!(self.waiting.remove(&gone.request), Some(gone));
        }
        prop_assert!(self.waiting.values().all(|it| self.now < it.expires_at), "bounded waiting");
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_line_keeps_its_laws_whatever_happens(steps in prop::collection::vec(steps(), 0..300)) {
        let settings = QueueLimits { count_max: COUNT_MAX, bytes_max: BYTES_MAX };
        let mut line = Line::new(settings, &Classes::default());
        let mut model = Model::default();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Join { class, tenant, lane, deadline, target, wait, mu, bytes } => {
                    let ticket = Ticket {
                        request: RequestId(u64::try_from(number).unwrap()),
                        class: ClassId(class.min(2)),
                        tenant: Tenant(tenant),
                        weight: Weight::new(1.0 + f64::from(lane)).unwrap(),
                        lane: Lane(lane.into()),
                        deadline: deadline.map(Moment::from_nanos),
                        target: target.map(Moment::from_nanos),
                        expires_at: model.now + Duration::from_nanos(wait.max(1)),
                        work: Work::from_mu(mu),
                        bytes,
                    };
                    let mut displaced = Vec::new();
                    let joined = line.join(ticket, &mut displaced);
                    for it in displaced {
                        prop_assert_eq!(model.waiting.remove(&it.request), Some(it));
                    }
                    if joined.is_ok() {
                        model.waiting.insert(ticket.request, ticket);
                    }
                }
                Step::Next { lanes } => model.next(&mut line, lanes)?,
                Step::Remove { which } => {
                    let chosen = model.waiting.keys().nth(which % (model.waiting.len() + 1)).copied();
                    if let Some(request) = chosen {
                        prop_assert_eq!(line.remove(request), model.waiting.remove(&request));
                    }
                }
                Step::Pass { nanos } => model.pass(&mut line, nanos)?,
                Step::Settle { which, mu } => {
                    if let Some(it) = model.served.get(which % (model.served.len() + 1)) {
                        line.settle(it.class, it.tenant, it.work, Work::from_mu(mu));
                    }
                }
            }
            model.agrees(&line)?;
        }
    }

    /// While two tenants of a class wait, what they get differs by no more than a request of each and
    /// the deficit for locality.
    #[test]
    fn waiting_tenants_are_served_alike_by_work(
        works in prop::collection::vec((0..3_u64, 0.01..5.0_f64), 60..200),
        weights in prop::collection::vec(1..5_u32, 3),
    ) {
        let mut line = Line::new(QueueLimits::default(), &Classes::default());
        for (number, &(tenant, mu)) in works.iter().enumerate() {
            let weight = Weight::new(weights[usize::try_from(tenant).unwrap()].into()).unwrap();
            let ticket = Ticket {
                request: RequestId(u64::try_from(number).unwrap()),
                class: ClassId(1),
                tenant: Tenant(tenant),
                weight,
                lane: Lane(0),
                deadline: None,
                target: None,
                expires_at: Moment::from_nanos(u64::MAX),
                work: Work::from_mu(mu),
                bytes: 0,
            };
            prop_assert!(line.join(ticket, &mut Vec::new()).is_ok());
        }
        let mut got = [0.0; 3];
        while (0..3).all(|it| 0 < line.waiting_of(Tenant(it))) {
            let next = line.next(Moment::ZERO, |_| true, |it| it.request.0 % 3 == 0).unwrap();
            let tenant = usize::try_from(next.tenant.0).unwrap();
            got[tenant] += next.work.as_mu() / f64::from(weights[tenant]);
            for (one, other) in [(0, 1), (1, 2), (0, 2)] {
                prop_assert!((got[one] - got[other]).abs() <= 5.0 + 5.0 + 1.0, "{got:?}");
            }
        }
    }

    /// Whatever is reserved, flows, is settled or cancelled: what the rate allowed is never exceeded by
    /// more than the burst and the error of predictions, and the books close at nothing.
    #[test]
    fn contracts_keep_exact_books(
        steps in prop::collection::vec((0..2_000_u64, 0.01..3.0_f64, 0.0..3.0_f64, 0..4_u8), 1..200),
        burst_s in 0..120_u64,
    ) {
        const MU_PER_MIN: f64 = 60.0;
        let limits = Limits {
            work_per_min: Some(Work::from_mu(MU_PER_MIN)),
            burst: Duration::from_secs(burst_s),
            ..Limits::default()
        };
        let mut account = ContractAccount::new(Moment::ZERO, limits);
        let (mut now, mut open) = (Moment::ZERO, Vec::new());
        let (mut within, mut beyond) = (Work::ZERO, Work::ZERO);
        for (ms, predicted, real, fate) in steps {
            now = now + Duration::from_millis(ms);
            open.push((account.reserve(now, Work::from_mu(predicted), 0), Work::from_mu(real)));
            if fate == 0 {
                continue;
            }
            let (mut held, real) = open.remove(0);
            let used = if fate == 1 {
                account.cancel(held);
                Work::ZERO
            } else {
                if fate == 2 {
                    account.flow(&mut held, real, 0);
                }
                account.settle(held, real, 0);
                real
            };
            *(if held.usage == Use::BestEffort { &mut beyond } else { &mut within }) += used;
        }
        for (held, real) in open {
            account.settle(held, real, 0);
            *(if held.usage == Use::BestEffort { &mut beyond } else { &mut within }) += real;
        }
        let usage = account.usage();
        prop_assert_eq!(usage.reserved, 0);
        prop_assert_eq!(usage.used[0].work + usage.used[1].work, within);
        prop_assert_eq!(usage.used[2].work, beyond);
        let allowed = MU_PER_MIN / 60.0 * now.since(Moment::ZERO).as_secs_f64()
            + MU_PER_MIN * (1.0 / 20.0 + f64::from(u32::try_from(burst_s).unwrap()) / 60.0);
        // Those in flight when the last was let in may each have been larger than was predicted.
        prop_assert!(within.as_mu() <= allowed + 3.0 * 200.0);
    }
}
