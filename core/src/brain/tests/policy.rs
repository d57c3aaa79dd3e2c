//! What a policy is told, and what it may know of a request.

use std::sync::Mutex;

use rand_pcg::Pcg64Mcg;

use super::*;
use crate::domain::{Place, Report};
use crate::policy::{Ask, Candidate, Policy};

/// A policy that takes the first and writes down what it is told.
#[derive(Clone, Debug, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn read(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join(", ")
    }
}

impl Policy for Diary {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], _: &mut Pcg64Mcg) -> usize {
        let waiting = candidates[0].report.map(|it| it.waiting);
        self.note(format!("{} tokens, {waiting:?} waiting", ask.outline.prompt_tokens));
        0
    }

    fn on_joined(&mut self, replica: ReplicaId, _: Place) {
        self.note(format!("{replica} joined"));
    }

    fn on_sent(&mut self, request: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        self.note(format!("{request} of {} sent to {}", ask.outline.prompt_tokens, to.id));
        0
    }

    fn on_first_token(&mut self, _: Moment, request: RequestId, _: ReplicaId) {
        self.note(format!("{request} answering"));
    }

    fn on_ended(&mut self, _: Moment, request: RequestId, replica: ReplicaId) {
        self.note(format!("{request} ended at {replica}"));
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.note(format!("{replica} left"));
    }
}

#[test]
fn a_policy_is_told_what_becomes_of_each_try() {
    let diary = Diary::default();
    let mut bench = Bench::session(0);
    bench.brain.placement.set_policy(Box::new(diary.clone()));
    bench.join(0, 1.0);
    bench.join(1, 1.0);
    let report = Report {
        taken_at: bench.now,
        waiting: 3,
        running: 0,
        waiting_tokens: None,
        kv_used_share: 0.5,
        kv_tokens_max: None,
    };
    bench.tell(Event::Reported { replica: ReplicaId(0), report });
    bench.tell(Event::Reported { replica: ReplicaId(9), report });
    assert_eq!(diary.read(), "r0 joined, r1 joined");

    let (request, key) = (RequestId(7), SliceKey(0));
    let outline = Outline { prompt_tokens: 50, ..Outline::default() };
    bench.tell(Event::Arrived {
        request,
        key,
        outline,
        extent: Extent::default(),
        claim: Claim::default(),
    });
    assert_eq!(diary.read(), "50 tokens, Some(3) waiting, 7 of 50 sent to r0");
    bench.tell(Event::Failed { request, failure: Failure::Busy });
    assert_eq!(diary.read(), "7 ended at r0, 50 tokens, None waiting, 7 of 50 sent to r1");
    bench.tell(Event::Answering { request });
    bench.tell(Event::Answering { request });
    bench.tell(Event::Leaving { replica: ReplicaId(1) });
    bench.tell(ended(request, Outcome::Done));
    bench.tell(ended(request, Outcome::Done));
    assert_eq!(diary.read(), "7 answering, 7 ended at r1, r1 left");
}

#[test]
fn lengths_are_estimated_for_the_policy_and_learned_from_what_engines_say() {
    let diary = Diary::default();
    let mut bench = Bench::session(1);
    bench.brain.placement.set_policy(Box::new(diary.clone()));
    let extent = Extent { model: 5, text_bytes: 6000, ..Extent::default() };
    let key = SliceKey(3);
    let mut serve = |number, outline| {
        let request = RequestId(number);
        bench.tell(Event::Arrived { request, key, outline, extent, claim: Claim::default() });
        let booked = bench.brain.load(bench.now);
        bench.tell(Event::Answering { request });
        let answering = bench.brain.load(bench.now);
        let usage = Usage { input: Some(2000), output: Some(10), cached: None };
        bench.tell(Event::Ended { request, outcome: Outcome::Done, usage });
        (booked, answering, bench.brain.snapshot().misses)
    };
    let (booked, answering, misses) = serve(0, Outline::default());
    assert_eq!((booked[0].in_flight, booked[0].output_tokens), (1, 256));
    assert_eq!((booked[0].waiting_prompt_tokens, booked[0].answering_prompt_tokens), (1500, 0));
    assert_eq!(
        (answering[0].waiting_prompt_tokens, answering[0].answering_prompt_tokens),
        (0, 1500)
    );
    assert_eq!((misses.input.missed_tokens, misses.output.missed_tokens), (500, 246));
    diary.read();
    (1..300).for_each(|it| _ = serve(it, Outline::default()));
    diary.read();
    serve(300, Outline::default());
    let read = diary.read();
    assert!(read.starts_with("19") || read.starts_with("20"), "{read}");
    serve(301, Outline { prompt_tokens: 77, ..Outline::default() });
    assert!(diary.read().starts_with("77 tokens"), "what is known is kept");
}
