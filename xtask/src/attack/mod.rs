//! `cargo xtask attack`: real processes on this machine are attacked as a client, a browser, a log reader
//! or a replica could do it, while honest clients of other tenants go on asking. Whatever the attack is,
//! the process must live and not panic, bystanders must hardly notice, and afterwards the books must be
//! empty and files and memory given back; what else must hold is the attack's own affair. One file in
//! `list/` is one attack with its variants. Outside CI: it measures time.

mod bystanders;
mod client;
mod fake;
mod frames;
#[expect(clippy::unnecessary_wraps, reason = "all attacks are called alike")]
mod list;
mod plan;
mod report;
mod scene;
mod vitals;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use self::bystanders::{BystanderRequest, Bystanders, p99};
use self::list::ALL;
use self::plan::Plan;
use self::report::{AttackReport, AttackRow, ms};
use self::scene::Scene;
use self::vitals::Held;
use crate::{repo, rig};

/// Before bystanders are measured.
const WARM_UP: Duration = Duration::from_millis(1_500);
/// Bystanders go on asking after the attack, because harm may come late.
const AFTERMATH: Duration = Duration::from_secs(2);
/// How long books, files and memory have to come back.
const RECOVERY: Duration = Duration::from_secs(20);
/// What may remain open: connections to replicas that are kept a few seconds.
const FILES_LEFT_MAX: usize = 16;
/// What may remain resident: allocators keep some of what they were given.
const RESIDENT_LEFT_KIB_MAX: u64 = 64 * 1024;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary [default: the one tests build]
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Only these attacks, by name or by the beginning of a name
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// How long each attack lasts
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Decides what is drawn by lot
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bystanders' first tokens may always take this much longer; raise it on a busy machine
    #[arg(long, default_value_t = 50)]
    floor_ms: u64,
    /// Name the attacks and do nothing
    #[arg(long)]
    list: bool,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One attack.
struct Attack {
    name: &'static str,
    tries: &'static str,
    plan: fn() -> Plan,
    run: fn(&mut Scene) -> Result<()>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let is_wanted = |it: &&&Attack| {
        args.only.is_empty() || args.only.iter().any(|name| it.name.starts_with(name.as_str()))
    };
    let attacks: Vec<&&Attack> = ALL.iter().filter(is_wanted).collect();
    ensure!(!attacks.is_empty(), "no such attack: see --list");
    if args.list {
        for attack in attacks {
            println!("{:<28} {}", attack.name, attack.tries);
        }
        return Ok(());
    }
    let binary = rig::binary(args.cleave.as_ref())?;
    // Attackers and bystanders are many, and all of them are this process.
    _ = rlimit::increase_nofile_limit(u64::MAX);
    let mut report = AttackReport { seed: args.seed, rows: Vec::new() };
    for attack in attacks {
        let row = one(attack, args, &binary).with_context(|| format!("attack {}", attack.name))?;
        row.print();
        report.rows.push(row);
    }
    report.print();
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    match report.failed().as_slice() {
        [] => Ok(()),
        failed => bail!("these attacks work: {}", failed.join(", ")),
    }
}

/// Runs one attack from the first process to the last.
fn one(attack: &Attack, args: &Args, binary: &Path) -> Result<AttackRow> {
    let folder = repo::target_dir().join("attack").join(attack.name);
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let seconds = Duration::from_secs(args.seconds);
    let plan = (attack.plan)();
    let started = Instant::now();
    let mut scene = Scene::start(&plan, binary, &folder, args.seed, seconds)?;
    let bystanders = Bystanders::start(scene.address, plan.has_tenants);
    thread::sleep(WARM_UP);
    let before = Held::of(scene.pid)?;
    let calm = Instant::now();
    thread::sleep(seconds / 2);
    let attacked = Instant::now();
    if let Err(error) = (attack.run)(&mut scene) {
        scene.misses.push(format!("the attack could not go on: {error:#}"));
    }
    thread::sleep(AFTERMATH);
    let seen = bystanders.stop();
    let phases = Phases::of(&seen, calm, attacked);
    let floor = Duration::from_millis(args.floor_ms);
    scene.misses.extend(phases.failures());
    scene.misses.extend(phases.slowness(floor).filter(|_| !plan.is_full));
    let after = aftermath(&mut scene, &plan, before)?;
    Ok(AttackRow {
        attack: attack.name,
        tried: attack.tries,
        misses: std::mem::take(&mut scene.misses),
        calm_requests: phases.calm.len(),
        attacked_requests: phases.attacked.len(),
        calm_p99_ms: p99(phases.calm.iter().copied()).map(ms),
        attacked_p99_ms: p99(phases.attacked.iter().copied()).map(ms),
        files: (before.files, after.files),
        resident_mib: (before.resident_kib / 1024, after.resident_kib / 1024),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// What bystanders saw in peace and in war.
struct Phases<'a> {
    calm: Vec<&'a BystanderRequest>,
    attacked: Vec<&'a BystanderRequest>,
}

impl<'a> Phases<'a> {
    fn of(seen: &'a [BystanderRequest], calm: Instant, attacked: Instant) -> Self {
        let in_calm = |it: &&BystanderRequest| calm <= it.began && it.ended < attacked;
        Self {
            calm: seen.iter().filter(in_calm).collect(),
            attacked: seen.iter().filter(|it| attacked <= it.ended).collect(),
        }
    }

    fn failures(&self) -> Vec<String> {
        let mut misses = Vec::new();
        for (when, seen) in [("calm", &self.calm), ("attacked", &self.attacked)] {
            let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
            for reason in seen.iter().filter_map(|it| it.failure.as_deref()) {
                *reasons.entry(reason).or_default() += 1;
            }
            if !reasons.is_empty() {
                let (failed, all) = (reasons.values().sum::<usize>(), seen.len());
                let reasons: Vec<String> =
                    reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
                let reasons = reasons.join(", ");
                misses.push(format!("{failed} of {all} bystanders failed ({when}): {reasons}"));
            }
        }
        misses
    }

    fn slowness(&self, floor: Duration) -> Option<String> {
        let calm = p99(self.calm.iter().copied());
        let attacked = p99(self.attacked.iter().copied());
        let (Some(calm), Some(attacked)) = (calm, attacked) else {
            return Some("no bystander was served".to_owned());
        };
        ((2 * calm).max(calm + floor) < attacked).then(|| {
            let (calm, attacked) = (ms(calm), ms(attacked));
            format!("bystanders' p99 went from {calm:.0} to {attacked:.0} ms")
        })
    }
}

/// Checks what must hold after any attack, and returns what the process holds in the end.
fn aftermath(scene: &mut Scene, plan: &Plan, before: Held) -> Result<Held> {
    let said = scene.said()?;
    for line in vitals::panics(&said) {
        scene.misses.push(format!("panic: {line}"));
    }
    if !scene.is_alive() {
        // Whatever else was missed follows from it.
        scene.misses.insert(0, "the process is gone".to_owned());
        return Ok(Held { files: 0, resident_kib: 0 });
    }
    let counted = vitals::panics_counted(scene.admin);
    scene.check(counted == 0, || format!("the router counts {counted} panics"));
    let is_empty = |it: &Scene| vitals::open_books(it.admin).is_ok_and(|it| it.is_empty());
    if !scene.wait(RECOVERY, is_empty) {
        let open = match vitals::open_books(scene.admin) {
            Ok(open) => open.join(", "),
            Err(error) => format!("no answer from the admin port ({error:#})"),
        };
        scene.misses.push(format!("books are open: {open}"));
    }
    let files_max = before.files + FILES_LEFT_MAX;
    let resident_max = before.resident_kib + RESIDENT_LEFT_KIB_MAX + plan.held_mib * 1024;
    let is_back = |it: Held| it.files <= files_max && it.resident_kib <= resident_max;
    scene.wait(RECOVERY, |it| Held::of(it.pid).is_ok_and(is_back));
    let after = Held::of(scene.pid)?;
    scene.check(after.files <= files_max, || format!("{} files are still open", after.files));
    let mib = after.resident_kib / 1024;
    scene.check(after.resident_kib <= resident_max, || format!("{mib} MiB are still resident"));
    Ok(after)
}
