//! Requests that name by an id what one replica keeps: they go there and nowhere else.

use super::*;
use crate::domain::Place;

impl Bench {
    /// Has a request arrive that only one replica can serve; one without a prompt asks about what is kept.
    pub(super) fn arrive_for(
        &mut self,
        keeper: u32,
        session: u64,
        tokens: u32,
    ) -> (u64, Vec<(u64, Verdict)>) {
        let request = self.requests;
        self.requests += 1;
        let kept_at = Some(Place::of(&format!("http://gpu-{keeper}:8000")));
        let outline = Outline {
            prompt_tokens: tokens.max(1),
            output_tokens: Some(10),
            kept_at,
            ..Outline::default()
        };
        let extent = Extent { streams: true, text_bytes: 4 * tokens, ..Extent::default() };
        let (key, claim) = (SliceKey(session), of(1, 1));
        let arrived = Event::Arrived { request: RequestId(request), key, outline, extent, claim };
        (request, self.tell(arrived))
    }
}

#[test]
fn what_is_kept_is_asked_for_where_it_is_and_nowhere_else() {
    let mut bench = Bench::new(3, holding());
    for turn in 0..100 {
        let keeper = turn % 3;
        let (request, verdicts) = bench.arrive_for(keeper, turn.into(), 100);
        assert_eq!(verdicts, [(request, Ok(ReplicaId(keeper)))]);
        bench.answer(request);
        bench.end(request, Usage::default());
    }
    let (request, _) = bench.arrive_for(1, 7, 100);
    let failed = Event::Failed { request: RequestId(request), failure: Failure::Status };
    assert_eq!(bench.tell(failed), [(request, Err(Refusal::TriesSpent))], "no other can have it");
}

#[test]
fn what_a_replica_kept_that_is_gone_is_not_found() {
    let mut bench = Bench::new(3, holding());
    let (request, verdicts) = bench.arrive_for(9, 1, 100);
    assert_eq!(verdicts, [(request, Err(Refusal::NotKept))], "there was never such a replica");
    bench.tell(Event::Leaving { replica: ReplicaId(1) });
    let (request, verdicts) = bench.arrive_for(1, 1, 100);
    assert_eq!(verdicts, [(request, Err(Refusal::NotKept))], "it leaves");
    for _ in 0..3 {
        bench.tell(Event::Probed { replica: ReplicaId(2), probe: Probe::Refused });
    }
    assert_eq!(bench.brain.snapshot().replicas.last().unwrap().state, "out");
    let (request, verdicts) = bench.arrive_for(2, 1, 100);
    assert_eq!(verdicts, [(request, Err(Refusal::NotKept))], "its process is gone");
}

#[test]
fn a_turn_waits_for_its_replica_though_others_are_idle_and_a_question_does_not() {
    let mut bench = Bench::new(2, holding());
    let full = bench.fill();
    let keeper = bench.brain.snapshot().replicas.iter().position(|it| 0 < it.in_flight).unwrap();
    let keeper = u32::try_from(keeper).unwrap();
    let (turn, verdicts) = bench.arrive_for(keeper, 1, 100);
    assert_eq!(verdicts, [], "it waits");
    let (question, verdicts) = bench.arrive_for(keeper, 2, 0);
    assert_eq!(verdicts, [(question, Ok(ReplicaId(keeper)))]);
    let (other, verdicts) = bench.arrive(3, 100, of(2, 1));
    let elsewhere = ReplicaId(1 - keeper);
    assert_eq!(verdicts, [(other, Ok(elsewhere))], "it holds up no other");
    assert_eq!(bench.answer(full), [(turn, Ok(ReplicaId(keeper)))]);
}

#[test]
fn a_turn_whose_replica_leaves_while_it_waits_is_told_so() {
    let mut bench = Bench::new(2, holding());
    bench.fill();
    let keeper = bench.brain.snapshot().replicas.iter().position(|it| 0 < it.in_flight).unwrap();
    let keeper = u32::try_from(keeper).unwrap();
    let (turn, verdicts) = bench.arrive_for(keeper, 1, 100);
    assert_eq!(verdicts, []);
    let told = bench.tell(Event::Leaving { replica: ReplicaId(keeper) });
    assert_eq!(told, [(turn, Err(Refusal::NotKept))]);
}

#[test]
fn a_question_is_no_turn_of_its_session() {
    let mut bench = Bench::new(2, holding());
    let (request, verdicts) = bench.arrive(1, 100, of(1, 1));
    let home = verdicts[0].1.unwrap();
    bench.answer(request);
    bench.end(request, Usage::default());
    bench.arrive_for(1 - home.0, 1, 0);
    assert_eq!(bench.brain.snapshot().sessions_moved.all(), 0);
}
