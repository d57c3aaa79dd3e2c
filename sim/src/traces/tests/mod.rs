//! The room as a whole: samples that travel with the repository, full traces (a stage of
//! their own), generators.

mod generated;
mod guide;
mod published;
mod samples;

use std::path::PathBuf;

use super::{Replay, Request, TraceSummary, Workload};

/// A sample that travels with the repository.
fn sample(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

/// Plays a workload to its end, every request ending as it arrives.
fn play(mut workload: Workload) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some(request) = workload.take().unwrap() {
        workload.on_end(request.arrival, request.ticket);
        requests.push(request);
    }
    requests
}

fn summary(name: &str, replay: &Replay) -> TraceSummary {
    TraceSummary::of(Workload::open(&sample(name), None, replay).unwrap()).unwrap()
}
