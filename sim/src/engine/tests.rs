//! Schedules computed by hand, and properties over random jobs. Steps take one millisecond unless a
//! test says otherwise, so a moment in milliseconds is a number of steps.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const STEP_MS: StepTimes =
    StepTimes { floor_ms: 1.0, new_token_ms: 0.0, attention_ms: 0.0, context_ms: 0.0 };

fn engine(kv_blocks: u32, batched_tokens_max: u32, seqs_max: u32) -> Engine {
    Engine::new(EngineSettings {
        times: STEP_MS,
        kv_tokens: kv_blocks * 4,
        block_tokens: 4,
        batched_tokens_max,
        seqs_max,
    })
}

/// Makes a job whose blocks are those of conversation `talk`: equal talks share their prefixes.
fn job(id: u64, talk: u64, prompt_tokens: u32, output_tokens: u32) -> Job {
    let blocks = u64::from((prompt_tokens + output_tokens) / 4);
    let block_hashes = (0..blocks).map(|at| talk * 1_000 + at).collect();
    Job { id, block_hashes, prompt_tokens, output_tokens, given_tokens: 0 }
}

fn at_ms(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

/// Runs until idle and writes each output as (milliseconds, job, what).
fn run(engine: &mut Engine) -> Vec<(u64, u64, &'static str)> {
    let mut outputs = Vec::new();
    while let Some(wakeup) = engine.next_wakeup() {
        engine.on_time(wakeup, &mut outputs);
        assert_eq!(invariants::broken(engine), Vec::<&str>::new());
    }
    outputs.iter().map(|it| (it.at.as_nanos() / 1_000_000, it.id, word(it.event))).collect()
}

fn word(event: Event) -> &'static str {
    match event {
        Event::FirstToken { .. } => "first",
        Event::Token => "token",
        Event::Finished { .. } => "finished",
    }
}

fn cached_tokens(engine: &mut Engine) -> BTreeMap<u64, u32> {
    let mut outputs = Vec::new();
    engine.on_time(at_ms(1_000_000), &mut outputs);
    let finished = outputs.into_iter().filter_map(|it| match it.event {
        Event::Finished { cached_tokens, .. } => Some((it.id, cached_tokens)),
        Event::FirstToken { .. } | Event::Token => None,
    });
    finished.collect()
}

#[test]
fn a_lone_job_yields_one_token_a_step() {
    let mut engine = engine(8, 100, 4);
    engine.submit(at_ms(5), job(1, 1, 8, 3)).unwrap();
    let expected = [(6, 1, "first"), (7, 1, "token"), (8, 1, "token"), (8, 1, "finished")];
    assert_eq!(run(&mut engine), expected);
    assert_eq!(engine.stats().generation_tokens, 3);
    assert_eq!(engine.stats().prompt_tokens, 8);
}

#[test]
fn a_long_prompt_is_computed_in_chunks_while_others_decode() {
    let mut engine = engine(32, 4, 4);
    engine.submit(at_ms(0), job(1, 1, 4, 4)).unwrap();
    engine.submit(at_ms(0), job(2, 2, 9, 1)).unwrap();
    // The budget of 4 goes to job 1 whole, then 1 to its decode and 3 to each chunk of job 2.
    let expected = [
        (1, 1, "first"),
        (2, 1, "token"),
        (3, 1, "token"),
        (4, 1, "token"),
        (4, 1, "finished"),
        (4, 2, "first"),
        (4, 2, "finished"),
    ];
    assert_eq!(run(&mut engine), expected);
}

#[test]
fn a_step_takes_what_the_cost_model_says() {
    let times = StepTimes { context_ms: 0.5, ..STEP_MS };
    let mut engine = Engine::new(EngineSettings { times, ..EngineSettings::default() });
    engine.submit(at_ms(0), job(1, 1, 8, 2)).unwrap();
    // The prefill reads nothing: 1 ms. The decode reads the 8 tokens before it: 1 + 4 ms.
    assert_eq!(run(&mut engine), [(1, 1, "first"), (6, 1, "token"), (6, 1, "finished")]);
    engine.set_slow_factor(3.0);
    engine.submit(at_ms(10), job(2, 2, 8, 1)).unwrap();
    assert_eq!(run(&mut engine), [(13, 2, "first"), (13, 2, "finished")]);
}

#[test]
fn no_more_sequences_run_than_allowed() {
    let mut engine = engine(8, 100, 1);
    engine.submit(at_ms(0), job(1, 1, 4, 2)).unwrap();
    engine.submit(at_ms(0), job(2, 2, 4, 1)).unwrap();
    let first_of_two = run(&mut engine).into_iter().find(|it| it.1 == 2).unwrap();
    assert_eq!(first_of_two, (3, 2, "first"));
}

#[test]
fn the_next_turn_finds_prompt_and_answer_in_the_cache() {
    let mut engine = engine(32, 100, 4);
    engine.submit(at_ms(0), job(1, 1, 9, 8)).unwrap();
    run(&mut engine);
    // 9 + 8 − 1 tokens were computed: 4 full blocks.
    engine.submit(at_ms(100), job(2, 1, 30, 1)).unwrap();
    assert_eq!(cached_tokens(&mut engine), BTreeMap::from([(2, 16)]));
    assert_eq!(engine.stats().prefix_queries_tokens, 39);
    assert_eq!(engine.stats().prefix_hits_tokens, 16);
}

#[test]
fn a_prompt_that_is_cached_whole_still_computes_its_last_block() {
    let mut engine = engine(32, 100, 4);
    engine.submit(at_ms(0), job(1, 1, 8, 1)).unwrap();
    run(&mut engine);
    engine.submit(at_ms(100), job(2, 1, 8, 1)).unwrap();
    assert_eq!(cached_tokens(&mut engine), BTreeMap::from([(2, 4)]));
}

#[test]
fn equal_prompts_of_one_step_share_their_blocks() {
    let mut engine = engine(5, 100, 4);
    engine.submit(at_ms(0), job(1, 1, 10, 1)).unwrap();
    engine.submit(at_ms(0), job(2, 1, 10, 1)).unwrap();
    // 3 blocks for the first, of which the second shares 2: only together do they fit.
    assert_eq!(cached_tokens(&mut engine), BTreeMap::from([(1, 0), (2, 8)]));
    assert_eq!(engine.stats().preemptions, 0);
}

#[test]
fn the_least_recently_used_prompt_is_forgotten_first_and_from_its_end() {
    let mut engine = engine(6, 100, 4);
    for (ms, talk) in [(0, 1), (10, 2)] {
        engine.submit(at_ms(ms), job(talk, talk, 9, 1)).unwrap();
        run(&mut engine);
    }
    // Each left 2 full blocks; 2 are free. Three blocks evict the end of talk 1 alone.
    engine.submit(at_ms(20), job(3, 3, 9, 1)).unwrap();
    run(&mut engine);
    engine.submit(at_ms(30), job(4, 2, 9, 1)).unwrap();
    assert_eq!(cached_tokens(&mut engine), BTreeMap::from([(4, 8)]));
    engine.submit(at_ms(1_000_030), job(5, 1, 9, 1)).unwrap();
    let mut outputs = Vec::new();
    engine.on_time(at_ms(2_000_000), &mut outputs);
    assert_eq!(outputs[0].event, Event::FirstToken { cached_tokens: 4 });
}

#[test]
fn when_kv_runs_out_the_newest_starts_over() {
    let mut engine = engine(4, 100, 4);
    engine.submit(at_ms(0), job(1, 1, 7, 6)).unwrap();
    engine.submit(at_ms(0), job(2, 2, 7, 3)).unwrap();
    // Both hold 2 blocks of 4 tokens. After a token each (7 + 1 computed at 2 ms) job 1 needs a third
    // block at 2 ms, takes job 2's, and job 2 is computed again once job 1 is done at 6 ms.
    let outputs = run(&mut engine);
    let of_two: Vec<_> = outputs.iter().filter(|it| it.1 == 2).copied().collect();
    let expected = [(1, 2, "first"), (2, 2, "token"), (7, 2, "token"), (7, 2, "finished")];
    assert_eq!(of_two, expected);
    assert_eq!(engine.stats().preemptions, 1);
    assert_eq!(engine.stats().prefix_queries_tokens, 14, "computing again is no new query");
}

#[test]
fn a_job_cancelled_in_its_prefill_frees_its_kv_and_is_silent() {
    let mut engine = engine(8, 4, 4);
    engine.submit(at_ms(0), job(1, 1, 20, 4)).unwrap();
    engine.submit(at_ms(0), job(2, 2, 4, 1)).unwrap();
    let mut outputs = Vec::new();
    engine.on_time(at_ms(1), &mut outputs);
    assert!(0.0 < engine.stats().kv_used_share);
    assert!(engine.cancel(1));
    assert!(engine.stats().kv_used_share.abs() < f64::EPSILON);
    assert!(!engine.cancel(1));
    // The step under way ends at 2 ms as planned; only then is job 2 admitted.
    assert_eq!(run(&mut engine), [(3, 2, "first"), (3, 2, "finished")]);
}

#[test]
fn a_job_that_can_never_fit_is_refused() {
    let mut engine = engine(4, 100, 4);
    let refused = engine.submit(at_ms(0), job(1, 1, 10, 8));
    assert_eq!(refused, Err(NeverFits { tokens: 17, capacity_tokens: 16 }));
    assert_eq!(engine.submit(at_ms(0), job(1, 1, 10, 7)), Ok(()));
    assert_eq!(run(&mut engine).len(), 8);
}

#[test]
fn an_engine_of_one_block_one_token_and_one_sequence_still_serves() {
    let times = STEP_MS;
    let mut engine = Engine::new(EngineSettings {
        times,
        kv_tokens: 1,
        block_tokens: 1,
        batched_tokens_max: 1,
        seqs_max: 1,
    });
    let job = |id| Job { block_hashes: [].into(), ..job(id, 0, 0, 0) };
    engine.submit(at_ms(0), job(1)).unwrap();
    engine.submit(at_ms(0), job(2)).unwrap();
    let expected = [(1, 1, "first"), (1, 1, "finished"), (2, 2, "first"), (2, 2, "finished")];
    assert_eq!(run(&mut engine), expected);
}

#[test]
fn a_late_caller_gets_the_same_tokens_at_the_same_moments() {
    let script = |engine: &mut Engine| {
        for id in 0..5 {
            engine.submit(at_ms(0), job(id, id % 2, 7, 5)).unwrap();
        }
    };
    let (mut punctual, mut late) = (engine(16, 8, 3), engine(16, 8, 3));
    script(&mut punctual);
    script(&mut late);
    let mut outputs = Vec::new();
    late.on_time(Moment::ZERO + Duration::from_secs(60), &mut outputs);
    let late: Vec<_> =
        outputs.iter().map(|it| (it.at.as_nanos() / 1_000_000, it.id, word(it.event))).collect();
    assert_eq!(run(&mut punctual), late);
}

#[test]
fn an_engine_slowed_for_ever_stands_still() {
    let mut engine = engine(8, 100, 4);
    engine.set_slow_factor(f64::INFINITY);
    engine.submit(at_ms(0), job(1, 1, 8, 3)).unwrap();
    let mut outputs = Vec::new();
    engine.on_time(at_ms(1_000_000), &mut outputs);
    assert_eq!(outputs, []);
    assert_eq!(engine.next_wakeup(), Some(Moment::from_nanos(u64::MAX)));
}

#[derive(Clone, Debug)]
enum Deed {
    Submit { talk: u64, prompt: u32, output: u32 },
    Cancel { which: u64 },
    Steps { count: usize },
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (0..4_u64, 0..40_u32, 0..20_u32)
            .prop_map(|(talk, prompt, output)| Deed::Submit { talk, prompt, output }),
        1 => (0..30_u64).prop_map(|which| Deed::Cancel { which }),
        4 => (1..12_usize).prop_map(|count| Deed::Steps { count }),
    ]
}

proptest! {
    #[test]
    fn every_job_ends_exactly_once_and_the_books_always_balance(
        kv_blocks in 1..24_u32,
        batched in 1..30_u32,
        seqs in 1..6_u32,
        deeds in prop::collection::vec(deed(), 1..60),
    ) {
        let mut engine = engine(kv_blocks, batched, seqs);
        let mut tokens_owed = BTreeMap::new();
        let (mut outputs, mut now, mut next_id) = (Vec::new(), Moment::ZERO, 0);
        for deed in deeds {
            match deed {
                Deed::Submit { talk, prompt, output } => {
                    let fits = prompt.max(1) + output.max(1) - 1 <= kv_blocks * 4;
                    let taken = engine.submit(now, job(next_id, talk, prompt, output)).is_ok();
                    prop_assert_eq!(taken, fits);
                    if taken {
                        tokens_owed.insert(next_id, output.max(1));
                    }
                    next_id += 1;
                }
                Deed::Cancel { which } => {
                    prop_assert_eq!(engine.cancel(which), tokens_owed.remove(&which).is_some());
                }
                Deed::Steps { count } => {
                    for _ in 0..count {
                        now = engine.next_wakeup().unwrap_or(now);
                        engine.on_time(now, &mut outputs);
                        settle(&mut tokens_owed, &mut outputs);
                    }
                }
            }
            prop_assert_eq!(invariants::broken(&engine), Vec::<&str>::new());
        }
        engine.on_time(at_ms(1_000_000), &mut outputs);
        settle(&mut tokens_owed, &mut outputs);
        prop_assert!(tokens_owed.is_empty());
        prop_assert_eq!(engine.next_wakeup(), None);
        prop_assert!(engine.stats().kv_used_share.abs() < f64::EPSILON);
    }
}

/// Checks outputs off against what is owed; a finished job must owe nothing.
fn settle(tokens_owed: &mut BTreeMap<u64, u32>, outputs: &mut Vec<Output>) {
    for output in outputs.drain(..) {
        match output.event {
            Event::FirstToken { .. } | Event::Token => {
                *tokens_owed.get_mut(&output.id).unwrap() -= 1;
            }
            Event::Finished { .. } => assert_eq!(tokens_owed.remove(&output.id), Some(0)),
        }
    }
}

#[test]
fn tokens_that_are_given_are_not_computed() {
    let mut engine = engine(16, 64, 4);
    engine.submit(at_ms(0), Job { given_tokens: 9, ..job(1, 1, 12, 1) }).unwrap();
    // All but one token are given, however many are claimed.
    engine.submit(at_ms(0), Job { given_tokens: 99, ..job(2, 2, 12, 1) }).unwrap();
    let mut outputs = Vec::new();
    engine.on_time(at_ms(9), &mut outputs);
    let cached = |id| {
        outputs.iter().find_map(|it| match it.event {
            Event::FirstToken { cached_tokens } if it.id == id => Some(cached_tokens),
            Event::FirstToken { .. } | Event::Token | Event::Finished { .. } => None,
        })
    };
    assert_eq!((cached(1), cached(2)), (Some(9), Some(11)));
    assert!(invariants::broken(&engine).is_empty());
}

#[test]
fn the_journal_tells_what_the_cache_holds() {
    let mut engine = engine(8, 64, 4);
    engine.watch_kv();
    let mut held = std::collections::BTreeSet::new();
    for id in 0..40 {
        engine.submit(at_ms(id), job(id, id % 7, 9, 3)).unwrap();
        engine.on_time(at_ms(id), &mut Vec::new());
        for change in engine.drain_kv_changes() {
            match change {
                KvChange::Stored(hash) => assert!(held.insert(hash)),
                KvChange::Evicted(hash) => assert!(held.remove(&hash)),
            }
        }
        assert!(engine.cached_blocks().collect::<std::collections::BTreeSet<_>>() == held);
    }
}

#[test]
fn an_engine_that_hung_goes_on_where_it_stopped() {
    let mut engine = engine(16, 64, 4);
    engine.submit(at_ms(0), job(1, 1, 4, 3)).unwrap();
    let mut outputs = Vec::new();
    engine.on_time(at_ms(1), &mut outputs);
    engine.postpone(at_ms(100));
    engine.on_time(at_ms(99), &mut outputs);
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    engine.on_time(at_ms(200), &mut outputs);
    assert_eq!(outputs.last().map(|it| it.at), Some(at_ms(101)));
}
