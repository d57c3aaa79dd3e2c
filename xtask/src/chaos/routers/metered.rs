//! A tenant with a hard contract that asks for more than it may have, at all routers, and mostly now at one of them and now
//! at another. Over any span, what routers account to it differs from the rate of its contract by what its bucket holds
//! at most, which is a twentieth of a minute's rate: over a minute that is 5 %.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::scene::read;
use crate::chaos::client::AnswerSeen;

const NAME: &str = "metered";
const KEY: &str = "metered-key";
const KEY_SHA256: &str = "ac2ace6e2a297dfc3eff691c6a5cb93b8bc570798658f08dcce75d0029f98d84";
/// About a quarter of what its clients ask for where `docs/benchmarks.md` was measured, so that they ask for more also on a
/// far slower machine.
const MU_PER_MIN: f64 = 6.0;
const CLIENTS: u64 = 6;
/// How long most of them stay with one router.
const STAY: Duration = Duration::from_secs(7);
/// The books are read this often.
const READ_EVERY: Duration = Duration::from_millis(500);
/// A contract begins with a full bucket, which is used up within this.
const BEGINNING: Duration = Duration::from_secs(5);
/// Spans that are looked at.
const SPAN_MIN: Duration = Duration::from_secs(5);
const SPAN_MAX: Duration = Duration::from_secs(60);
/// What the bucket holds, of a minute's rate.
const OFF_MAX: f64 = 0.05;

/// Lines of a router's file.
pub(super) const SETTINGS: &str = "keys.unknown = \"share\"\n";

/// The last section of a router's file.
pub(super) fn section() -> String {
    format!(
        "[[tenants]]\nname = \"{NAME}\"\nkey_sha256 = [\"{KEY_SHA256}\"]\n\
         contract = {{ mu_per_min = {MU_PER_MIN:.1}, hard = true }}\n"
    )
}

/// The tenant's clients, and one that reads what routers account to it.
pub(super) struct MeteredLoad {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Instant>>>,
    reader: JoinHandle<Vec<(Instant, f64)>>,
}

/// What the tenant got.
pub(super) struct MeteredSeen {
    began: Instant,
    /// When each of its answers was there.
    answers: Vec<Instant>,
    /// What all routers had accounted to it, over time.
    accounted: Vec<(Instant, f64)>,
}

/// How well its contract held, outside of partitions.
#[derive(Debug, Default, Serialize)]
pub(super) struct ContractFigures {
    mu_per_min: f64,
    pub(super) answers: usize,
    accounted_mu: f64,
    /// Spans of five seconds to a minute that were looked at, and the longest of them.
    spans: usize,
    longest_seconds: f64,
    /// The worst of them: how far what was used is from the rate, as a part of a minute's rate; by the books of routers, and
    /// by the answers that clients got.
    accounted_off: f64,
    given_off: f64,
}

#[derive(Deserialize)]
struct TenantsPage {
    pools: Vec<TenantsPool>,
}

#[derive(Deserialize)]
struct TenantsPool {
    tenants: Vec<TenantBooks>,
}

#[derive(Deserialize)]
struct TenantBooks {
    name: String,
    #[serde(default)]
    routers: Vec<RouterBooks>,
}

#[derive(Deserialize)]
struct RouterBooks {
    router: String,
    used: Vec<UsedMu>,
}

#[derive(Deserialize)]
struct UsedMu {
    mu: f64,
}

impl MeteredLoad {
    pub(super) fn start(routers: &[SocketAddr], admins: &[SocketAddr], seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let clients = (0..CLIENTS).map(|number| {
            let (stop, routers) = (Arc::clone(&stop), routers.to_vec());
            let rng = Pcg64Mcg::seed_from_u64(seed ^ (number << 40));
            thread::spawn(move || ask(&stop, &routers, (began, number), rng))
        });
        let clients = clients.collect();
        let (stopped, admins) = (Arc::clone(&stop), admins.to_vec());
        let reader = thread::spawn(move || {
            let (mut books, mut accounted) = (BTreeMap::new(), Vec::new());
            while !stopped.load(Relaxed) {
                for it in &admins {
                    note_books(*it, &mut books);
                }
                accounted.push((Instant::now(), books.values().sum()));
                thread::sleep(READ_EVERY);
            }
            accounted
        });
        Self { stop, clients, reader }
    }

    pub(super) fn stop(self, began: Instant) -> MeteredSeen {
        self.stop.store(true, Relaxed);
        let join = |it: JoinHandle<Vec<Instant>>| it.join().expect("a client does not panic");
        let answers = self.clients.into_iter().flat_map(join).collect();
        let accounted = self.reader.join().expect("a reader does not panic");
        MeteredSeen { began, answers, accounted }
    }
}

/// Asks one small thing after another; returns when each answer was there. Half of the clients draw a router each time, the
/// others go to the same one for a while.
fn ask(
    stop: &AtomicBool,
    routers: &[SocketAddr],
    (began, number): (Instant, u64),
    mut rng: Pcg64Mcg,
) -> Vec<Instant> {
    let mut answers = Vec::new();
    for turn in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        let stay = usize::try_from(began.elapsed().as_secs() / STAY.as_secs()).unwrap_or(0);
        let at = if number % 2 == 0 { rng.random_range(0..routers.len()) } else { stay };
        let text = format!("metered {number} {turn} ").repeat(40);
        let body = format!(
            r#"{{"model":"m","ignore_eos":true,"max_tokens":16,"messages":[{{"role":"user","content":"{text}"}}]}}"#
        );
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: chaos\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut seen = AnswerSeen::since(Instant::now());
        if matches!(seen.exchange(routers[at % routers.len()], &request), Ok(200)) {
            answers.push(Instant::now());
        } else {
            // Refused, or the router is not there: it asks again much sooner than it is told to.
            thread::sleep(Duration::from_millis(rng.random_range(50..150)));
        }
    }
    answers
}

/// Notes what each router has accounted, by the id that it has from its start to its end. A figure never falls.
fn note_books(admin: SocketAddr, books: &mut BTreeMap<String, f64>) {
    let Some(page) = read::<TenantsPage>(admin, "/tenants") else { return };
    let tenants = page.pools.into_iter().flat_map(|it| it.tenants);
    for it in tenants.filter(|it| it.name == NAME).flat_map(|it| it.routers) {
        let used: f64 = it.used.iter().map(|it| it.mu).sum();
        let known = books.entry(it.router).or_default();
        *known = used.max(*known);
    }
}

impl MeteredSeen {
    /// Looks at all spans in which all routers could talk to each other.
    pub(super) fn figures(&self, apart: &[(Instant, Instant)]) -> ContractFigures {
        let used = |it: Option<&(Instant, f64)>| it.map_or(0.0, |it| it.1);
        let accounted_mu = used(self.accounted.last());
        let mu_each = accounted_mu / real(self.answers.len().max(1));
        let readings: Vec<(Instant, f64, f64)> = self
            .accounted
            .iter()
            .filter(|it| BEGINNING <= it.0 - self.began)
            .map(|(at, mu)| {
                let there = self.answers.iter().filter(|it| *it <= at).count();
                (*at, *mu, mu_each * real(there))
            })
            .collect();
        let mut figures = ContractFigures {
            mu_per_min: MU_PER_MIN,
            answers: self.answers.len(),
            accounted_mu,
            ..ContractFigures::default()
        };
        for (number, from) in readings.iter().enumerate() {
            for to in &readings[number..] {
                let span = to.0 - from.0;
                let is_apart = apart.iter().any(|it| it.0 <= to.0 && from.0 <= it.1);
                if !(SPAN_MIN..=SPAN_MAX).contains(&span) || is_apart {
                    continue;
                }
                let off = |used: f64| (used / MU_PER_MIN - span.as_secs_f64() / 60.0).abs();
                figures.spans += 1;
                figures.longest_seconds = figures.longest_seconds.max(span.as_secs_f64());
                figures.accounted_off = figures.accounted_off.max(off(to.1 - from.1));
                figures.given_off = figures.given_off.max(off(to.2 - from.2));
            }
        }
        figures
    }
}

impl ContractFigures {
    pub(super) fn print(&self) {
        println!(
            "a contract of {} MU a minute, asked for at all routers: {:.1} MU for {} answers; over {} spans of up to {:.0} s \
             at most {:.1}% of a minute's rate off by the routers' books, {:.1}% by the answers",
            self.mu_per_min,
            self.accounted_mu,
            self.answers,
            self.spans,
            self.longest_seconds,
            100.0 * self.accounted_off,
            100.0 * self.given_off
        );
    }

    pub(super) fn missed(&self) -> Option<String> {
        if self.spans == 0 {
            return Some("the contract was not looked at".to_owned());
        }
        let off = self.accounted_off.max(self.given_off);
        (OFF_MAX < off).then(|| {
            format!("a contract is {:.1}% of a minute's rate off over some span", 100.0 * off)
        })
    }
}

fn real(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Books in which `mu_per_second` are used, and twice as much from `from` to `to`.
    fn seen(mu_per_second: f64, (from, to): (u32, u32)) -> MeteredSeen {
        let began = Instant::now();
        let at = |second: u32| began + Duration::from_secs(second.into());
        let mut used = 0.0;
        let mut accounted = Vec::new();
        for second in 0..120 {
            accounted.push((at(second), used));
            used += mu_per_second * if (from..to).contains(&second) { 2.0 } else { 1.0 };
        }
        MeteredSeen { began, answers: (0..120).map(at).collect(), accounted }
    }

    #[test]
    fn a_rate_that_is_kept_is_not_off_and_one_that_is_exceeded_is_unless_routers_were_apart() {
        let rate = MU_PER_MIN / 60.0;
        let kept = seen(rate, (0, 0)).figures(&[]);
        assert!(kept.accounted_off < 1e-9 && kept.missed().is_none(), "{kept:?}");
        assert!((59.9..60.1).contains(&kept.longest_seconds));
        let exceeded = seen(rate, (60, 70));
        let off = exceeded.figures(&[]);
        assert!((0.16..0.17).contains(&off.accounted_off) && off.missed().is_some(), "{off:?}");
        let apart = exceeded.began + Duration::from_secs(60);
        let excused = exceeded.figures(&[(apart, apart + Duration::from_secs(10))]);
        assert!(excused.accounted_off < 1e-9, "{excused:?}");
        assert!(0 < excused.spans && excused.longest_seconds < 60.0);
        assert!(seen(0.5 * rate, (0, 0)).figures(&[]).missed().is_some(), "too little is off too");
    }
}
