//! Light load: below half of what the fleet can do, sessions stay where they are, with one router and with two. A
//! session that moves for a few milliseconds loses its cache for nothing.

use cleave_core::brain;
use cleave_sim::results::Results;
use cleave_sim::traces::{Loop, MultiTurn, Replay, Spread, Starts, Synthetic, Workload};
use cleave_sim::world::{ReplicaSettings, Unwatched, World, WorldSettings};

/// Chats of short turns: `sessions` in all, `at_once` of them at a time.
fn chats(sessions: u64, at_once: u32, turns: u32, think_ms: Spread) -> Synthetic {
    Synthetic::MultiTurn(Box::new(MultiTurn {
        sessions,
        starts: Starts::Concurrent { sessions: at_once },
        shared_tokens: 0,
        system_tokens: Spread::Quantiles(vec![(0.0, 20), (1.0, 400)]),
        turns: Spread::Fixed(turns),
        input_tokens: Spread::Quantiles(vec![(0.0, 10), (0.5, 60), (1.0, 750)]),
        output_tokens: Spread::Quantiles(vec![(0.0, 16), (1.0, 200)]),
        think_ms,
        sub_agents: None,
        context_tokens_max: 32_000,
    }))
}

/// Plays chats with the defaults of `cleave serve`; returns the turns, the moves and the prefix hits.
fn play(chats: &Synthetic, replicas: usize, routers: usize, seed: u64) -> (u64, u64, f64) {
    let mut world = World::new(WorldSettings {
        replicas: vec![ReplicaSettings::default(); replicas],
        routers,
        brain: brain::Settings::default(),
        seed,
        ..WorldSettings::default()
    });
    world.start_measuring();
    let replay = Replay { seed, pace: Loop::Closed, ..Replay::default() };
    let mut workload = Workload::synthetic(chats, &replay);
    world.run(&mut workload, &mut Unwatched).expect("the world comes to its end");
    let results = Results::of(&world, "priced");
    (results.finished, world.sessions_moved(), results.hit)
}

fn assert_calm(chats: &Synthetic, replicas: usize, turns: u64) {
    for seed in 0..3 {
        let (finished, moved, alone) = play(chats, replicas, 1, seed);
        assert_eq!(finished, turns);
        assert!(moved * 100 <= turns, "{moved} of {turns} turns changed replica (seed {seed})");
        let (finished, moved, both) = play(chats, replicas, 2, seed);
        assert_eq!(finished, turns);
        assert!(moved * 100 <= turns, "two routers: {moved} of {turns} turns (seed {seed})");
        // Each router counts only what it sees itself; that both choose alike shows in the hits.
        assert!(alone - 0.02 <= both, "hits: {alone:.3} with one router, {both:.3} with two");
    }
}

#[test]
fn twelve_chats_at_once_with_short_turns_on_four_replicas_stay() {
    assert_calm(&chats(24, 12, 6, Spread::Fixed(0)), 4, 24 * 6);
}

#[test]
fn twenty_people_with_think_time_on_three_replicas_stay() {
    let think_ms = Spread::Quantiles(vec![(0.0, 500), (0.5, 3_000), (1.0, 15_000)]);
    assert_calm(&chats(40, 20, 6, think_ms), 3, 40 * 6);
}
