//! What the tests stand on: processes that end with the test, a client and replicas that see every
//! byte. All waiting has an end, and says what it waited for.

mod client;
mod etcd;
mod http2;
mod kubernetes;
mod kubernetes_objects;
mod news;
mod process;
mod script;
mod tap;
mod wire;

pub(crate) use client::{Answer, Json, Request, ask};
pub(crate) use etcd::Etcd;
pub(crate) use http2::{Http2, next_piece};
pub(crate) use kubernetes::{ApiServer, Mood, PodSpec};
pub(crate) use news::{Happened, News};
pub(crate) use process::{Mock, Router, Status, config};
pub(crate) use script::{Exchange, Requests, Scripted, deaf, json_answer, sse_head};
pub(crate) use tap::{Authority, Identity, Tap};
pub(crate) use wire::{Head, Wire};

use std::time::{Duration, Instant};

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::sync::watch;
use tokio::time::timeout;

/// Long enough for anything in these tests, unless it never comes.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// Waits until `holds`, and fails with `what` when it does not in time.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + WAIT_MAX;
    while !holds().await {
        assert!(Instant::now() < until, "waited in vain: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until a count that tasks keep has reached `wanted`.
pub(crate) async fn reached(count: &mut watch::Receiver<usize>, wanted: usize) {
    let reached = timeout(WAIT_MAX, count.wait_for(|it| wanted <= *it)).await;
    _ = reached.expect("the count rises in time").expect("the counter is alive");
}

/// Bytes that nothing can guess, the same in every run.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut noise);
    noise
}
