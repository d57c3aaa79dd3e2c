//! Connections that say nothing, on the admin port and on the client port, and heads that never end.
//! The process may have 1,024 files; bystanders need new connections all the time.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Attack;
use super::super::client::{bare_from, crowd};
use super::super::plan::{ALICE, Plan};
use super::super::scene::Scene;
use crate::http1;

const FILES_MAX: u32 = 1_024;
const SILENT: usize = 1_100;
/// Honest clients that come at once.
const CROWD: usize = 48;

pub(super) const ON_ADMIN: Attack = Attack {
    name: "silent_admin_connections",
    tries: "1,100 connections to the admin port that say nothing, at 1,024 files",
    plan,
    run: |scene| hold(scene, scene.admin, b"", false),
};

pub(super) const ON_ADMIN_SLOW: Attack = Attack {
    name: "slow_admin_heads",
    tries: "1,100 connections to the admin port whose heads never end, at 1,024 files",
    plan,
    run: |scene| hold(scene, scene.admin, b"GET /status HTTP/1.1\r\nhost: x\r\nx: ", true),
};

pub(super) const ON_EVENTS: Attack = Attack {
    name: "stopped_event_readers",
    tries: "1,100 readers of /events that read nothing, at 1,024 files",
    plan,
    run: |scene| {
        let host = scene.admin;
        let ask = format!("GET /events HTTP/1.1\r\nhost: {host}\r\n\r\n");
        hold(scene, host, ask.as_bytes(), false)
    },
};

pub(super) const ON_CLIENT: Attack = Attack {
    name: "silent_clients",
    tries: "1,100 connections to the client port that say nothing, at 1,024 files",
    plan,
    run: |scene| hold(scene, scene.address, b"", false),
};

fn plan() -> Plan {
    let mut plan = Plan::mocks(2);
    plan.files_max = Some(FILES_MAX);
    plan
}

/// Opens connections that say `word` and hold on, with a further byte now and then if they `drip`.
fn hold(scene: &mut Scene, port: SocketAddr, word: &[u8], drip: bool) -> Result<()> {
    let mut silent: Vec<TcpStream> = Vec::new();
    let opening = Instant::now() + scene.seconds;
    while silent.len() < SILENT && Instant::now() < opening {
        // The router may refuse some for a moment, which is an answer.
        let stream = bare_from(Ipv4Addr::new(127, 0, 0, 9), port);
        silent.extend(stream.and_then(|mut it| it.write_all(word).map(|()| it)));
    }
    let (answered, took) = crowd(scene.address, ALICE.key, CROWD);
    scene.check(answered == CROWD, || format!("{answered} of {CROWD} newcomers were served"));
    scene.check(took < Duration::from_secs(5), || format!("{CROWD} newcomers took {took:.1?}"));
    let until = Instant::now() + scene.seconds;
    while Instant::now() < until {
        for stream in silent.iter_mut().filter(|_| drip) {
            _ = stream.write_all(b"x");
        }
        thread::sleep(Duration::from_millis(500));
    }
    drop(silent);
    let answers = scene.wait(Duration::from_secs(10), |it| http1::is_up(it.admin, "/healthz"));
    scene.check(answers, || "the admin port does not answer afterwards".to_owned());
    Ok(())
}
