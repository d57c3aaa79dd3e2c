//! Whatever happens in whatever order, the books balance and every invariant holds.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Arrive(u32),
    Fail(prop::sample::Index, Failure),
    Answer(prop::sample::Index),
    Stream(prop::sample::Index, u32),
    End(prop::sample::Index, Outcome),
    Join(f64),
    Weigh(prop::sample::Index, f64),
    Leave(prop::sample::Index),
    Probe(prop::sample::Index, Probe),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let failure = prop::sample::select(vec![
        Failure::Unreachable,
        Failure::Late,
        Failure::Lost,
        Failure::Died,
        Failure::Ours,
        Failure::Hung,
        Failure::Status,
        Failure::Busy,
    ]);
    let outcome = prop::sample::select(vec![Outcome::Done, Outcome::Cancelled, Outcome::Cut]);
    let weight = prop::sample::select(vec![0.0, 0.5, 1.0, 3.0]);
    let probe = prop::sample::select(vec![
        Probe::Passed,
        Probe::Failed,
        Probe::Refused,
        Probe::Generated,
        Probe::Unable,
        Probe::Stranger,
        Probe::Unauthorized,
        Probe::Unready,
        Probe::Mute { asked_at: Moment::ZERO, last_byte_at: None },
    ]);
    prop_oneof![
        8 => (0_u32..50).prop_map(Step::Arrive),
        4 => (index(), failure).prop_map(|(it, failure)| Step::Fail(it, failure)),
        4 => index().prop_map(Step::Answer),
        4 => (index(), 0_u32..2000).prop_map(|(it, tokens)| Step::Stream(it, tokens)),
        4 => (index(), outcome).prop_map(|(it, outcome)| Step::End(it, outcome)),
        1 => weight.clone().prop_map(Step::Join),
        1 => (index(), weight).prop_map(|(it, weight)| Step::Weigh(it, weight)),
        1 => index().prop_map(Step::Leave),
        2 => (index(), probe).prop_map(|(it, probe)| Step::Probe(it, probe)),
        2 => (0_u64..100).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn the_books_balance_whatever_happens(
        steps in prop::collection::vec(step(), 1..300),
        policy in prop::sample::select(PolicyKind::SERVED.to_vec()),
    ) {
        let mut bench = Bench::new(Settings { policy, ..Settings::default() }, &[1.0, 2.0]);
        let mut joined = 2;
        let replica = |it: prop::sample::Index, joined: u32| {
            ReplicaId(u32::try_from(it.index(usize::try_from(joined).unwrap())).unwrap())
        };
        let request = |it: prop::sample::Index, bench: &Bench| {
            RequestId(u64::try_from(it.index(usize::try_from(bench.requests).unwrap().max(1))).unwrap())
        };
        for step in steps {
            match step {
                Step::Arrive(session) => _ = bench.arrive(session),
                Step::Fail(it, failure) => {
                    let request = request(it, &bench);
                    bench.fail(request, failure);
                }
                Step::Answer(it) => {
                    let request = request(it, &bench);
                    bench.tell(Event::Answering { request });
                }
                Step::Stream(it, output_tokens) => {
                    let request = request(it, &bench);
                    bench.tell(Event::Streamed { request, output_tokens });
                }
                Step::End(it, outcome) => {
                    let request = request(it, &bench);
                    bench.tell(ended(request, outcome));
                }
                Step::Join(weight) => {
                    bench.join(joined, weight);
                    joined += 1;
                }
                Step::Weigh(it, weight) => {
                    bench.tell(Event::Weighed { replica: replica(it, joined), weight });
                }
                Step::Leave(it) => _ = bench.tell(Event::Leaving { replica: replica(it, joined) }),
                Step::Probe(it, probe) => {
                    bench.tell(Event::Probed { replica: replica(it, joined), probe });
                }
                Step::Wait(seconds) => bench.wait(seconds),
            }
            bench.time();
        }
        // When everything ends, nothing is left on the books.
        for number in 0..bench.requests {
            bench.tell(ended(RequestId(number), Outcome::Done));
        }
        prop_assert_eq!(bench.brain.snapshot().requests_in_flight, 0);
    }
}
