//! What the run came to: the fate of every request, how soon each fault was noticed and how soon
//! clients had their streams moving again, which sessions moved without need, which replicas were
//! put out without cause.

mod bars;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::{Fate, Record, RequestKind, reasons};
use super::script::{self, Fault};
use crate::watch::Change;

/// How long after a fault a replica may still be out, or a session still move, because of it.
const AFTERMATH: Duration = Duration::from_secs(20);

#[derive(Debug, Serialize)]
pub(super) struct ChaosReport {
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
    moves: Moves,
    ejected_without_cause: Vec<String>,
    /// The common question, refused as if it were poison.
    greetings_blamed: usize,
    hangs_found: Vec<HangFound>,
    faults: Vec<FaultFigures>,
}

/// Turns that were answered by another replica than the turn before.
#[derive(Debug, Default, Serialize)]
struct Moves {
    sessions: usize,
    sessions_moved: usize,
    times: usize,
    /// Where neither of the two replicas had given cause.
    without_fault: usize,
    /// Those of them that had less than half of their prompt in the cache of the other one.
    lost_without_fault: usize,
    /// Why they went there, in the router's words.
    why_without_fault: BTreeMap<String, u32>,
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
    resumed: usize,
    /// From the moment an answer broke off.
    sent_elsewhere_ms_p50: Option<u128>,
    sent_elsewhere_ms_max: Option<u128>,
    going_on_ms_p50: Option<u128>,
    going_on_ms_max: Option<u128>,
    replicas_dead_max: Option<usize>,
    replicas_dead_allowed: Option<usize>,
    is_crash: bool,
    is_hang: bool,
}

/// A replica that was put out for its silence, by the router's own words.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct HangFound {
    after_s: f64,
    explained_s: f64,
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
    /// What the router logged.
    pub(super) log: &'a str,
}

impl Run<'_> {
    pub(super) fn report(&self) -> ChaosReport {
        let is_stream = |it: &&Record| it.kind.is_stream();
        let blamed = |it: &&Record| {
            it.kind == RequestKind::Greeting
                && matches!(it.why.as_str(), "quarantined" | "suspected")
        };
        ChaosReport {
            seed: self.seed,
            seconds: self.seconds,
            sent: self.records.len(),
            answered: self.records.iter().filter(|it| it.fate == Fate::Answered).count(),
            streams: self.records.iter().filter(is_stream).count(),
            resumed: self.resumed,
            refused: self.count(|it| it.fate == Fate::Refused),
            lost: self.count(|it| it.fate == Fate::Lost),
            streams_broken: self.count(|it| it.fate == Fate::Broken && it.kind.is_stream()),
            plain_broken: self.count(|it| it.fate == Fate::Broken && !it.kind.is_stream()),
            wrong: self.count(|it| it.fate == Fate::Wrong),
            moves: self.moves(),
            ejected_without_cause: self.ejected_without_cause(),
            greetings_blamed: self.records.iter().filter(blamed).count(),
            hangs_found: self.log.lines().filter_map(hang_found).collect(),
            faults: self.fault_figures(),
        }
    }

    fn count(&self, which: impl Fn(&&Record) -> bool) -> BTreeMap<String, u32> {
        reasons(self.records.iter().filter(which).map(|it| it.why.as_str()))
    }

    /// Counts the turns that were answered by another replica than the turn before.
    fn moves(&self) -> Moves {
        let mut by_session: BTreeMap<u64, Vec<&Record>> = BTreeMap::new();
        // Only turns of a chat have something cached where the turn before was.
        let is_turn = |it: &&Record| matches!(it.kind, RequestKind::Stream | RequestKind::Plain);
        for record in self.records.iter().filter(is_turn).filter(|it| it.replica.is_some()) {
            by_session.entry(record.session).or_default().push(record);
        }
        let mut moves = Moves { sessions: by_session.len(), ..Moves::default() };
        for turns in by_session.values() {
            let elsewhere = turns.windows(2).filter(|it| it[0].replica != it[1].replica);
            let before = moves.times;
            for pair in elsewhere {
                moves.times += 1;
                let mut names = [&pair[0].replica, &pair[1].replica].into_iter().flatten();
                let had_cause = names.any(|it| self.had_cause(it, pair[1].ended));
                let has_lost = pair[1].decision.as_deref().is_some_and(has_lost_cache);
                if !had_cause {
                    moves.without_fault += 1;
                    moves.lost_without_fault += usize::from(has_lost);
                    let why = pair[1].decision.as_deref().and_then(why).unwrap_or("unknown");
                    *moves.why_without_fault.entry(why.to_owned()).or_default() += 1;
                }
            }
            moves.sessions_moved += usize::from(before < moves.times);
        }
        moves
    }

    /// Tells whether a replica, by the name it gives itself, had a fault shortly before.
    fn had_cause(&self, name: &str, at: Instant) -> bool {
        let number = name.strip_prefix('r').and_then(|it| it.parse::<usize>().ok());
        self.faults.iter().any(|it| {
            let hit = number.is_none_or(|number| it.replicas.contains(&number));
            // A new router knows nothing of old moves, and sessions go back to where they began.
            let hit = hit || it.kind == script::FaultKind::RouterRestart;
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
        let mut by_kind: BTreeMap<script::FaultKind, Vec<&Fault>> = BTreeMap::new();
        for fault in self.faults {
            by_kind.entry(fault.kind).or_default().push(fault);
        }
        let figures = by_kind.into_iter().map(|(kind, faults)| {
            let detected = sorted(faults.iter().filter_map(|it| self.detected_after(it)));
            let moving = sorted(faults.iter().filter_map(|it| self.moving_after(it)));
            let sent = sorted(faults.iter().flat_map(|it| self.gone_on(it, "sent_ms=")));
            let begun = sorted(faults.iter().flat_map(|it| self.gone_on(it, "begun_ms=")));
            FaultFigures {
                fault: kind.name(),
                count: faults.len(),
                detected: detected.len(),
                detected_ms_p50: detected.get(detected.len() / 2).copied(),
                detected_ms_max: detected.last().copied(),
                moving_again_ms_p50: moving.get(moving.len() / 2).copied(),
                moving_again_ms_max: moving.last().copied(),
                resumed: sent.len(),
                sent_elsewhere_ms_p50: sent.get(sent.len() / 2).copied(),
                sent_elsewhere_ms_max: sent.last().copied(),
                going_on_ms_p50: begun.get(begun.len() / 2).copied(),
                going_on_ms_max: begun.last().copied(),
                replicas_dead_max: faults.iter().map(|it| it.replicas.len()).max(),
                replicas_dead_allowed: kind.deaths_max(),
                is_crash: kind.is_crash(),
                is_hang: kind.is_hang(),
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

    /// Reads a figure of every answer that went on elsewhere because of a fault.
    fn gone_on(&self, fault: &Fault, figure: &str) -> Vec<u128> {
        let next = self.faults.iter().map(|it| it.log_from).filter(|it| fault.log_from < *it).min();
        let lines = self.log.get(fault.log_from..next.unwrap_or(self.log.len())).unwrap_or("");
        let gone_on = lines.lines().filter(|it| it.contains("answer goes on elsewhere"));
        gone_on
            .filter_map(|it| it.split(' ').find_map(|it| it.strip_prefix(figure)?.parse().ok()))
            .collect()
    }

    /// How long until everything that was under way when it began had moved: the longest silence a
    /// client saw from then on.
    fn moving_after(&self, fault: &Fault) -> Option<u128> {
        let under_way = self.records.iter().filter(|it| it.kind != RequestKind::Long);
        let silences = under_way.flat_map(|it| &it.pauses).filter_map(|(from, to)| {
            let overlaps = *from <= fault.began && fault.began <= *to;
            overlaps.then(|| (*to - fault.began).as_millis())
        });
        silences.max()
    }
}

/// Reads the reason out of a decision.
fn why(decision: &str) -> Option<&str> {
    decision.split(' ').find_map(|it| it.strip_prefix("why="))
}

/// Tells whether less than half of a prompt was in the cache of the replica that was chosen.
pub(super) fn has_lost_cache(decision: &str) -> bool {
    let figure = |name: &str| {
        let words = decision.split(' ');
        words.into_iter().find_map(|it| it.strip_prefix(name)?.parse::<u32>().ok())
    };
    let cached = figure("cached_tokens=").unwrap_or(0);
    figure("prompt_tokens=").is_some_and(|prompt| 2 * cached < prompt)
}

/// Reads how long a replica was silent that the log says was put out for it, and what explained that.
fn hang_found(line: &str) -> Option<HangFound> {
    if !line.contains("state=\"out\" reason=\"hung\"") {
        return None;
    }
    let (lasted, explained) = line.split_once(" s, with work that explains ")?;
    let after_s = lasted.rsplit(' ').next()?.parse().ok()?;
    let explained_s = explained.split(' ').next()?.parse().ok()?;
    Some(HangFound { after_s, explained_s })
}

fn sorted(values: impl Iterator<Item = u128>) -> Vec<u128> {
    let mut values: Vec<u128> = values.collect();
    values.sort_unstable();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silence_of_a_hung_replica_is_read_from_the_log() {
        let line = "WARN event kind=\"replica\" before=\"suspect\" state=\"out\" reason=\"hung\" \
                    detail=\"nothing came from it for 4.6 s, with work that explains 0.1 s\"";
        let found = HangFound { after_s: 4.6, explained_s: 0.1 };
        assert_eq!(hang_found(line), Some(found));
        assert_eq!(hang_found(&line.replace("\"out\"", "\"suspect\"")), None);
    }

    #[test]
    fn what_was_cached_is_read_from_the_decision() {
        let decision =
            |cached: u32| format!("r1 why=price cached_tokens={cached} prompt_tokens=100");
        assert!(has_lost_cache(&decision(49)) && !has_lost_cache(&decision(50)));
        assert!(!has_lost_cache("r1 why=home"));
        assert_eq!(why(&decision(1)), Some("price"));
    }
}
