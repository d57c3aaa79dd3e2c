//! A tenant that is taken out of the file and put back while its requests run. The figures of its
//! contract must end at nothing, not at 2^64 - 2.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::client::{chat, post};
use super::super::fake::{Asked, Mouth, honest};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;
use super::super::{Attack, vitals};

pub(super) const ATTACK: Attack = Attack {
    name: "tenant_comes_back",
    tries: "a tenant that is removed and added again, and whose contract changes, while its requests run",
    plan,
    run,
};

fn plan() -> Plan {
    Plan::fakes(2, says).attackers("contract = { tokens_per_min = 1000000 }")
}

fn says(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if asked.says("slowly") {
        mouth.wait(Duration::from_millis(700));
    }
    honest(asked, mouth)
}

fn run(scene: &mut Scene) -> Result<()> {
    let address = scene.address;
    let until = Instant::now() + scene.seconds;
    let mut largest = 0;
    let workers: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(move || {
                while Instant::now() < until {
                    let body = chat("slowly", "");
                    let answer =
                        post(address, Some(MALLORY.key), "/v1/chat/completions", "", &body);
                    // A key that belongs to no tenant for a moment is refused at once.
                    if answer.is_ok_and(|it| it.status() == 401) {
                        thread::sleep(Duration::from_millis(50));
                    }
                }
            })
        })
        .collect();
    let config = scene.config().to_owned();
    let own = config.split("[[tenants]]").nth(1).unwrap_or_default();
    let own = format!("[[tenants]]{own}");
    while Instant::now() < until {
        scene.rewrite(&own, "")?;
        thread::sleep(Duration::from_millis(400));
        let marker = "\n[[tenants]]\nname = \"eve\"";
        scene.rewrite(marker, &format!("\n{own}{}", marker.trim_start()))?;
        thread::sleep(Duration::from_millis(400));
        let config = scene.config().to_owned();
        let changed = if config.contains("1000000 ") {
            ("1000000 ", "2000000 ")
        } else {
            ("2000000 ", "1000000 ")
        };
        scene.rewrite(changed.0, changed.1)?;
        let restored = scene.config().to_owned();
        if restored.contains("2000000 ") {
            scene.rewrite("2000000 ", "1000000 ")?;
        }
        largest = largest.max(most_in_flight(scene).unwrap_or(0));
        thread::sleep(Duration::from_millis(200));
    }
    for worker in workers {
        _ = worker.join();
    }
    scene.check(largest <= 64, || format!("/tenants showed {largest} in flight"));
    Ok(())
}

fn most_in_flight(scene: &Scene) -> Option<u64> {
    let page = vitals::page(scene.admin, "/tenants").ok()?;
    let tenants = page["pools"][0]["tenants"].as_array()?;
    tenants.iter().filter_map(|it| it["in_flight"].as_u64()).max()
}
