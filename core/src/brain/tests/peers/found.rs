//! What one router finds out holds at all of them.

use super::super::hangs::is_quarantined;
use super::*;
use crate::cost::learned::Learned;
use crate::queue::{Limits, Tenant, Use, Work};

/// A prompt that crashes what it reaches.
fn poison(cluster: &mut Cluster, at: usize, session: u64) -> (RequestId, Vec<Action>) {
    let bench = &mut cluster.benches[at];
    let request = RequestId(bench.requests);
    bench.requests += 1;
    let (key, claim) = (SliceKey(7 << 32 | session), Claim::default());
    let extent = Extent { streams: true, digest: 7, ..Extent::default() };
    let outline = Outline { prompt_tokens: 100, ..Outline::default() };
    let actions = bench.tell(Event::Arrived { request, key, outline, extent, claim });
    (request, actions)
}

#[test]
fn a_request_that_one_router_holds_is_held_by_all_also_by_one_that_comes_later() {
    let mut cluster = Cluster::new(3, 8);
    cluster.cut = vec![(0, 2), (1, 2)];
    let (request, actions) = poison(&mut cluster, 0, 1);
    let first = target(&actions).unwrap();
    let second = target(&cluster.benches[0].die(request, first)).expect("one death is none");
    assert!(is_quarantined(&cluster.benches[0].die(request, second)));
    cluster.relay();
    assert!(is_quarantined(&poison(&mut cluster, 1, 2).1), "through another router");
    assert!(!is_quarantined(&poison(&mut cluster, 2, 3).1), "one that was not told");
    cluster.tell_whole(1, 2);
    assert!(is_quarantined(&poison(&mut cluster, 2, 4).1), "it was told everything");
}

#[test]
fn deaths_that_two_routers_saw_count_together() {
    let mut cluster = Cluster::new(2, 8);
    let (request, actions) = poison(&mut cluster, 0, 1);
    let first = target(&actions).unwrap();
    cluster.benches[0].die(request, first);
    // Its client gives up there and comes back through the other router.
    cluster.benches[0].tell(ended(request, Outcome::Cancelled));
    cluster.relay();
    let (request, actions) = poison(&mut cluster, 1, 2);
    let second = target(&actions).unwrap();
    assert!(is_quarantined(&cluster.benches[1].die(request, second)), "not a third replica");
    cluster.relay();
    assert!(is_quarantined(&poison(&mut cluster, 0, 3).1));
}

#[test]
fn a_replica_that_was_started_again_has_a_cold_cache_at_all_routers_once() {
    let mut cluster = Cluster::new(2, 1);
    let (request, name) = cluster.ask(0, 1, outline(0, 60));
    cluster.end(0, request);
    cluster.relay();
    let (own, other) = (cluster.id(0, &name), cluster.id(1, &name));
    let held = |cluster: &mut Cluster, replica| {
        cluster.benches[1].brain.placement.index().unwrap().held(replica)
    };
    assert_eq!(held(&mut cluster, other), 60);
    cluster.benches[0].tell(Event::Restarted { replica: own });
    cluster.relay();
    assert_eq!(held(&mut cluster, other), 0);
    // What comes after that stays when the other finds out by itself.
    let (request, _) = cluster.ask(1, 2, outline(1_000, 50));
    cluster.end(1, request);
    cluster.wait(1);
    cluster.benches[1].tell(Event::Restarted { replica: other });
    assert_eq!(held(&mut cluster, other), 50);
}

#[test]
fn lengths_that_one_router_saw_are_expected_by_all() {
    let mut cluster = Cluster::new(2, 2);
    let extent = Extent { text_bytes: 30_000, model: 9, streams: true, ..Extent::default() };
    let blocks: Arc<[u64]> = (1..64).collect();
    let asked = |cluster: &mut Cluster, at: usize, session: u64| {
        let bench = &mut cluster.benches[at];
        let request = RequestId(bench.requests);
        bench.requests += 1;
        let outline = Outline { blocks: Arc::clone(&blocks), ..Outline::default() };
        let (key, claim) = (SliceKey(3 << 32 | session), Claim::default());
        bench.tell(Event::Arrived { request, key, outline, extent, claim });
        let booking = cluster.benches[at].brain.books.get(request).unwrap();
        (request, booking.outline.prompt_tokens, booking.outline.output_tokens.unwrap())
    };
    for session in 0..60 {
        let (request, ..) = asked(&mut cluster, 0, session);
        cluster.benches[0].tell(Event::Answering { request });
        let usage = Usage { input: Some(10_000), output: Some(900), ..Usage::default() };
        cluster.benches[0].tell(Event::Ended { request, outcome: Outcome::Done, usage });
        cluster.relay();
    }
    let (_, prompt, answer) = asked(&mut cluster, 1, 100);
    assert!(9_500 < prompt && prompt < 10_500, "{prompt}");
    assert!(700 < answer && answer < 1_000, "{answer}");
    // One that joins is told what was learned, too.
    let mut late = Cluster::new(2, 2);
    std::mem::swap(&mut late.benches[0], &mut cluster.benches[0]);
    late.tell_whole(0, 1);
    let (_, prompt, answer) = asked(&mut late, 1, 100);
    assert!(9_500 < prompt && prompt < 10_500, "{prompt}");
    assert!(700 < answer && answer < 1_000, "{answer}");
}

#[test]
fn costs_that_one_router_learned_are_taken_on_by_one_that_has_seen_less() {
    let mut cluster = Cluster::new(2, 2);
    let given = crate::cost::Hardware::default();
    let mut step = given.step;
    step.floor_ms *= 3.0;
    let learned = Learned {
        class: given.class.clone(),
        given: given.step,
        step,
        overhead_ms: 1.0,
        is_used: true,
        seen: 500,
        changes: 0,
        errors: <[_; 3]>::default(),
    };
    cluster.benches[0].tell(Event::Recalled { costs: vec![learned] });
    cluster.tell_whole(0, 1);
    let known = cluster.benches[1].brain.learning.learned();
    assert_eq!((known[0].seen, known[0].step.floor_ms), (500, step.floor_ms));
    // Told now and then to those that are there already.
    let mut cluster_of_old = Cluster::new(2, 2);
    cluster_of_old.benches[0].tell(Event::Recalled { costs: known });
    cluster_of_old.wait(11);
    cluster_of_old.relay();
    assert_eq!(cluster_of_old.benches[1].brain.learning.learned()[0].seen, 500);
}

/// Which router gets the request of a step.
type Route = fn(u64) -> usize;

/// Routers under one contract, and requests of its tenant that run for two seconds each.
struct Market {
    cluster: Cluster,
    running: VecDeque<(u64, usize, RequestId)>,
    step: u64,
    refused: u64,
}

/// How far apart requests are, and how many steps later news arrive, and requests end.
const STEP: Duration = Duration::from_millis(50);
const RUNS: u64 = 40;

impl Market {
    fn new(routers: usize, limits: Limits) -> Self {
        let mut cluster = Cluster::new(routers, 4);
        for bench in &mut cluster.benches {
            bench.tell(Event::Contracted { limits: vec![(Tenant(1), limits)] });
        }
        Self { cluster, running: VecDeque::new(), step: 0, refused: 0 }
    }

    /// Lets one request come to a router. What happens is told one step later.
    fn pass(&mut self, at: usize) {
        self.step += 1;
        self.cluster.relay();
        for bench in &mut self.cluster.benches {
            bench.now = bench.now + STEP;
            if self.step.is_multiple_of(20) {
                bench.time();
            }
        }
        while let Some((_, at, request)) = self.running.front().filter(|it| it.0 <= self.step) {
            let (at, request) = (*at, *request);
            self.running.pop_front();
            let bench = &mut self.cluster.benches[at];
            bench.tell(Event::Answering { request });
            // Longer than was expected of it.
            let usage = Usage { input: Some(1_000), output: Some(300), ..Usage::default() };
            bench.tell(Event::Ended { request, outcome: Outcome::Done, usage });
        }
        let bench = &mut self.cluster.benches[at];
        let request = RequestId(bench.requests);
        bench.requests += 1;
        let claim = Claim { tenant: Tenant(1), ..Claim::default() };
        let (key, outline) = (SliceKey(1 << 32 | self.step), outline(self.step * 100, 10));
        let extent = Extent { text_bytes: 4_000, streams: true, ..Extent::default() };
        let actions = bench.tell(Event::Arrived { request, key, outline, extent, claim });
        match target(&actions) {
            Some(_) => self.running.push_back((self.step + RUNS, at, request)),
            None => self.refused += 1,
        }
    }

    /// The work that was done under the contract, in model units.
    fn used(&self) -> f64 {
        let used = |bench: &Bench| {
            let tenants = bench.brain.tenants();
            let own = tenants.iter().find(|it| it.tenant == Tenant(1)).unwrap();
            Use::ALL.iter().map(|it| own.usage.used[it.index()].work.as_mu()).sum::<f64>()
        };
        self.cluster.benches.iter().map(used).sum()
    }

    /// The work of each of the next seconds.
    fn seconds(&mut self, count: usize, router: impl Fn(u64) -> usize) -> Vec<f64> {
        let mut before = self.used();
        let each = (0..count).map(|_| {
            for _ in 0..20 {
                let at = router(self.step);
                self.pass(at);
            }
            let now = self.used();
            now - std::mem::replace(&mut before, now)
        });
        each.collect()
    }

    /// The work of each of the next minutes.
    fn minutes(&mut self, count: usize, router: impl Fn(u64) -> usize) -> Vec<f64> {
        let mut before = self.used();
        let each = (0..count).map(|_| {
            for _ in 0..1_200 {
                let at = router(self.step);
                self.pass(at);
            }
            let now = self.used();
            now - std::mem::replace(&mut before, now)
        });
        each.collect()
    }
}

#[test]
fn a_contract_holds_over_all_routers_within_a_twentieth_also_when_traffic_jumps() {
    let limits = Limits {
        work_per_min: Some(Work::from_mu(60.0)),
        burst: Duration::ZERO,
        is_hard: true,
        ..Limits::default()
    };
    let one = Market::new(1, limits).minutes(3, |_| 0);
    let routes: [(&str, Route); 3] = [
        ("each request to the next", |step| usize::try_from(step % 3).unwrap()),
        ("jumps every ten seconds", |step| usize::try_from(step / 200 % 3).unwrap()),
        ("two thirds to one", |step| usize::try_from(step % 3).unwrap().saturating_sub(1)),
    ];
    for (name, route) in routes {
        let mut market = Market::new(3, limits);
        let minutes = market.minutes(3, route);
        assert!(0 < market.refused, "{name}: there is more than fits, {minutes:?} {one:?}");
        // Of the first minute, what was saved up is part.
        for (minute, used) in minutes.iter().enumerate().skip(1) {
            let share = used / 60.0;
            assert!((0.95..=1.05).contains(&share), "{name}, minute {minute}: {minutes:?} {one:?}");
        }
    }
}

#[test]
fn a_router_that_joins_knows_what_of_a_contract_is_used() {
    let limits = Limits {
        requests_per_min: Some(60),
        burst: Duration::from_secs(60),
        is_hard: true,
        ..Limits::default()
    };
    let mut market = Market::new(2, limits);
    market.cluster.apart = true;
    (0..200).for_each(|_| market.pass(0));
    assert!(0 < market.refused);
    market.cluster.tell_whole(0, 1);
    let before = market.refused;
    (0..20).for_each(|_| market.pass(1));
    assert!(before + 18 <= market.refused, "nothing is left of it");
}

/// Sixty model units a minute, and no more.
const SIXTY: Limits = Limits {
    work_per_min: Some(Work::from_parts(60_000_000)),
    tokens_per_min: None,
    requests_per_min: None,
    burst: Duration::ZERO,
    is_hard: true,
};

#[test]
fn a_contract_holds_over_any_minute_also_when_all_traffic_jumps_in_its_middle() {
    assert_eq!(SIXTY.work_per_min, Some(Work::from_mu(60.0)));
    let mut market = Market::new(3, SIXTY);
    // It stays at a router for 47 seconds, so that jumps and minutes never fall together.
    let seconds = market.seconds(240, |step| usize::try_from(step / 940 % 3).unwrap());
    for (first, minute) in seconds.windows(60).enumerate().skip(60) {
        let share = minute.iter().sum::<f64>() / 60.0;
        assert!((0.95..=1.05).contains(&share), "the minute from second {first} on: {share}");
    }
}

#[test]
fn during_a_partition_each_side_gives_the_contract_once_and_after_it_all_of_them_once() {
    let mut market = Market::new(3, SIXTY);
    let route = |step: u64| usize::try_from(step % 3).unwrap();
    market.minutes(2, route);
    // Two sides: one router, and two that talk to each other.
    market.cluster.cut = vec![(0, 1), (0, 2)];
    let parted = market.minutes(3, route);
    for used in &parted {
        assert!(*used <= 2.0 * 60.0 * 1.05, "more than once for each side: {parted:?}");
    }
    market.cluster.cut = Vec::new();
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
        market.cluster.tell_whole(from, to);
    }
    let merged = market.minutes(3, route);
    assert!(merged[0] <= 60.0 * 1.05, "{merged:?}");
    for used in &merged[1..] {
        assert!((0.95..=1.05).contains(&(used / 60.0)), "{merged:?}");
    }
}
