//! What the run came to: the fate of every request, how soon each fault was noticed and how soon
//! clients had their streams moving again, who moved without need, who was put out without cause. The
//! bars that must hold are checked here, by name.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::{Fate, Kind, Record, reasons};
use super::script::{self, Fault};
use super::watch::Change;

/// How long after a fault a replica may still be out, or a session still move, because of it.
const AFTERMATH: Duration = Duration::from_secs(20);
/// Streams that may break in the worst run, of a thousand.
const BROKEN_PER_MILLE_MAX: f64 = 1.0;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    seed: u64,
    seconds: u64,
    sent: usize,
    answered: usize,
    streams: usize,
    resumed: u64,
    refused: BTreeMap<String, u32>,
    lost: BTreeMap<String, u32>,
    streams_broken: BTreeMap<String, u32>,
    plain_broken: BTreeMap<String, u32>,
    wrong: BTreeMap<String, u32>,
    sessions: usize,
    moves: usize,
    moves_without_need: usize,
    ejected_without_cause: Vec<String>,
    replicas_killed_by_poison_max: usize,
    faults: Vec<FaultFigures>,
}

/// All faults of one kind.
#[derive(Debug, Serialize)]
struct FaultFigures {
    fault: &'static str,
    count: usize,
    detected: usize,
    detected_ms_p50: Option<u128>,
    detected_ms_max: Option<u128>,
    moving_again_ms_p50: Option<u128>,
    moving_again_ms_max: Option<u128>,
}

/// Everything that was seen.
pub(super) struct Run<'a> {
    pub(super) seed: u64,
    pub(super) seconds: u64,
    pub(super) records: &'a [Record],
    pub(super) faults: &'a [Fault],
    pub(super) changes: &'a [Change],
    /// The replicas' addresses, as the router writes them.
    pub(super) urls: &'a [String],
    pub(super) resumed: u64,
}

impl Run<'_> {
    pub(super) fn report(&self) -> Report {
        let (moves, moves_without_need) = self.moves();
        let mut sessions: Vec<u64> = self.records.iter().map(|it| it.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let poisoned = self.faults.iter().filter(|it| it.kind == script::Kind::Poison);
        let is_stream = |it: &&Record| it.kind != Kind::Plain;
        Report {
            seed: self.seed,
            seconds: self.seconds,
            sent: self.records.len(),
            answered: self.records.iter().filter(|it| it.fate == Fate::Answered).count(),
            streams: self.records.iter().filter(is_stream).count(),
            resumed: self.resumed,
            refused: self.count(|it| it.fate == Fate::Refused),
            lost: self.count(|it| it.fate == Fate::Lost),
            streams_broken: self.count(|it| it.fate == Fate::Broken && it.kind != Kind::Plain),
            plain_broken: self.count(|it| it.fate == Fate::Broken && it.kind == Kind::Plain),
            wrong: self.count(|it| it.fate == Fate::Wrong),
            sessions: sessions.len(),
            moves,
            moves_without_need,
            ejected_without_cause: self.ejected_without_cause(),
            replicas_killed_by_poison_max: poisoned.map(|it| it.replicas.len()).max().unwrap_or(0),
            faults: self.fault_figures(),
        }
    }

    fn count(&self, which: impl Fn(&&Record) -> bool) -> BTreeMap<String, u32> {
        reasons(self.records.iter().filter(which).map(|it| it.why.as_str()))
    }

    /// Counts the turns that were answered by another replica than the turn before, and those of them
    /// for which neither of the two had given cause.
    fn moves(&self) -> (usize, usize) {
        let mut by_session: BTreeMap<u64, Vec<&Record>> = BTreeMap::new();
        for record in self.records.iter().filter(|it| it.replica.is_some()) {
            by_session.entry(record.session).or_default().push(record);
        }
        let (mut moves, mut needless) = (0, 0);
        for turns in by_session.values() {
            for pair in turns.windows(2) {
                let [one, other] = [&pair[0].replica, &pair[1].replica];
                if one != other {
                    moves += 1;
                    let mut names = [one, other].into_iter().flatten();
                    needless += usize::from(!names.any(|it| self.had_cause(it, pair[1].ended)));
                }
            }
        }
        (moves, needless)
    }

    /// Tells whether a replica, by the name it gives itself, had a fault shortly before.
    fn had_cause(&self, name: &str, at: Instant) -> bool {
        let number = name.strip_prefix('r').and_then(|it| it.parse::<usize>().ok());
        self.faults.iter().any(|it| {
            let hit = number.is_none_or(|number| it.replicas.contains(&number));
            // A new router knows nothing of old moves, and sessions go back to where they began.
            let hit = hit || it.kind == script::Kind::RouterRestart;
            hit && it.began <= at && at <= it.ended + AFTERMATH
        })
    }

    fn ejected_without_cause(&self) -> Vec<String> {
        let mut ejected = Vec::new();
        for change in self.changes.iter().filter(|it| it.out) {
            let number = self.urls.iter().position(|it| *it == change.url);
            let had_cause = self.faults.iter().any(|it| {
                let hit = number.is_some_and(|it_is| it.replicas.contains(&it_is));
                let when = it.began <= change.at && change.at <= it.ended + AFTERMATH;
                hit && when && !it.kind.is_harmless()
            });
            if !had_cause {
                let Change { url, state, reason, .. } = change;
                ejected.push(format!("{url} {state} {}", reason.as_deref().unwrap_or("")));
            }
        }
        ejected
    }

    fn fault_figures(&self) -> Vec<FaultFigures> {
        let mut by_kind: BTreeMap<script::Kind, Vec<&Fault>> = BTreeMap::new();
        for fault in self.faults {
            by_kind.entry(fault.kind).or_default().push(fault);
        }
        let figures = by_kind.into_iter().map(|(kind, faults)| {
            let detected = sorted(faults.iter().filter_map(|it| self.detected_after(it)));
            let moving = sorted(faults.iter().filter_map(|it| self.moving_after(it)));
            FaultFigures {
                fault: kind.name(),
                count: faults.len(),
                detected: detected.len(),
                detected_ms_p50: detected.get(detected.len() / 2).copied(),
                detected_ms_max: detected.last().copied(),
                moving_again_ms_p50: moving.get(moving.len() / 2).copied(),
                moving_again_ms_max: moving.last().copied(),
            }
        });
        figures.collect()
    }

    /// How long until the router no longer took one of the victims for sound.
    fn detected_after(&self, fault: &Fault) -> Option<u128> {
        let urls: Vec<&String> = fault.replicas.iter().map(|it| &self.urls[*it]).collect();
        let noticed = self.changes.iter().find(|it| {
            !it.up && fault.began <= it.at && it.at <= fault.ended && urls.contains(&&it.url)
        })?;
        Some((noticed.at - fault.began).as_millis())
    }

    /// How long until everything that was under way when it began had moved: the longest silence a
    /// client saw from then on.
    fn moving_after(&self, fault: &Fault) -> Option<u128> {
        let under_way = self.records.iter().filter(|it| it.kind != Kind::Long);
        let silences = under_way.flat_map(|it| &it.pauses).filter_map(|(from, to)| {
            let overlaps = *from <= fault.began && fault.began <= *to;
            overlaps.then(|| (*to - fault.began).as_millis())
        });
        silences.max()
    }
}

fn sorted(values: impl Iterator<Item = u128>) -> Vec<u128> {
    let mut values: Vec<u128> = values.collect();
    values.sort_unstable();
    values
}

impl Report {
    pub(super) fn print(&self) {
        println!("\nseed {}, {} s of load", self.seed, self.seconds);
        println!("| sent | {} ({} streams) |", self.sent, self.streams);
        println!("| answered, every character right | {} |", self.answered);
        println!("| resumed from another replica | {} |", self.resumed);
        println!("| refused, with reason | {} |", listed(&self.refused));
        println!("| lost before they began | {} |", listed(&self.lost));
        println!("| streams broken, client told | {} |", listed(&self.streams_broken));
        println!("| plain answers broken | {} |", listed(&self.plain_broken));
        println!("| wrong | {} |", listed(&self.wrong));
        let (moves, needless) = (self.moves, self.moves_without_need);
        println!("| sessions | {}, moved {moves} times, {needless} without need |", self.sessions);
        println!("| sound replicas put out | {} |", self.ejected_without_cause.len());
        for ejected in &self.ejected_without_cause {
            println!("    {ejected}");
        }
        println!("| replicas one poison request killed | {} |", self.replicas_killed_by_poison_max);
        println!(
            "\n| fault | times | noticed | noticed after ms, p50 / max | all moving again after ms, p50 / max |"
        );
        println!("| --- | --- | --- | --- | --- |");
        let pair = |p50: Option<u128>, max: Option<u128>| match (p50, max) {
            (Some(p50), Some(max)) => format!("{p50} / {max}"),
            _ => "–".to_owned(),
        };
        for it in &self.faults {
            let detected = pair(it.detected_ms_p50, it.detected_ms_max);
            let moving = pair(it.moving_again_ms_p50, it.moving_again_ms_max);
            println!("| {} | {} | {} | {detected} | {moving} |", it.fault, it.count, it.detected);
        }
    }

    /// Names the bars that were missed.
    pub(super) fn missed(&self) -> Vec<String> {
        let total = |it: &BTreeMap<String, u32>| it.values().sum::<u32>();
        let mut missed = Vec::new();
        let mut must_be_none = |what: &str, count: u32| {
            if 0 < count {
                missed.push(format!("{what}: {count}"));
            }
        };
        must_be_none("requests lost before they began", total(&self.lost));
        must_be_none("answers with a wrong character", total(&self.wrong));
        let ejected = u32::try_from(self.ejected_without_cause.len()).unwrap_or(u32::MAX);
        must_be_none("sound replicas put out", ejected);
        let streams = u32::try_from(self.streams).map_or(f64::MAX, f64::from);
        let broken = f64::from(total(&self.streams_broken)) * 1000.0 / streams.max(1.0);
        if BROKEN_PER_MILLE_MAX < broken {
            missed.push(format!("streams broken: {broken:.1} of a thousand"));
        }
        missed
    }
}

fn listed(reasons: &BTreeMap<String, u32>) -> String {
    let total: u32 = reasons.values().sum();
    let mut out = total.to_string();
    for (reason, count) in reasons {
        let reason: String = reason.chars().take(300).collect();
        write!(out, "; {count} × {reason}").expect("text grows");
    }
    out
}
