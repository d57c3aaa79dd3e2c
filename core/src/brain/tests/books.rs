//! What the brain promises of its books: what is booked, corrected, settled, learned and shown.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::domain::Report;
use crate::fleet::Load;

fn priced(replicas: usize) -> Bench {
    Bench::new(Settings::without_line(PolicyKind::PRICED), &vec![1.0; replicas])
}

/// A prompt of its own, of blocks of 100 tokens.
fn outline(first: u64, blocks: u64) -> Outline {
    let prompt_tokens = u32::try_from(blocks).unwrap() * 100;
    let blocks = (first..first + blocks).collect();
    Outline { blocks, block_tokens: 100, prompt_tokens, ..Outline::default() }
}

impl Bench {
    fn ask(&mut self, key: u64, outline: Outline) -> (RequestId, ReplicaId) {
        let request = RequestId(self.requests);
        self.requests += 1;
        let extent = Extent { text_bytes: 4 * outline.prompt_tokens, ..Extent::default() };
        let key = SliceKey(key);
        let actions =
            self.tell(Event::Arrived { request, key, outline, extent, claim: Claim::default() });
        (request, target(&actions).expect("a replica takes it"))
    }

    fn booked(&self, replica: u32) -> Load {
        let loads = self.brain.load(self.now);
        loads[usize::try_from(replica).unwrap()].booked
    }

    fn stream(&mut self, request: RequestId, output_tokens: u32) {
        self.tell(Event::Streamed { request, output_tokens });
    }

    fn end(&mut self, request: RequestId, output: u32) {
        let usage = Usage { input: Some(1000), output: Some(output), cached: None };
        self.tell(Event::Ended { request, outcome: Outcome::Done, usage });
    }

    fn wait_ms(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.time();
    }
}

#[test]
fn a_request_is_booked_at_the_decision_corrected_as_it_streams_and_gone_when_it_ends() {
    let mut bench = priced(1);
    let (request, _) = bench.ask(1, outline(0, 10));
    let at_decision = bench.booked(0);
    assert!(24_000 < at_decision.prefill_us && at_decision.prefill_us < 30_000, "{at_decision:?}");
    assert_eq!((at_decision.kv_tokens, at_decision.growth_tokens), (1_000, 256));
    bench.tell(Event::Answering { request });
    let begun = bench.booked(0);
    assert_eq!((begun.prefill_us, begun.decode_us), (0, at_decision.decode_us));
    bench.stream(request, 8);
    assert_eq!(bench.booked(0).kv_tokens, 1_008);
    bench.stream(request, 1_024);
    let long = bench.booked(0);
    assert!(300 < long.growth_tokens, "it runs on: {long:?}");
    // News that come late change nothing.
    bench.stream(request, 16);
    assert_eq!(bench.booked(0), long);
    bench.end(request, 1_100);
    assert_eq!(bench.booked(0), Load::default());
}

#[test]
fn a_prompt_whose_answer_comes_in_one_piece_is_read_when_that_was_predicted_and_can_still_go_elsewhere()
 {
    let mut bench = priced(2);
    let (request, replica) = bench.ask(1, outline(0, 10));
    assert!(0 < bench.booked(replica.0).prefill_us);
    bench.wait_ms(5);
    assert!(0 < bench.booked(replica.0).prefill_us, "it takes 25 ms");
    assert!(bench.brain.next_wakeup().unwrap() <= bench.now + Duration::from_millis(30));
    bench.wait_ms(30);
    assert_eq!(bench.booked(replica.0).prefill_us, 0);
    assert!(0 < bench.booked(replica.0).decode_us);
    let elsewhere = target(&bench.fail(request, Failure::Lost)).expect("nothing has come of it");
    assert_ne!(elsewhere, replica);
    assert_eq!(bench.booked(replica.0), Load::default());
    bench.end(request, 10);
    assert_eq!(bench.booked(elsewhere.0), Load::default());
}

#[test]
fn answers_of_a_workload_teach_how_much_is_still_to_come() {
    let mut bench = priced(1);
    for number in 0..200 {
        let (request, _) = bench.ask(7 << 32, outline(number * 100, 10));
        bench.tell(Event::Answering { request });
        bench.end(request, if number % 2 == 0 { 20 } else { 500 });
    }
    let (request, _) = bench.ask(7 << 32, outline(90_000, 10));
    assert!((240..280).contains(&bench.booked(0).growth_tokens));
    bench.tell(Event::Answering { request });
    bench.stream(request, 64);
    let left = bench.booked(0).growth_tokens;
    assert!((400..450).contains(&left), "it is one of the long ones: {left}");
}

#[test]
fn what_is_cached_is_not_booked_again() {
    let mut bench = priced(1);
    let (first, _) = bench.ask(1, outline(0, 50));
    let cold = bench.booked(0).prefill_us;
    bench.tell(Event::Answering { request: first });
    bench.end(first, 10);
    bench.ask(1, outline(0, 51));
    assert!(bench.booked(0).prefill_us < cold / 20);
}

#[test]
fn drift_is_what_predictions_were_off_by_for_each_replica_and_workload() {
    let mut bench = priced(1);
    let (request, _) = bench.ask(5 << 32, outline(0, 10));
    let predicted = bench.booked(0).prefill_us + bench.booked(0).decode_us;
    bench.tell(Event::Answering { request });
    bench.end(request, 10);
    let drift = bench.brain.snapshot().replicas[0].drift;
    assert_eq!(drift.predicted_us, predicted);
    assert!(drift.settled_us < predicted, "the answer was shorter than expected");
    assert_eq!(drift.missed_us, predicted - drift.settled_us);
    let of_workloads = bench.brain.workload_drifts();
    assert_eq!((of_workloads[0].workload, of_workloads[0].drift), (5, drift));
    // A request that was cut off shows nothing about predictions.
    let (request, _) = bench.ask(5 << 32, outline(500, 10));
    bench.tell(ended(request, Outcome::Cut));
    assert_eq!(bench.brain.snapshot().replicas[0].drift, drift);
}

#[test]
fn a_replica_that_is_slower_than_its_hardware_promises_is_found_and_gets_less() {
    let mut bench = priced(3);
    let slow = ReplicaId(2);
    for round in 0..600_u64 {
        let (request, replica) = bench.ask(round, outline(round * 100, 10));
        bench.wait_ms(30);
        bench.tell(Event::Answering { request });
        bench.stream(request, 32);
        bench.wait_ms(if replica == slow { 1_500 } else { 500 });
        bench.end(request, 64);
        bench.wait_ms(500);
    }
    let snapshot = bench.brain.snapshot();
    let pace = |it: usize| snapshot.replicas[it].pace;
    // It is shunned while others are free, and what it showed fades until it is tried again.
    assert!(1.1 < pace(2) && pace(0) < 1.05 && pace(1) < 1.05, "{}", pace(2));
    let (slow, fast) = (&snapshot.replicas[2], &snapshot.replicas[0]);
    assert!(slow.capacity_mu_per_min < fast.capacity_mu_per_min / 1.1);
    assert!(2 * slow.sent_total < fast.sent_total, "{} {}", slow.sent_total, fast.sent_total);
    assert!(5 < slow.sent_total, "it is not given up: {}", slow.sent_total);
}

#[test]
fn first_tokens_are_predicted_and_the_error_is_known() {
    let mut bench = priced(1);
    bench.brain.explain(RequestId(bench.requests));
    let (request, _) = bench.ask(1, outline(0, 100));
    let predicted_ms = bench.brain.take_explanation(request).unwrap().ttft_ms;
    bench.now = bench.now + Duration::from_secs_f64((predicted_ms + 20.0) / 1e3);
    bench.tell(Event::Answering { request });
    bench.stream(request, 8);
    bench.stream(request, 16);
    let ttft_error = bench.brain.snapshot().ttft_error;
    assert_eq!(ttft_error.count(), 1);
    assert!((20.0..24.0).contains(&ttft_error.error_ms(0.5)), "{}", ttft_error.error_ms(0.5));
}

/// Replicas that finish two requests each in fifty milliseconds, in the order they came.
#[derive(Default)]
struct Lines(Vec<VecDeque<RequestId>>);

impl Lines {
    fn of(replicas: usize) -> Self {
        Self(vec![VecDeque::default(); replicas])
    }

    /// Lets a request with a prompt of its own arrive; says where it went.
    fn arrive(&mut self, bench: &mut Bench) -> usize {
        let number = bench.requests;
        let (request, replica) = bench.ask(number << 20, outline(number * 100, 10));
        let replica = usize::try_from(replica.0).unwrap();
        self.0[replica].push_back(request);
        replica
    }

    fn serve(&mut self, bench: &mut Bench) {
        bench.wait_ms(50);
        for line in &mut self.0 {
            for request in line.drain(..2.min(line.len())).collect::<Vec<_>>() {
                bench.tell(Event::Answering { request });
                bench.end(request, 4);
            }
        }
    }
}

#[test]
fn a_replica_that_joins_a_busy_pool_is_filled_and_not_flooded() {
    let mut bench = priced(4);
    let mut lines = Lines::of(4);
    // More than four can do, so that a line forms everywhere.
    for _ in 0..40 {
        (0..9).for_each(|_| _ = lines.arrive(&mut bench));
        lines.serve(&mut bench);
    }
    bench.join(4, 1.0);
    lines.0.push(VecDeque::default());
    let before = lines.0.iter().map(VecDeque::len).max().unwrap();
    let mut taken = 0;
    for _ in 0..40 {
        for _ in 0..9 {
            taken += u32::from(lines.arrive(&mut bench) == 4);
            assert!(lines.0[4].len() <= before + 1, "it has no more than the others had");
        }
        lines.serve(&mut bench);
    }
    assert!((60..200).contains(&taken), "its share of 360, and what it catches up: {taken}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Four replicas that each finish two requests while six come: whatever one engine says, its
    /// replica is neither shunned nor overrun.
    #[test]
    fn a_lying_or_frozen_report_neither_starves_nor_floods(
        lies in prop::collection::vec((0_u32..5_000, 0_u32..500, 0.0_f64..1.0), 1..40),
        frozen: bool,
    ) {
        let mut bench = priced(4);
        let mut lines = Lines::of(4);
        let mut sent = [0_u32; 4];
        for round in 0..100_usize {
            let lie = lies[if frozen { 0 } else { round % lies.len() }];
            for (number, line) in (0_u32..).zip(&lines.0) {
                let there = u32::try_from(line.len()).unwrap();
                let (waiting, running, kv_used_share) =
                    if number == 0 { lie } else { (there.saturating_sub(2), there.min(2), 0.1) };
                let (waiting_tokens, kv_tokens_max) = (None, Some(1 << 20));
                let taken_at = bench.now;
                let report =
                    Report { taken_at, waiting, running, waiting_tokens, kv_used_share, kv_tokens_max };
                bench.tell(Event::Reported { replica: ReplicaId(number), report });
            }
            for _ in 0..6 {
                sent[lines.arrive(&mut bench)] += 1;
            }
            lines.serve(&mut bench);
        }
        let fair = 600 / 4;
        prop_assert!(fair / 3 <= sent[0] && sent[0] <= 2 * fair, "{:?}", sent);
    }
}
