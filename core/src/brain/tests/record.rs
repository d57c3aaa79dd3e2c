//! What is left of a pool when its brain panics: a new brain, built from the record.

use proptest::prelude::*;

use super::*;
use crate::domain::Place;
use crate::queue::{Limits, Tenant};

const WORKLOAD: u32 = 7;

/// A brain and its record, told the same.
struct Pair {
    bench: Bench,
    record: Record,
}

impl Pair {
    fn new(settings: Settings) -> Self {
        Self { bench: Bench::new(settings, &[]), record: Record::default() }
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.record.note(&event);
        self.bench.tell(event)
    }

    fn join(&mut self, number: u32) {
        let (replica, hardware) = (ReplicaId(number), Arc::default());
        let name = format!("http://gpu-{number}:8000");
        self.tell(Event::Joined { replica, name, weight: 1.0, hardware });
        self.tell(Event::Probed { replica, probe: Probe::Passed });
    }

    /// Loses the brain and goes on with a new one.
    fn rebuild(&mut self, inherit: Inherit) -> Vec<Action> {
        let mut actions = Vec::new();
        let Self { bench, record } = self;
        let settings = bench.brain.settings.clone();
        let old = (&mut bench.brain, inherit);
        bench.brain = Brain::rebuild(bench.now, settings, record, old, &mut actions);
        assert!(invariants::ledger_matches_requests(&bench.brain));
        assert!(invariants::line_matches_requests(&bench.brain));
        assert!(invariants::accounts_are_closed_once(&bench.brain));
        assert!(bench.brain.take_notices().is_empty());
        actions
    }
}

#[test]
fn a_new_brain_knows_the_replicas_the_orders_and_the_contracts() {
    for inherit in [Inherit::All, Inherit::Books, Inherit::Nothing] {
        let mut pair = Pair::new(by_session());
        (0..5).for_each(|number| pair.join(number));
        let [drained, leaving, light] = [1, 2, 3].map(ReplicaId);
        pair.tell(Event::Ordered(Order::Drain { replica: drained }));
        pair.tell(Event::Ordered(Order::Freeze));
        let replicas = vec![ReplicaId(0), ReplicaId(4)];
        pair.tell(Event::Ordered(Order::Pin { workload: WORKLOAD, replicas }));
        pair.tell(Event::Ordered(Order::Zone { replica: light, zone: Some(9) }));
        pair.tell(Event::Weighed { replica: light, weight: 0.25 });
        let limits = Limits { requests_per_min: Some(60), ..Limits::default() };
        pair.tell(Event::Contracted { limits: vec![(Tenant(3), limits)] });
        assert!((0..100).any(|it| pair.bench.sent(it).1 == leaving));
        assert_eq!(pair.tell(Event::Leaving { replica: leaving }), [], "it has work");
        assert_eq!(pair.rebuild(inherit), [Action::Release { replica: leaving }], "{inherit:?}");
        let brain = &mut pair.bench.brain;
        let there: Vec<u32> = brain.snapshot().replicas.iter().map(|it| it.id.0).collect();
        assert_eq!(there, [0, 1, 3, 4]);
        let is_up = inherit != Inherit::Nothing;
        let state = |id| match id {
            _ if !is_up => "joining",
            id if id == drained => "drained",
            _ => "up",
        };
        let replicas = brain.snapshot().replicas;
        assert!(replicas.iter().all(|it| it.state == state(it.id)), "{inherit:?}");
        assert_eq!(brain.fleet.get(light).map(|it| it.weight), Some(0.25));
        let view = brain.assignment(pair.bench.now);
        assert!(view.frozen && view.drained == [Place::of("http://gpu-1:8000")]);
        assert!(brain.contract(pair.bench.now, Tenant(3)).is_some());
        assert_eq!(brain.snapshot().requests_in_flight, 0);
        // Even one that knows nothing of their health can place something.
        assert!(there.contains(&pair.bench.sent(12).1.0));
    }
}

#[test]
fn a_replica_that_is_out_stays_out_and_a_trial_may_be_made_again() {
    let mut pair = Pair::new(by_session());
    (0..3).for_each(|number| pair.join(number));
    let gone = ReplicaId(1);
    for _ in 0..3 {
        pair.tell(Event::Probed { replica: gone, probe: Probe::Failed });
    }
    pair.rebuild(Inherit::All);
    assert_eq!(pair.bench.state(gone), "out");
    pair.bench.wait(5);
    // Only a replica that cannot be asked for a token is tried by a request.
    pair.tell(Event::Probed { replica: gone, probe: Probe::Unable });
    let on_trial = (0..50).map(|it| pair.bench.sent(it)).any(|it| it.1 == gone);
    assert!(on_trial && pair.bench.state(gone) == "trial");
    pair.rebuild(Inherit::All);
    assert_eq!(pair.bench.state(gone), "out", "nothing will be heard of that trial");
    assert!((50..100).map(|it| pair.bench.sent(it)).any(|it| it.1 == gone), "another is made");
}

#[test]
fn sessions_stay_where_they_were() {
    let mut pair = Pair::new(by_session());
    (0..8).for_each(|number| pair.join(number));
    let homes: Vec<ReplicaId> = (0..50).map(|it| pair.bench.served(it)).collect();
    pair.rebuild(Inherit::All);
    let again: Vec<ReplicaId> = (0..50).map(|it| pair.bench.served(it)).collect();
    assert_eq!(again, homes);
    assert_eq!(pair.bench.brain.snapshot().sessions_moved.all(), 0);
}

#[test]
fn what_a_tenant_has_used_is_not_forgiven_by_a_panic() {
    let mut pair = Pair::new(by_session());
    pair.join(0);
    let tenant = Tenant(3);
    let limits = Limits { requests_per_min: Some(2), ..Limits::default() };
    let limits = Limits { burst: Duration::from_secs(60), ..limits };
    pair.tell(Event::Contracted { limits: vec![(tenant, limits)] });
    for number in 0..2 {
        let request = RequestId(1000 + number);
        let (key, claim) = (SliceKey(1), Claim { tenant, ..Claim::default() });
        let (outline, extent) = Default::default();
        pair.tell(Event::Arrived { request, key, outline, extent, claim });
    }
    let left = |it: &mut Pair| {
        let usage = it.bench.brain.contract(it.bench.now, tenant).unwrap();
        (usage.requests_remaining, usage.reserved)
    };
    let (before, held) = left(&mut pair);
    assert_eq!(held, 2);
    pair.rebuild(Inherit::All);
    assert_eq!(left(&mut pair), (before, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn news_of_an_earlier_brains_requests_changes_nothing(
        request in 500_u64..510,
        tokens in prop_oneof![Just(0), Just(u32::MAX), any::<u32>()],
        outcome in prop_oneof![Just(Outcome::Done), Just(Outcome::Cancelled), Just(Outcome::Cut)],
        inherit in prop_oneof![Just(Inherit::All), Just(Inherit::Books), Just(Inherit::Nothing)],
    ) {
        let mut pair = Pair::new(Settings::default());
        (0..3).for_each(|number| pair.join(number));
        pair.bench.requests = request;
        let (request, _) = pair.bench.sent(1);
        pair.rebuild(inherit);
        let before = pair.bench.brain.snapshot();
        let usage = Usage { input: Some(tokens), output: Some(tokens), cached: Some(tokens) };
        prop_assert_eq!(pair.tell(Event::Answering { request }), []);
        prop_assert_eq!(pair.tell(Event::Streamed { request, output_tokens: tokens }), []);
        prop_assert_eq!(pair.tell(Event::Ended { request, outcome, usage }), []);
        let refusal = Refusal::Restarted { retry_after: RETRY_AFTER };
        let refused = pair.tell(Event::Failed { request, failure: Failure::Lost });
        prop_assert_eq!(refused, [Action::Refuse { request, refusal }]);
        prop_assert_eq!(pair.bench.brain.snapshot(), before);
    }
}
