//! The whole demo in this process, with engines that do not wait and people without time to think,
//! bounded by turns instead of time.

use cleave_io::telemetry::RecordSettings;

use super::*;

const TURNS: u32 = 4;

/// Not a multiple of the replicas: people in lockstep would be sent round to their old places.
const SESSIONS: u16 = 27;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_that_stay_find_their_cache() {
    let demo = Demo {
        replicas: 8,
        mock: mock::Settings { speed: f64::INFINITY, ..mock_settings(SESSIONS, 8) },
        load: DemoLoad {
            think_s: 0.0..0.0,
            turns_max: Some(TURNS),
            ..DemoLoad::new(SESSIONS, 1, Duration::ZERO)
        },
        length: Duration::from_secs(60 * 60),
        stop: CancellationToken::new(),
    };
    let mut fleet =
        DemoFleet::start(Some("127.0.0.1:0".parse().unwrap()), &RecordSettings::default()).unwrap();
    let outcomes = demo.run(&mut fleet, &mut DemoScreen::nowhere()).await.unwrap();
    fleet.stop().await.unwrap();

    let [spread, sticky] = &outcomes[..] else { panic!("two phases, not {}", outcomes.len()) };
    for Outcome { policy, tallies, .. } in &outcomes {
        assert_eq!(tallies.first_error, None, "{policy}");
        assert_eq!(tallies.total().requests, u64::from(SESSIONS) * u64::from(TURNS), "{policy}");
    }
    let hits = |it: &Outcome| it.tallies.total().hit_share().unwrap();
    assert!(hits(spread) + 0.2 < hits(sticky), "{} and {}", hits(spread), hits(sticky));
    // The same people said the same, and were told the same.
    let said = |it: &Outcome| {
        let total = it.tallies.total();
        (total.prompt_tokens, total.output_tokens)
    };
    assert_eq!(said(spread), said(sticky));
}

#[tokio::test]
async fn a_demo_that_is_stopped_shows_what_it_has() {
    let demo = Demo {
        replicas: 2,
        mock: mock_settings(1, 2),
        load: DemoLoad::new(1, 0, Duration::ZERO),
        length: Duration::from_secs(60 * 60),
        stop: CancellationToken::new(),
    };
    let mut fleet =
        DemoFleet::start(Some("127.0.0.1:0".parse().unwrap()), &RecordSettings::default()).unwrap();
    let mut screen = DemoScreen::nowhere();
    let (outcomes, ()) = tokio::join!(demo.run(&mut fleet, &mut screen), async {
        tokio::task::yield_now().await;
        demo.stop.cancel();
    });
    assert_eq!(outcomes.unwrap().len(), 1);
    fleet.stop().await.unwrap();
}
