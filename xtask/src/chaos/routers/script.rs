//! What is done to routers, one after another, in an order that a seed decides; each is taken back, and the others are
//! given time before the next.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::scene::RouterScene;

/// How long the routers have between two faults.
const REST: Duration = Duration::from_secs(4);
/// How long is waited for them to agree.
const AGREE_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RouterFault {
    Kill,
    Stop,
    Partition,
    Restart,
    Upgrade,
    EtcdGone,
    EtcdWiped,
}

impl RouterFault {
    pub(super) const ALL: [Self; 7] = [
        Self::Kill,
        Self::Stop,
        Self::Partition,
        Self::Restart,
        Self::Upgrade,
        Self::EtcdGone,
        Self::EtcdWiped,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL, back after 3 s",
            Self::Stop => "SIGSTOP for 10 s",
            Self::Partition => "cut off for 8 s",
            Self::Restart => "SIGTERM, then started",
            Self::Upgrade => "SIGUSR2, all in turn",
            Self::EtcdGone => "etcd killed, back after 10 s",
            Self::EtcdWiped => "etcd killed and wiped",
        }
    }

    const fn needs_etcd(self) -> bool {
        matches!(self, Self::EtcdGone | Self::EtcdWiped)
    }

    /// Whether routers know less of each other while it lasts, so that a turn may go elsewhere.
    pub(super) const fn splits(self) -> bool {
        matches!(self, Self::Partition | Self::Stop)
    }
}

/// A fault as it happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct StruckRouter {
    pub(super) kind: RouterFault,
    pub(super) router: usize,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// How long it took after that until all went by one plan and one leader; none where they never did.
    pub(super) agreed: Option<Duration>,
}

pub(super) fn run(scene: &mut RouterScene, seed: u64, rounds: u32) -> Result<Vec<StruckRouter>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut struck = Vec::new();
    for _ in 0..rounds {
        let mut kinds = RouterFault::ALL;
        kinds.shuffle(&mut rng);
        for kind in kinds {
            let router = rng.random_range(0..scene.routers.len());
            if kind.needs_etcd() && scene.etcd.is_none() {
                continue;
            }
            let began = Instant::now();
            strike(scene, kind, router)?;
            let ended = Instant::now();
            let agreed = scene.agree_after(AGREE_MAX);
            let after =
                agreed.map_or("not".to_owned(), |it| format!("after {:.1} s", it.as_secs_f64()));
            println!("  {} at router {router}; agreed {after}", kind.name());
            struck.push(StruckRouter { kind, router, began, ended, agreed });
            thread::sleep(REST);
        }
    }
    Ok(struck)
}

fn strike(scene: &mut RouterScene, kind: RouterFault, router: usize) -> Result<()> {
    let seconds = |it| thread::sleep(Duration::from_secs(it));
    match kind {
        RouterFault::Kill => {
            scene.routers[router].kill()?;
            seconds(3);
            scene.start_router(router)?;
        }
        RouterFault::Stop => {
            scene.routers[router].signal("STOP")?;
            seconds(10);
            scene.routers[router].signal("CONT")?;
        }
        RouterFault::Partition => {
            scene.set_cut(router, true);
            seconds(8);
            scene.set_cut(router, false);
        }
        RouterFault::Restart => {
            scene.routers[router].stop()?;
            scene.start_router(router)?;
        }
        RouterFault::Upgrade => {
            // Routers of two versions share the load for a while.
            let pause = if scene.renew()? { 5 } else { 1 };
            for it in &mut scene.routers {
                it.hand_over()?;
                seconds(pause);
            }
        }
        RouterFault::EtcdGone | RouterFault::EtcdWiped => {
            let Some(etcd) = &mut scene.etcd else { return Ok(()) };
            etcd.kill()?;
            seconds(10);
            if kind == RouterFault::EtcdWiped {
                etcd.wipe()?;
            }
            etcd.revive()?;
        }
    }
    Ok(())
}
