//! A replica whose answers are no answers: garbage as the first chunk, an endless head, interim answers
//! without end, lengths that contradict each other. Another replica is sound; nothing may be lost.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::client::{chat, post};
use super::super::fake::{Asked, Mouth, honest, script};
use super::super::plan::{Engine, MALLORY, Plan};
use super::super::scene::Scene;
use super::super::{Attack, vitals};

pub(super) const GARBAGE: Attack = Attack {
    name: "garbage_answers",
    tries: "one of two replicas sends garbage instead of a head, a first chunk, a length or an end",
    plan: || Plan::fakes(1, honest).with(Engine::Fake(script(garbage))),
    run: ask_on,
};

pub(super) const INTERIM: Attack = Attack {
    name: "interim_storm",
    tries: "an engine that sends 1xx answers without end to one tenant's requests",
    plan: || Plan::fakes(2, interim),
    run: storm,
};

fn garbage(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if asked.method == "GET" {
        return honest(asked, mouth);
    }
    let pick = asked.body.iter().fold(0_usize, |sum, it| sum + usize::from(*it)) % 7;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    let said = match pick {
        0 => format!("{chunked}zz\r\ngarbage"),
        1 => "\u{fffd}\0garbage\r\n\r\n".to_owned(),
        2 => format!("{head}content-length: 5\r\ncontent-length: 6\r\n\r\n"),
        3 => format!("{head}x: {}", "y".repeat(1 << 20)),
        4 => format!("{chunked}ffffffffffffffffff\r\n"),
        5 => format!("{chunked}-5\r\nhello\r\n"),
        _ => format!("{head}content-length: -1\r\n\r\n"),
    };
    mouth.raw(said.as_bytes())?;
    mouth.hang_up()
}

fn ask_on(scene: &mut Scene) -> Result<()> {
    let until = Instant::now() + scene.seconds;
    while Instant::now() < until {
        let number: u32 = rand::RngExt::random(&mut scene.rng);
        let body = chat(&format!("anything {number}"), r#","stream":true"#);
        _ = post(scene.address, Some(MALLORY.key), "/v1/chat/completions", "", &body);
    }
    Ok(())
}

fn interim(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if !asked.says("storm") {
        return honest(asked, mouth);
    }
    let one = if asked.says("storm 0") {
        "HTTP/1.1 100 Continue\r\n\r\n"
    } else {
        "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    };
    let many = one.repeat(200);
    while !mouth.is_over() {
        mouth.raw(many.as_bytes())?;
    }
    mouth.hang_up()
}

fn storm(scene: &mut Scene) -> Result<()> {
    let (began, cpu) = (Instant::now(), vitals::cpu_seconds(scene.pid)?);
    let (address, limit) = (scene.address, scene.seconds);
    let ended = thread::scope(|scope| {
        let one = |number: usize| {
            scope.spawn(move || {
                let body = chat(&format!("storm {}", number % 2), "");
                _ = post(address, Some(MALLORY.key), "/v1/chat/completions", "", &body);
                began.elapsed()
            })
        };
        let threads: Vec<_> = (0..2).map(one).collect();
        threads.into_iter().filter_map(|it| it.join().ok()).max().unwrap_or_default()
    });
    thread::sleep(limit.saturating_sub(began.elapsed()));
    let share = (vitals::cpu_seconds(scene.pid)? - cpu) / began.elapsed().as_secs_f64();
    scene.check(ended < Duration::from_secs(15), || format!("the storm went on for {ended:?}"));
    scene.check(share < 0.8, || format!("the router used {share:.1} cores"));
    Ok(())
}
