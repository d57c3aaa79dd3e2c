//! Draws every kind of news.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::*;
use crate::cost::StepTimes;
use crate::cost::learned::{Errors, Learned};
use crate::domain::{Moment, Place, PromptTail, RequestId, RouterId, SliceKey};
use crate::fleet::{Load, Reason, State};
use crate::scaling::Reason as ScaleReason;
use crate::sharding::{Assignment, Generation, Row, Slice, SliceReason};
use crate::tokens::{LengthsEntry, Lesson};

fn load() -> impl Strategy<Value = Load> {
    let number = || prop_oneof![0_u64..1_000, any::<u64>()];
    (number(), number(), number(), number()).prop_map(
        |(prefill_us, decode_us, kv_tokens, growth_tokens)| Load {
            prefill_us,
            decode_us,
            kv_tokens,
            growth_tokens,
        },
    )
}

fn chain() -> impl Strategy<Value = PromptTail> {
    (any::<u64>(), 0_u32..2_000, prop::collection::vec(any::<u64>(), 0..50)).prop_map(
        |(parent, depth, more)| PromptTail {
            parent: if depth == 0 { 0 } else { parent },
            depth,
            more,
        },
    )
}

fn opened() -> impl Strategy<Value = News> {
    let opened = (any::<[u64; 5]>(), load(), any::<(u32, u64, u64, bool, u32)>(), chain());
    opened.prop_map(|(ids, charge, rest, chain)| {
        let [request, replica, key, tenant, adapter] = ids;
        let (expected_ms, work, tokens, is_first_try, block_tokens) = rest;
        News::Opened(Box::new(Opened {
            request: RequestId(request),
            replica: Place(replica),
            key: SliceKey(key),
            charge,
            expected_ms,
            tenant,
            work,
            tokens,
            is_first_try,
            adapter,
            block_tokens,
            chain,
        }))
    })
}

pub(super) fn news() -> impl Strategy<Value = News> {
    let came = any::<(u32, u32, u64, u64)>().prop_map(|it| Came {
        prompt_tokens: it.0,
        output_tokens: it.1,
        work: it.2,
        tokens: it.3,
    });
    let order = prop_oneof![
        any::<bool>().prop_map(|is_on| SharedOrder::Freeze { is_on }),
        any::<(u32, Vec<u64>)>().prop_map(|(workload, places)| SharedOrder::Pin {
            workload,
            replicas: places.into_iter().map(Place).collect()
        }),
        any::<(u64, bool)>()
            .prop_map(|(it, is_on)| SharedOrder::Drain { replica: Place(it), is_on }),
    ];
    let state = prop::sample::select(vec![
        State { name: "up", reason: None },
        State { name: "out", reason: Some(Reason::Hung) },
        State { name: "leaving", reason: Some(Reason::WrongModel) },
    ]);
    let request = || any::<u64>().prop_map(RequestId);
    let place = || any::<u64>().prop_map(Place);
    prop_oneof![
        opened(),
        request().prop_map(|request| News::Begun { request }),
        (request(), load()).prop_map(|(request, left)| News::Progressed { request, left }),
        (request(), prop::option::of(came))
            .prop_map(|(request, came)| News::Ended { request, came }),
        (any::<u64>(), place())
            .prop_map(|(key, replica)| News::Home { key: SliceKey(key), replica }),
        (place(), state).prop_map(|(replica, state)| News::Stood { replica, state }),
        (order, any::<(u64, u64)>()).prop_map(|(order, it)| News::Ordered {
            order,
            stamp: Stamp { number: it.0, router: RouterId(it.1) }
        }),
        (place(), any::<u32>(), chain()).prop_map(|(replica, block_tokens, chain)| {
            News::Cached { replica, block_tokens, chain }
        }),
        (place(), any::<u64>(), prop::collection::vec(any::<u64>(), 0..64))
            .prop_map(|(replica, held, sample)| News::Sampled { replica, held, sample }),
        (place(), any::<(u64, u32)>()).prop_map(|(replica, it)| News::AskedChain {
            replica,
            parent: it.0,
            depth: it.1
        }),
        place().prop_map(|replica| News::AskedReplica { replica }),
        Just(News::Forgot),
        assignment().prop_map(|it| News::Assigned(Arc::new(it))),
        any::<(u64, u64)>().prop_map(|it| News::Planned {
            generation: Generation { incarnation: it.0, number: it.1 }
        }),
        Just(News::AskedPlan),
        prop::collection::vec(any::<(u64, u32)>(), 0..16).prop_map(|it| {
            let class = |(work, in_time_ms)| WaitingClass { work, in_time_ms };
            News::Waiting { classes: it.into_iter().map(class).collect() }
        }),
        found().prop_map(News::Found),
    ]
}

fn found() -> impl Strategy<Value = FoundOut> {
    let figure = || -1e12..1e12_f64;
    let key = || any::<u64>().prop_map(SliceKey);
    let place = || any::<u64>().prop_map(Place);
    let witness = any::<(u64, u32, bool)>().prop_map(|it| DeathWitness {
        fingerprint: it.0,
        workload: it.1,
        is_new: it.2,
    });
    let beginning = prop::option::of((any::<u64>(), 0.0..1e9_f64));
    let lesson = (key(), any::<(u64, Option<(u32, u32)>, Option<u32>)>(), beginning);
    let lesson = lesson.prop_map(|(key, (model, text, output_tokens), beginning)| Lesson {
        key,
        model,
        text,
        beginning,
        output_tokens,
    });
    let times = || {
        [figure(), figure(), figure(), figure()].prop_map(|it| StepTimes {
            floor_ms: it[0],
            new_token_ms: it[1],
            attention_ms: it[2],
            context_ms: it[3],
        })
    };
    let errors = || {
        (any::<u32>(), figure(), figure()).prop_map(|(seen, given, learned)| Errors {
            seen,
            given,
            learned,
        })
    };
    let learned = ("[a-z0-9 ä]{0,40}", times(), times(), any::<(bool, u64, u32)>(), figure());
    let learned = (learned, [errors(), errors(), errors()]).prop_map(|(it, errors)| {
        let (class, given, step, (is_used, seen, changes), overhead_ms) = it;
        Learned { class, given, step, overhead_ms, is_used, seen, changes, errors }
    });
    let bucket = (any::<u8>(), -1e9..1e9_f32, -1e9..1e9_f32);
    let lengths = (any::<(u64, bool)>(), figure(), figure(), prop::collection::vec(bucket, 0..40));
    let lengths = lengths.prop_map(|((name, is_model), bytes, tokens, answers)| LengthsEntry {
        name,
        is_model,
        bytes,
        tokens,
        answers,
    });
    prop_oneof![
        lengths.prop_map(|it| FoundOut::Lengths(Box::new(it))),
        (key(), any::<(u64, u32)>()).prop_map(|(key, it)| FoundOut::Quarantined {
            key,
            fingerprint: it.0,
            left_ms: it.1
        }),
        (key(), any::<u64>())
            .prop_map(|(key, fingerprint)| FoundOut::Acquitted { key, fingerprint }),
        (place(), prop::collection::vec(witness, 0..20))
            .prop_map(|(replica, witnesses)| FoundOut::Died { replica, witnesses }),
        place().prop_map(|replica| FoundOut::Restarted { replica }),
        lesson.prop_map(|it| FoundOut::Taught(Box::new(it))),
        learned.prop_map(|it| FoundOut::Learned(Box::new(it))),
        any::<(u64, [u64; 3])>().prop_map(|it| FoundOut::Spent { tenant: it.0, missing: it.1 }),
        prop::collection::vec(any::<[u64; 3]>(), 0..20).prop_map(|rows| FoundOut::Kept { rows }),
        size(),
    ]
}

/// What concerns the size of the pool.
fn size() -> impl Strategy<Value = FoundOut> {
    prop_oneof![
        any::<[u64; 3]>().prop_map(|it| FoundOut::Demand {
            offered: it[0],
            beyond: it[1],
            refused: it[2]
        }),
        any::<u64>().prop_map(|mark| FoundOut::TurnedAway { mark }),
        (any::<u32>(), prop::sample::select(ScaleReason::ALL.to_vec()))
            .prop_map(|(replicas, reason)| FoundOut::Sized { replicas, reason }),
    ]
}

fn assignment() -> impl Strategy<Value = Assignment> {
    let holders = || prop::collection::btree_set(any::<u64>(), 0..5);
    let row = (holders(), any::<u64>(), 0..SliceReason::ALL.len(), any::<Option<u64>>());
    let rows = prop::collection::btree_map(1..u64::MAX, row.clone(), 0..20);
    (any::<(u64, u64)>(), row, rows).prop_map(|(generation, first, mut rows)| {
        rows.insert(0, first);
        let ends: Vec<u64> = rows.keys().skip(1).map(|it| it - 1).chain([u64::MAX]).collect();
        let rows = rows.into_iter().zip(ends).map(|((low, row), high)| {
            let (holders, since, why, previous) = row;
            let holders = holders.into_iter().map(Place).collect();
            let (why, previous) = (SliceReason::ALL[why], previous.map(Place));
            let (slice, settled_at) = (Slice { low, high }, Moment::ZERO);
            Row { slice, holders, why, since, settled_at, previous }
        });
        let generation = Generation { incarnation: generation.0, number: generation.1 };
        Assignment::from_rows(generation, rows).unwrap()
    })
}
