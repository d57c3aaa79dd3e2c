//! What waits at several routers is one line.

use super::*;
use crate::cluster::FoundOut;
use crate::scaling::{Rules, Scaler};

/// Has a router take in a request with a prompt that takes about a second to read; tells whether it was sent.
fn offer(cluster: &mut Cluster, at: usize, session: u64) -> bool {
    let bench = &mut cluster.benches[at];
    let request = RequestId(bench.requests);
    bench.requests += 1;
    let outline = outline(session * 10_000, 200);
    let extent = Extent { text_bytes: 4 * outline.prompt_tokens, ..Extent::default() };
    let (key, claim) = (SliceKey(session), Claim::default());
    let actions = bench.tell(Event::Arrived { request, key, outline, extent, claim });
    cluster.relay();
    target(&actions).is_some()
}

/// Two routers and one replica that is full, with these numbers of requests in their lines.
fn full(first: u64, second: u64) -> Cluster {
    let settings = Settings { policy: PolicyKind::PRICED, ..Settings::default() };
    let mut cluster = Cluster::with(&settings, 2, 1);
    let filled = (0..100).find(|it| !offer(&mut cluster, 0, *it)).expect("it is full at some time");
    (1..first).for_each(|it| assert!(!offer(&mut cluster, 0, filled + it)));
    (0..second).for_each(|it| assert!(!offer(&mut cluster, 1, 1_000 + it)));
    cluster
}

#[test]
fn a_request_does_not_overtake_those_that_wait_at_another_router() {
    let (mut cluster, mut apart) = (full(1, 0), full(1, 0));
    apart.benches[1].tell(Event::Parted { router: router(0), is_lost: false });
    for bench in [&mut cluster.benches[1], &mut apart.benches[1]] {
        for _ in 0..20 {
            bench.wait(1);
            bench.time();
        }
    }
    // Both have no line and see an empty replica by now; one of them knows of a request that waits.
    assert!(offer(&mut apart, 1, 5_000));
    assert!(!offer(&mut cluster, 1, 5_000), "it waits for its turn");
}

#[test]
fn two_routers_do_not_fill_the_same_room() {
    let waiting = 4;
    let mut cluster = full(waiting, waiting);
    let (mut sent, mut together) = (0, 0);
    for _ in 0..20_000 {
        let mut at_once = 0;
        for bench in &mut cluster.benches {
            bench.now = bench.now + Duration::from_millis(1);
            let actions = bench.time();
            at_once += actions.iter().filter(|it| matches!(it, Action::Send { .. })).count();
        }
        sent += at_once;
        together += usize::from(1 < at_once);
        let more = cluster.relay();
        sent += more.iter().filter(|it| matches!(it.1, Action::Send { .. })).count();
    }
    assert_eq!(sent, usize::try_from(2 * waiting).unwrap(), "all had their turn");
    assert!(together <= 1, "{together} times both sent one");
}

#[test]
fn what_waits_at_one_router_counts_in_the_size_that_all_of_them_give() {
    let mut cluster = full(4, 2);
    let held: Vec<f64> =
        cluster.benches.iter_mut().map(|it| it.brain.take_sample(it.now).held_mu).collect();
    assert!(0.0 < held[0], "{held:?}");
    // It is told again when it has changed by an eighth.
    assert!((held[0] / held[1] - 1.0).abs() < 0.15, "{held:?}");
}

/// Has a router refuse one request, the same each time, because it cannot wait; tells the others.
fn refuse(cluster: &mut Cluster, at: usize) {
    let bench = &mut cluster.benches[at];
    let request = RequestId(bench.requests);
    bench.requests += 1;
    let outline = outline(990_000, 200);
    let extent = Extent { text_bytes: 4 * outline.prompt_tokens, ..Extent::default() };
    let sent_by = Some(bench.now + Duration::from_millis(100));
    let (key, claim) = (SliceKey(77), Claim { sent_by, ..Claim::default() });
    let actions = bench.tell(Event::Arrived { request, key, outline, extent, claim });
    assert!(target(&actions).is_none(), "the replica is full");
    // It is refused at the end of one, and told of at the end of the next.
    pass(cluster);
    pass(cluster);
}

/// Lets a second pass, in which all tell what they were asked for.
fn pass(cluster: &mut Cluster) {
    cluster.wait(1);
    cluster.relay();
}

fn samples(cluster: &mut Cluster) -> Vec<crate::scaling::Sample> {
    cluster.benches.iter_mut().map(|it| it.brain.take_sample(it.now)).collect()
}

#[test]
fn what_one_router_refuses_counts_once_in_the_size_that_all_of_them_give() {
    let mut cluster = full(1, 0);
    pass(&mut cluster);
    samples(&mut cluster);
    let like = |one: f64, other: f64| (one - other).abs() < 1e-3;
    refuse(&mut cluster, 0);
    let once = samples(&mut cluster);
    assert!(0.0 < once[0].offered_mu && 0.0 < once[0].refused_mu, "{:?}", once[0]);
    assert!(like(once[0].offered_mu, once[1].offered_mu), "{once:?}");
    assert!(like(once[0].refused_mu, once[1].refused_mu), "{once:?}");
    // It comes again, through the other router, and waits behind others.
    (0..12).for_each(|it| _ = offer(&mut cluster, 0, 500 + it));
    pass(&mut cluster);
    samples(&mut cluster);
    refuse(&mut cluster, 1);
    for it in samples(&mut cluster) {
        assert!(it.offered_mu <= 0.0 && 0.0 < it.refused_mu, "the same work: {it:?}");
    }
}

#[test]
fn a_router_that_does_not_tell_its_demand_is_judged_by_what_it_sends() {
    let mut cluster = Cluster::new(2, 2);
    cluster.ask(0, 1, outline(0, 100));
    let told = cluster.benches[0].brain.take_news().into_iter().map(|it| it.news);
    let is_older = |it: &News| !matches!(it, News::Found(FoundOut::Demand { .. }));
    let news: Vec<News> = told.filter(is_older).collect();
    let heard = |news| Event::Heard { router: router(0), news, is_whole: false };
    cluster.benches[1].tell(heard(news.clone()));
    let offered = samples(&mut cluster)[1].offered_mu;
    assert!(0.0 < offered);
    let nothing = FoundOut::Demand { offered: 0, beyond: 0, refused: 0 };
    cluster.benches[1].tell(heard(vec![News::Found(nothing)]));
    cluster.benches[1].tell(heard(news));
    assert!(samples(&mut cluster)[1].offered_mu <= 0.0, "it tells by itself from now on");
}

#[test]
fn routers_that_share_the_traffic_want_the_same_number_of_replicas() {
    let settings = Settings { policy: PolicyKind::PRICED, ..Settings::default() };
    let mut cluster = Cluster::with(&settings, 2, 4);
    let rules = Rules { min: 1, max: 64, start_up: Some(Duration::from_secs(30)) };
    let mut scalers = [Scaler::new(rules), Scaler::new(rules)];
    let mut wanted = Vec::new();
    for second in 0..240_u64 {
        // Two thirds go to one of them, and the other way round in the second half.
        for number in 0..3 {
            let at = usize::from((number == 0) == (second < 120));
            _ = offer(&mut cluster, at, 3 * second + number);
        }
        wanted = Vec::new();
        for (bench, scaler) in cluster.benches.iter_mut().zip(&mut scalers) {
            bench.wait(1);
            bench.time();
            let sample = bench.brain.take_sample(bench.now);
            scaler.observe(bench.now, &sample);
            wanted.push(scaler.decide(bench.now).wanted);
        }
        cluster.relay();
    }
    assert!(1 < wanted[0] && wanted[0] < 64, "{wanted:?}");
    assert_eq!(wanted[0], wanted[1]);
}
