//! The number of replicas follows the work: once a second each pool that is scaled is asked what it is like, the
//! advice of `core/scaling` is put where operators, metrics and KEDA find it, and where something is to act on it that is
//! told. Nothing of it runs for a pool that has no `[pools.scaling]`, and no request waits for any of it.

mod command;
mod kubernetes;
mod plan;
mod pool;
mod starts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::proxy::Router;
use pool::PoolScaler;

/// How often pools are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// By what name its orders are given.
const BY: &str = "scaling";

/// Runs until stopped.
pub async fn run(router: Arc<Router>) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut scalers: BTreeMap<String, PoolScaler> = BTreeMap::new();
    loop {
        looks.tick().await;
        let pools = router.pools();
        scalers.retain(|name, _| pools.iter().any(|it| it.name == *name));
        for pool in pools.iter() {
            match pool.scaling() {
                Some(settings) => {
                    let scaler = scalers.entry(pool.name.clone());
                    let scaler = scaler.or_insert_with(|| PoolScaler::new(pool.now(), &settings));
                    scaler.tick(&router, pool, &settings);
                }
                None if scalers.remove(&pool.name).is_some() => {
                    pool.follow_work(None);
                    pool.scale.clear();
                }
                None => {}
            }
        }
    }
}
