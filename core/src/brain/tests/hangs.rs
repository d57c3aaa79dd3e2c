//! Hangs, slowness and restarts, as events and what they must bring.

use super::*;

const LOOK_MS: u64 = 250;

impl Bench {
    /// Lets `millis` pass, with a look at the fleet as often as the brain wants one.
    pub(super) fn pass(&mut self, millis: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..millis / LOOK_MS {
            self.now = self.now + Duration::from_millis(LOOK_MS);
            actions.extend(self.time());
        }
        actions
    }

    /// Sends a stream with `prompt_tokens` in a session of its own; says where it went.
    pub(super) fn open_stream(
        &mut self,
        session: u32,
        prompt_tokens: u32,
    ) -> (RequestId, ReplicaId) {
        let request = RequestId(self.requests);
        self.requests += 1;
        let key = SliceKey::new(1, "m", &session.to_string());
        let outline = Outline {
            blocks: Arc::new([u64::from(session) + 1]),
            block_tokens: 64,
            prompt_tokens,
            output_tokens: None,
            ..Outline::default()
        };
        let extent = Extent { streams: true, digest: 7, ..Extent::default() };
        let actions =
            self.tell(Event::Arrived { request, key, outline, extent, claim: Claim::default() });
        (request, target(&actions).expect("a replica takes it"))
    }

    fn token(&mut self, request: RequestId, output_tokens: u32) {
        self.tell(Event::Streamed { request, output_tokens });
    }

    fn reason(&self, replica: ReplicaId) -> Option<&'static str> {
        let snapshot = self.brain.snapshot();
        snapshot.replicas.iter().find(|it| it.id == replica).and_then(|it| it.reason)
    }

    /// Shows the pool that it reads faster than one token in a millisecond.
    fn prove(&mut self) {
        let (request, _) = self.open_stream(9_999, 4000);
        self.tell(Event::Answering { request });
        let usage = Usage { input: Some(4000), output: Some(1), cached: Some(0) };
        self.tell(Event::Ended { request, outcome: Outcome::Done, usage });
    }

    /// The replica crashes under a request and then refuses connections.
    pub(super) fn die(&mut self, request: RequestId, replica: ReplicaId) -> Vec<Action> {
        let mut actions = self.fail(request, Failure::Lost);
        actions.extend(self.tell(Event::Probed { replica, probe: Probe::Refused }));
        actions
    }
}

fn given_up(actions: &[Action]) -> Vec<RequestId> {
    let given_up = actions.iter().filter_map(|action| match action {
        Action::GiveUp { request, .. } => Some(*request),
        Action::Send { .. }
        | Action::Refuse { .. }
        | Action::Release { .. }
        | Action::Ask { .. } => None,
    });
    given_up.collect()
}

pub(super) fn asked(actions: &[Action]) -> Vec<ReplicaId> {
    let asked = actions.iter().filter_map(|action| match action {
        Action::Ask { replica, .. } => Some(*replica),
        Action::Send { .. }
        | Action::Refuse { .. }
        | Action::Release { .. }
        | Action::GiveUp { .. } => None,
    });
    asked.collect()
}

pub(super) fn is_quarantined(actions: &[Action]) -> bool {
    let quarantined =
        |it: &Action| matches!(it, Action::Refuse { refusal: Refusal::Quarantined { .. }, .. });
    actions.iter().any(quarantined)
}

#[test]
fn a_hung_replica_is_out_within_five_seconds_and_what_it_had_is_given_up() {
    let mut bench = Bench::session(2);
    bench.prove();
    let (begun, hung) = bench.open_stream(1, 500);
    bench.tell(Event::Answering { request: begun });
    let found = (2..50).find_map(|it| {
        let (request, replica) = bench.open_stream(it, 500);
        (replica == hung).then_some(request)
    });
    let waiting = found.expect("some session lives there");
    let others: Vec<RequestId> = bench.brain.books.iter().map(|it| *it.0).collect();
    let actions = bench.pass(2500);
    assert!(asked(&actions).contains(&hung), "{actions:?}");
    assert_eq!((bench.state(hung), bench.reason(hung)), ("suspect", Some("hung")));
    // The other one shows that it lives, by its first tokens.
    for request in others {
        let there = bench.brain.books.get(request).is_some_and(|it| it.replica == hung);
        if !there {
            bench.tell(Event::Answering { request });
            bench.tell(ended(request, Outcome::Done));
        }
    }
    let actions = bench.pass(2500);
    assert_eq!((bench.state(hung), bench.reason(hung)), ("out", Some("hung")));
    let given_up = given_up(&actions);
    assert!(given_up.contains(&begun) && given_up.contains(&waiting));
    let next = target(&bench.fail(waiting, Failure::Hung)).unwrap();
    assert_ne!(next, hung);
    bench.tell(ended(begun, Outcome::Cut));
    let notices = bench.brain.take_notices();
    let told = notices
        .iter()
        .any(|it| matches!(it, Notice::Changed { now, silence: Some(_), .. } if now.name == "out"));
    assert!(told, "operators are told how long it was silent");
}

#[test]
fn a_replica_that_reads_a_long_prompt_is_left_alone() {
    // No request waits at the router: the others wait at the replica, behind the prompt.
    let mut bench = Bench::new(Settings::without_line(PolicyKind::SESSION), &[1.0; 2]);
    bench.prove();
    let (long, busy) = bench.open_stream(1, 100_000);
    let (stalled, other) =
        (2..50).map(|it| bench.open_stream(it, 100)).find(|it| it.1 == busy).unwrap();
    assert_eq!(other, busy);
    bench.tell(Event::Answering { request: stalled });
    // Eight billion parameters on an H200 read it in about ten seconds.
    let elsewhere: Vec<RequestId> = bench.brain.books.iter().map(|it| *it.0).collect();
    for _ in 0..40 {
        for request in &elsewhere {
            let there = bench.brain.books.get(*request).is_some_and(|it| it.replica == busy);
            if !there {
                bench.tell(Event::Answering { request: *request });
            }
        }
        let actions = bench.pass(250);
        assert_eq!(given_up(&actions), []);
        assert_eq!(bench.state(busy), "up");
    }
    bench.tell(Event::Answering { request: long });
    assert_eq!(bench.state(busy), "up");
}

#[test]
fn nobody_is_put_out_when_nobody_else_is_there() {
    let mut bench = Bench::session(1);
    bench.prove();
    let (request, replica) = bench.open_stream(1, 100);
    let actions = bench.pass(30_000);
    assert_eq!(given_up(&actions), []);
    assert_eq!((bench.state(replica), bench.reason(replica)), ("suspect", Some("hung")));
    assert_eq!(bench.open_stream(2, 100).1, replica, "a suspect is better than no replica");
    bench.token(request, 8);
    bench.tell(Event::Answering { request });
    assert_eq!(bench.state(replica), "up");
}

#[test]
fn a_router_that_was_asleep_blames_nobody_for_the_silence() {
    let mut bench = Bench::session(2);
    bench.prove();
    let (request, replica) = bench.open_stream(1, 100);
    bench.tell(Event::Answering { request });
    bench.pass(500);
    bench.wait(600);
    assert_eq!(given_up(&bench.time()), []);
    assert_eq!(bench.state(replica), "up");
    bench.pass(4500);
    assert_eq!(bench.state(replica), "out", "silence counts from when it woke");
}

#[test]
fn bytes_that_are_heard_of_late_clear_a_suspect() {
    let mut bench = Bench::session(2);
    bench.prove();
    let (request, replica) = bench.open_stream(1, 100);
    bench.tell(Event::Answering { request });
    bench.pass(3000);
    assert_eq!(bench.state(replica), "suspect");
    bench.tell(Event::Sign { replica, at: Moment::ZERO });
    assert_eq!(bench.state(replica), "suspect", "old news");
    bench.tell(Event::Sign { replica, at: bench.now });
    assert_eq!(bench.state(replica), "up");
}

#[test]
fn a_replica_whose_clients_do_not_take_its_tokens_is_not_silent() {
    let mut bench = Bench::session(2);
    bench.prove();
    let (request, replica) = bench.open_stream(1, 100);
    bench.tell(Event::Answering { request });
    for _ in 0..40 {
        bench.tell(Event::Unawaited { replica });
        bench.pass(250);
    }
    assert_eq!(bench.state(replica), "up");
}

#[test]
fn a_hung_replica_comes_back_by_a_token_and_a_trickle() {
    let mut bench = Bench::session(2);
    bench.prove();
    let (request, hung) = bench.open_stream(1, 100);
    bench.tell(Event::Answering { request });
    bench.pass(5000);
    bench.tell(ended(request, Outcome::Cut));
    assert_eq!(bench.state(hung), "out");
    bench.tell(Event::Probed { replica: hung, probe: Probe::Passed });
    bench.wait(1);
    let (meanwhile, elsewhere) = bench.open_stream(1, 100);
    assert_ne!(elsewhere, hung, "a health check proves nothing");
    bench.tell(ended(meanwhile, Outcome::Done));
    let actions = bench.pass(3000);
    assert!(asked(&actions).contains(&hung), "{actions:?}");
    bench.tell(Event::Probed { replica: hung, probe: Probe::Generated });
    let well = ReplicaId(1 - hung.0);
    bench.tell(Event::Sign { replica: well, at: bench.now });
    assert_eq!(bench.state(hung), "up");
    let there = (100..120).filter(|it| bench.open_stream(*it, 100).1 == hung).count();
    assert!(there <= 2, "a trickle: {there}");
}

#[test]
fn an_idle_replica_is_asked_for_a_token_once_in_a_while() {
    let mut bench = Bench::session(1);
    let replica = bench.served(0);
    assert_eq!(asked(&bench.pass(29_000)), []);
    assert_eq!(asked(&bench.pass(2_000)), [replica]);
    bench.tell(Event::Probed { replica, probe: Probe::Generated });
    assert_eq!(asked(&bench.pass(29_000)), []);
    assert_eq!(asked(&bench.pass(2_000)), [replica]);
    let (asked_at, last_byte_at) = (bench.now, None);
    bench.tell(Event::Probed { replica, probe: Probe::Mute { asked_at, last_byte_at } });
    assert_eq!((bench.state(replica), bench.reason(replica)), ("out", Some("hung")));
}

#[test]
fn one_that_lags_behind_its_peers_is_put_out_and_when_all_lag_nobody_is() {
    for all_slow in [false, true] {
        let mut bench = Bench::session(8);
        let streams: Vec<(RequestId, ReplicaId)> =
            (0..80).map(|it| bench.open_stream(it, 100)).collect();
        let slow = streams[0].1;
        let mut tokens = vec![0; streams.len()];
        for (request, _) in &streams {
            bench.tell(Event::Answering { request: *request });
        }
        for _ in 0..120 {
            bench.pass(250);
            for ((request, replica), tokens) in streams.iter().zip(&mut tokens) {
                *tokens += if *replica == slow || all_slow { 2 } else { 32 };
                bench.token(*request, *tokens);
            }
        }
        let out = if all_slow { "up" } else { "out" };
        assert_eq!(bench.state(slow), out);
        let others = (0..8).map(ReplicaId).filter(|it| *it != slow);
        assert!(others.into_iter().all(|it| bench.state(it) == "up"));
    }
}

#[test]
fn a_restart_is_told_and_the_replica_is_filled_slowly() {
    let mut bench = Bench::session(2);
    let home = bench.served(0);
    bench.brain.take_notices();
    bench.tell(Event::Probed { replica: home, probe: Probe::Refused });
    bench.tell(Event::Probed { replica: home, probe: Probe::Passed });
    assert!(bench.brain.take_notices().contains(&Notice::Restarted { replica: home }));
    let there = (0..40).filter(|it| bench.open_stream(*it, 100).1 == home).count();
    assert_eq!(there, 2, "until it has answered");
}

#[test]
fn a_hang_behind_whole_answers_is_found_by_a_token_that_does_not_come() {
    for speaks in [false, true] {
        let mut bench = Bench::session(2);
        bench.prove();
        let request = RequestId(bench.requests);
        bench.requests += 1;
        let key = SliceKey::new(1, "m", "whole");
        let outline = Outline {
            blocks: Arc::new([77]),
            block_tokens: 64,
            prompt_tokens: 500,
            output_tokens: Some(20),
            ..Outline::default()
        };
        let extent = Extent { digest: 9, ..Extent::default() };
        let claim = Claim::default();
        let actions = bench.tell(Event::Arrived { request, key, outline, extent, claim });
        let replica = target(&actions).unwrap();
        let actions = bench.pass(2500);
        assert_eq!((asked(&actions), bench.state(replica)), (vec![replica], "suspect"));
        let asked_at = bench.now;
        bench.pass(2000);
        let mute = Probe::Mute { asked_at, last_byte_at: None };
        let probe = if speaks { Probe::Generated } else { mute };
        bench.tell(Event::Probed { replica, probe });
        let actions = bench.pass(250);
        assert_eq!(given_up(&actions).is_empty(), speaks, "{actions:?}");
        assert_eq!(bench.state(replica), if speaks { "up" } else { "out" });
    }
}
