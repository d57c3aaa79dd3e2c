//! Two hundred sessions that stream while one replica is killed and another restarted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cut::expect_cut_event;
use crate::support::{Mock, Request, Router, Wire, eventually, reached};

const SESSIONS: usize = 200;
const TURNS: usize = 10;
const REPLICAS: usize = 5;
/// About 16 tokens in 30 ms: long enough that a kill finds many streams in mid-air.
const OPTIONS: [&str; 2] = ["--speed", "4"];
/// What the router may grow by between warm-up and end, with every session known by then.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

/// What became of one turn.
#[derive(Debug)]
struct Turn {
    replica: String,
    cut: bool,
}

/// Plays one session to its end; every turn must be answered, at least in its beginning.
async fn play(router: SocketAddr, session: usize, done: watch::Sender<usize>) -> Vec<Turn> {
    let mut client = Wire::connect(router).await;
    let mut turns = Vec::new();
    let mut said = String::new();
    for turn in 0..=TURNS {
        write!(said, "{{\"role\":\"user\",\"content\":\"{session} says {turn}\"}}").unwrap();
        let body = format!(
            "{{\"model\":\"m\",\"stream\":true,\"max_tokens\":16,\"ignore_eos\":true,\
             \"messages\":[{said}]}}"
        );
        said.push(',');
        if turn == TURNS {
            // The last turn is asked once the restarted replica is back.
            reached(&mut done.subscribe(), usize::MAX).await;
        }
        let request = Request::post("/v1/chat/completions", body);
        let answer = client.ask(&request.session(&format!("session-{session}"))).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let cut = !answer.text().ends_with("data: [DONE]\n\n");
        if cut {
            expect_cut_event(answer.text());
        }
        turns.push(Turn { replica: answer.header("x-mock-replica").unwrap().to_owned(), cut });
        done.send_modify(|it| *it = it.saturating_add(1));
        if turn == 0 {
            // Every session has its home before anything happens to one.
            reached(&mut done.subscribe(), SESSIONS).await;
        }
    }
    turns
}

#[tokio::test]
async fn two_hundred_streaming_sessions_survive_a_kill_and_a_restart() {
    let mut mocks: Vec<Mock> = (0..REPLICAS).map(|_| Mock::start(&OPTIONS)).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    // What a crowded machine takes must not move sessions.
    let router = Router::start(&urls, "log.access = false\nlearn_costs = false").await;
    let (done, mut seen) = watch::channel(0);
    let mut sessions = JoinSet::new();
    for session in 0..SESSIONS {
        let (address, done) = (router.address, done.clone());
        sessions.spawn(async move { (session, play(address, session, done).await) });
    }

    reached(&mut seen, 2 * SESSIONS).await;
    let warm = router.process.rss_bytes();
    let killed = mocks.remove(0);
    let killed_address = killed.address;
    drop(killed);
    reached(&mut seen, 4 * SESSIONS).await;
    let restarted = mocks.remove(0).address;
    reached(&mut seen, 5 * SESSIONS).await;
    let _restarted = Mock::start_on(restarted.port(), &OPTIONS);
    reached(&mut seen, TURNS * SESSIONS).await;
    router.until("the killed one is out", |it| it.replica(killed_address).state == "out").await;
    // A replica that was lost is up again with its first good answer: more sessions come until one asks it.
    let mut knocks = 0;
    eventually("the restarted one is up", async || {
        knocks += 1;
        router.ask(&Request::chat("are you back?").session(&format!("who-{knocks}"))).await;
        let status = router.status().await;
        status.replica(restarted).state == "up"
    })
    .await;
    // It is filled by a trickle that grows with its answers, before it takes all that comes.
    for number in 0..100 {
        router.ask(&Request::chat("and you?").session(&format!("knock-{number}"))).await;
    }
    done.send_replace(usize::MAX);

    let played: BTreeMap<usize, Vec<Turn>> = sessions.join_all().await.into_iter().collect();
    let lost = [killed_address, restarted].map(|it| it.to_string());
    let mut stayed = 0;
    for (session, turns) in &played {
        let home = &turns[0].replica;
        if !lost.contains(home) {
            assert!(turns.iter().all(|it| it.replica == *home && !it.cut), "{session}: {turns:?}");
            stayed += 1;
        }
        if *home == lost[1] {
            assert_eq!(turns[TURNS].replica, *home, "{session} comes back: {turns:?}");
        }
    }
    let cut = played.values().flatten().filter(|it| it.cut).count();
    println!("{stayed} sessions stayed put, {cut} streams were cut and told");
    assert!(0 < stayed && stayed < SESSIONS);

    let status = router.status().await;
    assert_eq!(status.pools[0].requests_in_flight, 0);
    let end = router.process.rss_bytes();
    println!("router: {warm} bytes warm, {end} bytes at the end");
    assert!(end <= warm + GROWTH_BYTES_MAX, "{warm} bytes warm, {end} at the end");
}
