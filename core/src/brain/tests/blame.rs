//! Requests that make engines hang up: they are lost wherever they go, and no sound replica is put out
//! for them. Replicas that are broken still are.

use super::hangs::asked;
use super::*;

impl Bench {
    /// Sends a request that is lost wherever it goes, each question for a token being answered by
    /// `probe`.
    fn lose_everywhere(&mut self, session: u32, probe: Probe) {
        let (request, mut actions) = self.arrive(session);
        while target(&actions).is_some() {
            actions = self.fail(request, Failure::Lost);
            for replica in asked(&actions) {
                self.tell(Event::Probed { replica, probe });
            }
        }
        for replica in asked(&self.pass(1_000)) {
            self.tell(Event::Probed { replica, probe });
        }
        self.tell(ended(request, Outcome::Cancelled));
    }

    fn up(&self) -> usize {
        (0..8).filter(|it| self.state(ReplicaId(*it)) == "up").count()
    }
}

#[test]
fn requests_that_are_lost_everywhere_put_out_no_replica() {
    for probe in [Probe::Generated, Probe::Unable] {
        let mut bench = Bench::session(3);
        for session in 0..100 {
            bench.lose_everywhere(session, probe);
            assert_eq!(bench.up(), 3, "{session}: {probe:?}");
        }
        bench.served(1_000);
    }
}

#[test]
fn streams_that_break_off_put_out_no_replica_that_gives_a_token() {
    let mut bench = Bench::session(3);
    for round in 0..10 {
        let streams: Vec<RequestId> = (0..30).map(|it| bench.sent(100 * round + it).0).collect();
        for request in &streams {
            bench.tell(Event::Answering { request: *request });
        }
        let mut questions = Vec::new();
        for request in streams {
            questions.extend(asked(&bench.tell(ended(request, Outcome::Cut))));
        }
        questions.extend(asked(&bench.pass(1_000)));
        for replica in questions {
            bench.tell(Event::Probed { replica, probe: Probe::Generated });
        }
        assert_eq!(bench.up(), 3, "round {round}");
    }
}

#[test]
fn a_replica_that_loses_what_others_answer_is_put_out_but_not_the_last_half() {
    let mut bench = Bench::session(4);
    let mut session = 0;
    let mut lose_at = |bench: &mut Bench, broken: &[u32]| {
        session += 1;
        let (request, mut replica) = bench.sent(session);
        while broken.contains(&replica.0) {
            let Some(next) = target(&bench.fail(request, Failure::Lost)) else { return };
            replica = next;
        }
        bench.tell(Event::Answering { request });
        bench.tell(ended(request, Outcome::Done));
    };
    (0..100).for_each(|_| lose_at(&mut bench, &[0]));
    assert_eq!((bench.state(ReplicaId(0)), bench.up()), ("out", 3));
    (0..100).for_each(|_| lose_at(&mut bench, &[0, 1]));
    assert_eq!((bench.state(ReplicaId(1)), bench.up()), ("out", 2));
    (0..100).for_each(|_| lose_at(&mut bench, &[0, 1, 2]));
    assert_eq!((bench.state(ReplicaId(2)), bench.up()), ("up", 2), "half of the pool stays");
    bench.tell(Event::Probed { replica: ReplicaId(2), probe: Probe::Refused });
    assert_eq!((bench.state(ReplicaId(2)), bench.up()), ("out", 1), "but a question decides");
}

#[test]
fn a_replica_that_dies_under_its_requests_is_out_at_the_first_question() {
    let mut bench = Bench::session(3);
    bench.wait(10);
    let sent: Vec<(RequestId, ReplicaId)> = (0..30).map(|it| bench.sent(it)).collect();
    let dead = sent[0].1;
    let mut questions = Vec::new();
    for (request, _) in sent.iter().filter(|it| it.1 == dead) {
        questions.extend(asked(&bench.fail(*request, Failure::Lost)));
    }
    assert_eq!(questions, [dead]);
    bench.tell(Event::Probed { replica: dead, probe: Probe::Refused });
    assert_eq!((bench.state(dead), bench.up()), ("out", 2));
}

#[test]
fn when_no_replica_is_up_the_attackers_requests_make_no_pause_longer() {
    let mut bench = Bench::session(1);
    for _ in 0..3 {
        let (request, _) = bench.sent(0);
        bench.fail(request, Failure::Unreachable);
    }
    bench.wait(2);
    for session in 0..5 {
        let (request, _) = bench.sent(session);
        bench.fail(request, Failure::Lost);
    }
    bench.wait(1);
    bench.served(9);
    assert_eq!(bench.up(), 1);
}

#[test]
fn a_stream_that_lost_its_replica_waits_for_another_to_come_back() {
    let mut bench = Bench::session(2);
    bench.wait(10);
    let (request, first) = bench.sent(0);
    let other = ReplicaId(1 - first.0);
    (0..3).for_each(|_| _ = bench.tell(Event::Probed { replica: other, probe: Probe::Failed }));
    assert_eq!(bench.state(other), "out");
    bench.tell(Event::Answering { request });
    let mut actions = bench.fail(request, Failure::Died);
    assert_eq!(target(&actions), None, "no replica is up");
    actions.extend(bench.pass(500));
    assert!(asked(&actions).contains(&other) && refused(&actions).is_empty(), "{actions:?}");
    let actions = bench.tell(Event::Probed { replica: other, probe: Probe::Generated });
    assert_eq!((bench.state(other), target(&actions)), ("up", Some(other)));

    let (request, second) = bench.sent(1);
    assert_eq!(second, other);
    bench.tell(Event::Answering { request });
    bench.fail(request, Failure::Died);
    assert_eq!(refused(&bench.pass(4_500)), []);
    assert_eq!(refused(&bench.pass(1_000)), [request], "not for ever");
}

fn refused(actions: &[Action]) -> Vec<RequestId> {
    let verdicts = actions.iter().filter_map(|it| it.verdict());
    verdicts.filter(|it| it.1.is_err()).map(|it| it.0).collect()
}
