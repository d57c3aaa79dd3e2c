//! What the run came to: the fate of every turn, which chats moved without cause, which turns did not find their cache,
//! how soon the routers agreed again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::hits::HitFigures;
use super::load::TurnRecord;
use super::metered::{ContractFigures, MeteredSeen};
use super::script::{RouterFault, StruckRouter};
use crate::chaos::client::{Fate, reasons};
use crate::chaos::report::has_lost_cache;

/// How long after a fault routers may know less of each other because of it.
const AFTERMATH: Duration = Duration::from_secs(4);
/// What is promised.
const AGREE_MAX: Duration = Duration::from_secs(2);
const MOVES_MAX: f64 = 0.01;
const COLD_MAX: f64 = 0.01;

#[derive(Debug, Serialize)]
pub(super) struct RoutersReport {
    seed: u64,
    seconds: u64,
    routers: usize,
    has_etcd: bool,
    turns: usize,
    answered: usize,
    /// In flight at a router when it was killed: no other one had them.
    cut_with_their_router: usize,
    lost: BTreeMap<String, u32>,
    broken: BTreeMap<String, u32>,
    wrong: BTreeMap<String, u32>,
    refused: BTreeMap<String, u32>,
    later_turns: usize,
    /// Answered by another replica than the turn before.
    moved: usize,
    /// Those of them while all routers could talk to each other.
    moved_without_cause: usize,
    /// Later turns that found less than half of their prompt cached, while all routers could talk.
    cold: usize,
    told_kb: usize,
    /// How long after the load no router believed any more that another one had something in flight.
    empty_ms: Option<u128>,
    hits: HitFigures,
    contract: ContractFigures,
    faults: Vec<RouterFaultFigures>,
}

/// All faults of one kind.
#[derive(Debug, Serialize)]
struct RouterFaultFigures {
    fault: &'static str,
    count: usize,
    agreed_ms_max: Option<u128>,
    has_agreed: bool,
}

/// Everything that was seen.
pub(super) struct RoutersRun<'a> {
    pub(super) seed: u64,
    pub(super) seconds: u64,
    pub(super) routers: usize,
    pub(super) has_etcd: bool,
    pub(super) records: &'a [TurnRecord],
    pub(super) metered: &'a MeteredSeen,
    pub(super) hits: HitFigures,
    pub(super) struck: &'a [StruckRouter],
    pub(super) bytes_told: u64,
    pub(super) empty: Option<Duration>,
}

impl RoutersRun<'_> {
    pub(super) fn report(self) -> RoutersReport {
        let unsaved = |it: &&TurnRecord| !self.was_killed(it);
        let count = |fate: Fate| {
            let failed = self.records.iter().filter(|it| it.fate == fate).filter(unsaved);
            reasons(failed.map(|it| it.why.as_str()))
        };
        let failed = |it: &&TurnRecord| matches!(it.fate, Fate::Lost | Fate::Broken);
        let cut = self.records.iter().filter(failed).filter(|it| self.was_killed(it)).count();
        let (later, moved, without_cause, cold) = self.moves();
        RoutersReport {
            seed: self.seed,
            seconds: self.seconds,
            routers: self.routers,
            has_etcd: self.has_etcd,
            turns: self.records.len(),
            answered: self.records.iter().filter(|it| it.fate == Fate::Answered).count(),
            cut_with_their_router: cut,
            lost: count(Fate::Lost),
            broken: count(Fate::Broken),
            wrong: count(Fate::Wrong),
            refused: count(Fate::Refused),
            later_turns: later,
            moved,
            moved_without_cause: without_cause,
            cold,
            told_kb: usize::try_from(self.bytes_told / 1000).unwrap_or(usize::MAX),
            empty_ms: self.empty.map(|it| it.as_millis()),
            contract: self.metered.figures(&self.apart()),
            faults: self.fault_figures(),
            hits: self.hits,
        }
    }

    /// Tells whether the router of a turn was killed while it had it.
    fn was_killed(&self, it: &TurnRecord) -> bool {
        let kills = self.struck.iter().filter(|it| it.kind == RouterFault::Kill);
        let slack = Duration::from_secs(1);
        kills.into_iter().any(|kill| {
            kill.router == it.router && it.sent <= kill.began + slack && kill.began <= it.ended
        })
    }

    /// Counts later turns, those that moved, those of them without cause, and those that found nothing cached.
    fn moves(&self) -> (usize, usize, usize, usize) {
        let mut chats: BTreeMap<u64, Vec<&TurnRecord>> = BTreeMap::new();
        for it in self.records.iter().filter(|it| it.replica.is_some()) {
            chats.entry(it.chat).or_default().push(it);
        }
        let (mut later, mut moved, mut without_cause, mut cold) = (0, 0, 0, 0);
        for turns in chats.values_mut() {
            turns.sort_unstable_by_key(|it| it.turn);
            for pair in turns.windows(2) {
                let has_cause = self.had_cause(pair[0]) || self.had_cause(pair[1]);
                let is_cold = pair[1].decision.as_deref().is_some_and(has_lost_cache);
                later += 1;
                moved += usize::from(pair[0].replica != pair[1].replica);
                without_cause += usize::from(pair[0].replica != pair[1].replica && !has_cause);
                cold += usize::from(is_cold && !has_cause);
            }
        }
        (later, moved, without_cause, cold)
    }

    /// Tells whether routers could not talk to each other when a turn was decided.
    fn had_cause(&self, it: &TurnRecord) -> bool {
        self.apart().iter().any(|(began, ended)| *began <= it.ended && it.sent <= *ended)
    }

    /// Spans in which routers could not talk to each other, or had only just met again.
    fn apart(&self) -> Vec<(Instant, Instant)> {
        let splits = self.struck.iter().filter(|it| it.kind.splits());
        splits.map(|it| (it.began, it.ended + AFTERMATH)).collect()
    }

    fn fault_figures(&self) -> Vec<RouterFaultFigures> {
        let kinds = RouterFault::ALL.into_iter().filter_map(|kind| {
            let struck: Vec<_> = self.struck.iter().filter(|it| it.kind == kind).collect();
            let agreed = struck.iter().filter_map(|it| it.agreed).max();
            (!struck.is_empty()).then(|| RouterFaultFigures {
                fault: kind.name(),
                count: struck.len(),
                agreed_ms_max: agreed.map(|it| it.as_millis()),
                has_agreed: struck.iter().all(|it| it.agreed.is_some()),
            })
        });
        kinds.collect()
    }
}

impl RoutersReport {
    pub(super) fn print(&self) {
        let store = if self.has_etcd { "etcd" } else { "no store" };
        println!("\n{} routers, {store}, {} s, seed {}", self.routers, self.seconds, self.seed);
        println!("turns {}, answered {}", self.turns, self.answered);
        println!("cut with a router that was killed: {}", self.cut_with_their_router);
        for (what, counts) in [
            ("lost", &self.lost),
            ("broken", &self.broken),
            ("wrong", &self.wrong),
            ("refused", &self.refused),
        ] {
            println!("{what}: {} {counts:?}", counts.values().sum::<u32>());
        }
        println!(
            "of {} later turns {} moved, {} without cause; {} found less than half cached",
            self.later_turns, self.moved, self.moved_without_cause, self.cold
        );
        let requests = real(self.turns + self.contract.answers).max(1.0);
        println!("told: {:.1} kB for each request", real(self.told_kb) / requests);
        let empty = self.empty_ms.map_or("never".to_owned(), |it| format!("after {it} ms"));
        println!("nothing left in any books: {empty}");
        self.hits.print(self.routers);
        self.contract.print();
        for it in &self.faults {
            let agreed = it.agreed_ms_max.map_or("never".to_owned(), |it| format!("{it} ms"));
            println!("  {:<30} {} times, agreed within {agreed}", it.fault, it.count);
        }
    }

    /// Lists the promises that were not kept.
    pub(super) fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for (what, counts) in
            [("lost", &self.lost), ("broken", &self.broken), ("wrong", &self.wrong)]
        {
            let count: u32 = counts.values().sum();
            if 0 < count {
                missed.push(format!("{count} turns {what}"));
            }
        }
        let share = |count: usize| real(count) / real(self.later_turns.max(1));
        if MOVES_MAX < share(self.moved_without_cause) {
            missed.push(format!("{} turns moved without cause", self.moved_without_cause));
        }
        if COLD_MAX < share(self.cold) {
            missed.push(format!("{} turns did not find their cache", self.cold));
        }
        if self.empty_ms.is_none() {
            missed.push("something is left in the books".to_owned());
        }
        missed.extend(self.hits.missed());
        missed.extend(self.contract.missed());
        for it in &self.faults {
            let is_late = it.agreed_ms_max.is_some_and(|it| AGREE_MAX.as_millis() < it);
            if !it.has_agreed || is_late {
                missed.push(format!("no agreement in time after {}", it.fault));
            }
        }
        missed
    }
}

fn real(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
