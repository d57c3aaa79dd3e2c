//! A picker that is killed and comes back. A gateway that fails open sends each request to any engine meanwhile, one that
//! fails closed refuses it; both go by the picker again as soon as it answers. So an `InferencePool` promises it.

use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::gateway::{BodyMode, FailureMode, Gateway};
use super::play::{PlayPlan, Played};
use super::{NOTICE_LIMIT, Setup};
use crate::rig;

pub(super) fn run(
    envoy: &Path,
    picker: &mut Setup,
    closed: &Gateway,
    plan: &PlayPlan,
) -> Result<()> {
    let engines: Vec<_> = picker.replicas.iter().map(|it| it.0).collect();
    let start = |mode, picker: &Setup| {
        let failure = FailureMode::Open(&engines);
        Gateway::start(envoy, &picker.folder, picker.listen, mode, failure)
    };
    let open = start(BodyMode::FullDuplex, picker)?;
    let buffered = start(BodyMode::Buffered, picker)?;
    let plan = |from| PlayPlan { from, ..*plan };
    let before = 100_000;
    let known = rig::counter(picker.admin, "cleave_requests_total")?;
    let played = plan(before).play(open.address)?;
    played.show("Envoy fails open, the picker is there");
    ensure!(stays(&played), "with the picker: {played:?}");
    let asked = rig::counter(picker.admin, "cleave_requests_total")? - known;
    ensure!(asked == u64::from(played.whole), "asked for {asked} of {}", played.whole);

    picker.kill_router()?;
    // The body is Envoy's own until the picker has it, so nothing is lost even before it is known to be away.
    let played = plan(before).play(buffered.address)?;
    played.show("Envoy fails open, buffered, the picker was just killed");
    let turns_alone = |it: &Played| it.failed == 0 && 1 < it.replicas && 0 < it.moved;
    // In turn, as the gateway does by itself: nothing keeps a session where it is.
    ensure!(turns_alone(&played), "it does not fail open: {played:?}");
    let until = Instant::now() + NOTICE_LIMIT;
    loop {
        let played = plan(before).play(open.address)?;
        played.show("Envoy fails open, the picker is killed");
        if turns_alone(&played) {
            break;
        }
        ensure!(Instant::now() < until, "it does not fail open: {played:?}");
    }
    let played = plan(before).play(closed.address)?;
    played.show("Envoy fails closed, the picker is killed");
    ensure!(played.whole == 0, "it does not fail closed: {played:?}");

    picker.start_router()?;
    for (what, from, gateway) in [("open", 200_000, &open), ("closed", 300_000, closed)] {
        let played = back(gateway, from, &plan)?;
        played.show(&format!("Envoy fails {what}, the picker is back"));
    }
    Ok(())
}

/// Plays with new sessions until all of a plan goes by the picker: Envoy takes a moment to connect to it again.
fn back(gateway: &Gateway, from: u32, plan: &impl Fn(u32) -> PlayPlan) -> Result<Played> {
    let until = Instant::now() + NOTICE_LIMIT;
    for round in 0.. {
        let played = plan(from + round * 1_000).play(gateway.address)?;
        if stays(&played) {
            return Ok(played);
        }
        ensure!(Instant::now() < until, "the picker is not asked again: {played:?}");
        thread::sleep(rig::POLL);
    }
    unreachable!("rounds do not end")
}

/// All answered, and sessions stay; on a busy machine one may leave a slow replica.
const fn stays(it: &Played) -> bool {
    it.failed == 0 && it.moved <= it.whole / 50
}
