//! Several brains that tell each other what they do, with the messages that routers send.

mod found;
mod line;
mod plans;

use super::*;
use crate::cluster::{News, PeerFrame};
use crate::domain::RouterId;

/// Some brains with the same replicas, each with ids of its own for them.
struct Cluster {
    benches: Vec<Bench>,
    /// What is told while they are apart is lost.
    apart: bool,
    /// Pairs that cannot talk to each other.
    cut: Vec<(usize, usize)>,
}

fn router(number: usize) -> RouterId {
    RouterId(u64::try_from(number).unwrap() + 1)
}

fn outline(first: u64, blocks: u64) -> Outline {
    let prompt_tokens = u32::try_from(blocks).unwrap() * 100;
    let blocks = (first..first + blocks).collect();
    Outline { blocks, block_tokens: 100, prompt_tokens, ..Outline::default() }
}

impl Cluster {
    fn new(routers: usize, replicas: u32) -> Self {
        Self::with(&Settings::without_line(PolicyKind::PRICED), routers, replicas)
    }

    fn with(settings: &Settings, routers: usize, replicas: u32) -> Self {
        let benches = (0..routers).map(|number| {
            let settings = Settings { router: Some(router(number)), ..settings.clone() };
            let mut bench = Bench::new(settings, &[]);
            for id in 0..replicas {
                // Each has read its list in another order.
                let name = (id + u32::try_from(number).unwrap()) % replicas;
                let (replica, weight) = (ReplicaId(id), 1.0);
                let (name, hardware) = (format!("http://gpu-{name}:8000"), Arc::default());
                bench.tell(Event::Joined { replica, name, weight, hardware });
                bench.tell(Event::Probed { replica, probe: Probe::Passed });
            }
            bench.brain.take_news();
            bench
        });
        Self { benches: benches.collect(), apart: false, cut: Vec::new() }
    }

    /// Carries what all have to tell, until none has more; returns what they want done.
    fn relay(&mut self) -> Vec<(usize, Action)> {
        let mut actions = Vec::new();
        loop {
            let told: Vec<_> =
                self.benches.iter_mut().map(|it| it.brain.take_news()).enumerate().collect();
            if told.iter().all(|it| it.1.is_empty()) {
                return actions;
            }
            for (from, tellings) in told.into_iter().filter(|_| !self.apart) {
                for Telling { to, news } in tellings {
                    for at in (0..self.benches.len()).filter(|it| *it != from) {
                        if self.cut.contains(&(at.min(from), at.max(from))) {
                            continue;
                        }
                        if to.is_none_or(|it| it == router(at)) {
                            let news = vec![news.clone()];
                            let frame = PeerFrame::News { number: 1, pool: 0, news };
                            let Ok(PeerFrame::News { news, .. }) =
                                PeerFrame::decode(&frame.encode())
                            else {
                                panic!("it comes back as it was");
                            };
                            let heard =
                                Event::Heard { router: router(from), news, is_whole: false };
                            let done = self.benches[at].tell(heard);
                            actions.extend(done.into_iter().map(|it| (at, it)));
                        }
                    }
                }
            }
        }
    }

    /// Has one router send a request; returns its number and the name of its replica.
    fn ask(&mut self, at: usize, session: u64, outline: Outline) -> (RequestId, String) {
        let bench = &mut self.benches[at];
        let request = RequestId(bench.requests);
        bench.requests += 1;
        let extent = Extent { text_bytes: 4 * outline.prompt_tokens, ..Extent::default() };
        let (key, claim) = (SliceKey(session), Claim::default());
        let actions = bench.tell(Event::Arrived { request, key, outline, extent, claim });
        let replica = target(&actions).expect("a replica takes it");
        (request, self.name(at, replica))
    }

    fn end(&mut self, at: usize, request: RequestId) {
        self.benches[at].tell(Event::Answering { request });
        self.benches[at].tell(ended(request, Outcome::Done));
    }

    fn name(&self, at: usize, replica: ReplicaId) -> String {
        let snapshot = self.benches[at].brain.snapshot();
        snapshot.replicas.into_iter().find(|it| it.id == replica).unwrap().name
    }

    fn id(&self, at: usize, name: &str) -> ReplicaId {
        let snapshot = self.benches[at].brain.snapshot();
        snapshot.replicas.into_iter().find(|it| it.name == name).unwrap().id
    }

    /// Counts what a router believes to be in flight elsewhere.
    fn elsewhere(&self, at: usize) -> usize {
        self.benches[at].brain.heard_in_flight().iter().map(|it| it.1).sum()
    }

    fn wait(&mut self, seconds: u64) {
        for bench in &mut self.benches {
            bench.wait(seconds);
            bench.time();
        }
    }

    /// Tells one router all that another knows.
    fn tell_whole(&mut self, from: usize, to: usize) {
        let now = self.benches[from].now;
        let news = self.benches[from].brain.whole(now);
        self.benches[to].tell(Event::Heard { router: router(from), news, is_whole: true });
    }
}

#[test]
fn what_one_router_sends_counts_at_the_others_until_it_ends() {
    let mut cluster = Cluster::new(2, 2);
    let (request, replica) = cluster.ask(0, 1, outline(0, 400));
    cluster.relay();
    assert_eq!(cluster.elsewhere(1), 1);
    for number in 1..30 {
        let (own, other) = cluster.ask(1, 100 + number, outline(number * 1_000, 5));
        assert_ne!(other, replica, "a long prompt is being read there");
        cluster.end(1, own);
    }
    let load = cluster.benches[1].brain.load(Moment::ZERO);
    let busy = load.iter().find(|it| it.name == replica).unwrap();
    assert!(1_000.0 < busy.elsewhere.work_ms() && busy.booked.work_ms() < 1.0, "{busy:?}");
    cluster.end(0, request);
    cluster.relay();
    assert_eq!(cluster.elsewhere(1), 0);
    let load = cluster.benches[1].brain.load(Moment::ZERO);
    assert!(load.iter().all(|it| it.elsewhere == crate::fleet::Load::default()));
}

#[test]
fn a_session_finds_its_cache_through_any_router_and_each_turn_is_told_once() {
    let mut cluster = Cluster::new(3, 4);
    let mut told_bytes = 0;
    for session in 1..40 {
        let mut home = None;
        for turn in 1..6 {
            let at = usize::try_from((session * 7 + turn) % 3).unwrap();
            let blocks = 50 * turn;
            let (request, replica) = cluster.ask(at, session, outline(session * 10_000, blocks));
            let news = cluster.benches[at].brain.take_news();
            let Some(News::Opened(opened)) = news.iter().map(|it| &it.news).next_back() else {
                panic!("{news:?}");
            };
            told_bytes += 8 * opened.chain.more.len();
            if 1 < turn {
                // What is new of the prompt is computed, and no more.
                let whole = crate::cost::Hardware::default().cost.prefill_ms(5_000 * 2, 0);
                assert!(crate::fleet::ms(opened.charge.prefill_us) < whole, "turn {turn}");
            }
            let news = news.into_iter().map(|it| it.news).collect::<Vec<_>>();
            for other in (0..3).filter(|it| *it != at) {
                let heard =
                    Event::Heard { router: router(at), news: news.clone(), is_whole: false };
                cluster.benches[other].tell(heard);
            }
            cluster.end(at, request);
            cluster.relay();
            assert_eq!(*home.get_or_insert(replica.clone()), replica, "turn {turn}");
        }
    }
    let whole = 39 * 8 * 250;
    assert!(told_bytes < whole + 39 * 5 * 8 * 16, "{told_bytes} bytes of {whole}");
}

#[test]
fn a_router_that_missed_the_beginning_of_a_prompt_asks_for_it() {
    let mut cluster = Cluster::new(2, 2);
    cluster.apart = true;
    let (request, replica) = cluster.ask(0, 1, outline(0, 100));
    cluster.end(0, request);
    cluster.relay();
    cluster.apart = false;
    let (request, _) = cluster.ask(0, 1, outline(0, 130));
    cluster.end(0, request);
    cluster.relay();
    cluster.benches[1].brain.explain(RequestId(0));
    let (_, other) = cluster.ask(1, 1, outline(0, 130));
    assert_eq!(other, replica);
    let told = cluster.benches[1].brain.take_explanation(RequestId(0)).unwrap();
    assert!(told.ttft_ms < 50.0, "{}", told.ttft_ms);
}

#[test]
fn everything_told_anew_replaces_what_was_told_before() {
    let mut cluster = Cluster::new(2, 2);
    let (first, _) = cluster.ask(0, 1, outline(0, 50));
    cluster.ask(0, 2, outline(1_000, 50));
    cluster.relay();
    cluster.apart = true;
    cluster.end(0, first);
    cluster.ask(0, 3, outline(2_000, 50));
    cluster.relay();
    cluster.apart = false;
    assert_eq!(cluster.elsewhere(1), 2);
    cluster.tell_whole(0, 1);
    cluster.tell_whole(0, 1);
    assert_eq!(cluster.elsewhere(1), 2, "the first is over and the third is new");
    let (request, _) = cluster.ask(1, 9, outline(2_000, 50));
    assert!(cluster.benches[1].brain.load(Moment::ZERO).iter().any(|it| it.in_flight == 1));
    cluster.end(1, request);
}

#[test]
fn what_a_lost_router_had_is_counted_as_long_as_it_should_take_and_no_longer() {
    let mut cluster = Cluster::new(2, 2);
    cluster.ask(0, 1, outline(0, 100));
    cluster.relay();
    cluster.benches[1].tell(Event::Parted { router: router(0), is_lost: true });
    cluster.wait(1);
    assert_eq!(cluster.elsewhere(1), 1, "its replica is still at work");
    cluster.wait(60);
    assert_eq!(cluster.elsewhere(1), 0);
    // One that says goodbye has nothing in flight.
    cluster.ask(0, 2, outline(1_000, 100));
    cluster.relay();
    assert_eq!(cluster.elsewhere(1), 1, "it is back");
    cluster.benches[1].tell(Event::Parted { router: router(0), is_lost: false });
    assert_eq!(cluster.elsewhere(1), 0);
}

#[test]
fn a_lost_router_leaves_its_books_for_a_minute_at_most_whatever_it_had() {
    let mut cluster = Cluster::new(2, 2);
    cluster.ask(0, 1, outline(0, 100));
    let mut news: Vec<News> =
        cluster.benches[0].brain.take_news().into_iter().map(|it| it.news).collect();
    for it in &mut news {
        if let News::Opened(opened) = it {
            opened.expected_ms = 600_000;
        }
    }
    cluster.benches[1].tell(Event::Heard { router: router(0), news, is_whole: false });
    cluster.benches[1].tell(Event::Parted { router: router(0), is_lost: true });
    cluster.wait(50);
    assert_eq!(cluster.elsewhere(1), 1, "it may only be cut off");
    cluster.wait(15);
    assert_eq!(cluster.elsewhere(1), 0);
}

#[test]
fn an_order_given_to_one_holds_at_all_and_the_latest_holds() {
    let mut cluster = Cluster::new(3, 3);
    let drained = "http://gpu-1:8000";
    let replica = cluster.id(0, drained);
    cluster.benches[0].tell(Event::Ordered(Order::Drain { replica }));
    cluster.relay();
    cluster.wait(3);
    for session in 0..30 {
        let (request, replica) = cluster.ask(2, session, outline(session * 100, 5));
        assert_ne!(replica, drained);
        cluster.end(2, request);
    }
    // Another takes it back while the first is away, which then comes with the old order.
    let replica = cluster.id(1, drained);
    cluster.benches[1].tell(Event::Ordered(Order::Undrain { replica }));
    cluster.apart = true;
    let taken_back = cluster.benches[1].brain.whole(Moment::ZERO);
    cluster.relay();
    cluster.apart = false;
    cluster.tell_whole(0, 1);
    let heard = Event::Heard { router: router(1), news: taken_back, is_whole: true };
    cluster.benches[0].tell(heard.clone());
    cluster.benches[2].tell(heard);
    cluster.wait(3);
    for at in 0..3 {
        let found = (100..160).any(|session| {
            let (request, replica) = cluster.ask(at, session, outline(session * 100, 5));
            cluster.end(at, request);
            replica == drained
        });
        assert!(found, "router {at} still drains it");
    }
}

#[test]
fn a_replica_that_one_finds_out_is_asked_by_all_and_put_out_by_none_for_that() {
    let mut cluster = Cluster::new(2, 2);
    cluster.wait(40);
    cluster.relay();
    cluster.wait(10);
    let replica = cluster.id(0, "http://gpu-0:8000");
    for _ in 0..3 {
        cluster.benches[0].tell(Event::Probed { replica, probe: Probe::Refused });
    }
    let done = cluster.relay();
    let other = cluster.id(1, "http://gpu-0:8000");
    let is_asked =
        |it: &(usize, Action)| matches!(it, (1, Action::Ask { replica, .. }) if *replica == other);
    assert!(done.iter().any(is_asked), "{done:?}");
    assert_eq!(cluster.benches[1].state(other), "up");
}

#[test]
fn a_brain_that_lost_its_memory_is_told_everything() {
    let mut cluster = Cluster::new(2, 2);
    let (request, replica) = cluster.ask(0, 1, outline(0, 200));
    cluster.end(0, request);
    cluster.ask(0, 2, outline(5_000, 200));
    cluster.relay();
    let bench = &mut cluster.benches[1];
    let mut record = Record::default();
    for id in 0..2 {
        let (name, hardware) = (format!("http://gpu-{}:8000", (id + 1) % 2), Arc::default());
        record.note(&Event::Joined { replica: ReplicaId(id), name, weight: 1.0, hardware });
    }
    let settings = bench.brain.settings.clone();
    let inherit = (&mut bench.brain, Inherit::Nothing);
    let new = Brain::rebuild(bench.now, settings, &record, inherit, &mut Vec::new());
    bench.brain = new;
    for id in 0..2 {
        bench.tell(Event::Probed { replica: ReplicaId(id), probe: Probe::Passed });
    }
    cluster.relay();
    assert_eq!(cluster.elsewhere(1), 1);
    let (_, other) = cluster.ask(1, 1, outline(0, 200));
    assert_eq!(other, replica);
}

#[test]
fn routers_that_believe_different_things_of_a_cache_find_out_and_the_poorer_asks() {
    let mut cluster = Cluster::new(2, 1);
    cluster.apart = true;
    for session in 0..20 {
        let (request, _) = cluster.ask(0, session, outline(session * 1_000, 60));
        cluster.end(0, request);
    }
    cluster.relay();
    cluster.apart = false;
    cluster.wait(2);
    cluster.relay();
    let samples: Vec<_> = cluster
        .benches
        .iter_mut()
        .map(|it| it.brain.placement.index().unwrap().sample(ReplicaId(0)))
        .collect();
    assert_eq!(samples[0], samples[1]);
}

#[test]
fn a_router_that_is_alone_prepares_nothing_to_tell() {
    let mut bench = Bench::new(Settings::without_line(PolicyKind::PRICED), &[1.0, 1.0]);
    bench.served(1);
    bench.wait(5);
    bench.time();
    assert!(bench.brain.take_news().is_empty());
}

#[test]
fn an_explanation_says_which_routers_made_a_replica_expensive() {
    let mut cluster = Cluster::new(3, 2);
    let (_, busy) = cluster.ask(0, 1, outline(0, 400));
    cluster.relay();
    let (_, other) = cluster.ask(1, 2, outline(10_000, 20));
    cluster.relay();
    assert_ne!(busy, other);
    let bench = &mut cluster.benches[2];
    bench.brain.explain(RequestId(bench.requests));
    let (request, chosen) = cluster.ask(2, 3, outline(20_000, 20));
    assert_eq!(chosen, other, "the other one is full");
    let explanation = cluster.benches[2].brain.take_explanation(request).unwrap();
    for (name, by) in [(&busy, router(0)), (&other, router(1))] {
        let it = explanation.considered.iter().find(|it| it.name == *name).unwrap();
        let [booked] = it.elsewhere[..] else { panic!("{it:?}") };
        assert_eq!((booked.router, booked.in_flight), (by, 1));
        assert!(0.0 < booked.work_ms && (booked.work_ms - it.booked_ms).abs() < 1e-6, "{it:?}");
    }
}
