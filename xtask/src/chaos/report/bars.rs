//! The report of a run as text, and the bars that must hold, by name.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{ChaosReport, HangFound, Moves};

/// Streams that may break in the worst run, of a thousand.
const BROKEN_PER_MILLE_MAX: f64 = 1.0;
/// What a crashed replica was writing must be sent elsewhere within this.
const REROUTED_MS_MAX: u128 = 1_000;
/// A hang must be found within this, or within this many times the silence that its work explains.
/// The log rounds to a tenth of a second.
const HUNG_SECONDS_MAX: f64 = 5.05;
const HUNG_FACTOR_MAX: f64 = 3.0;

impl ChaosReport {
    pub(in crate::chaos) fn print(&self) {
        println!("\nseed {}, {} s of load", self.seed, self.seconds);
        println!("| sent | {} ({} streams) |", self.sent, self.streams);
        println!("| answered, every character right | {} |", self.answered);
        println!("| resumed from another replica | {} |", self.resumed);
        println!("| refused, with reason | {} |", listed(&self.refused));
        println!("| lost before they began | {} |", listed(&self.lost));
        println!("| streams broken, client told | {} |", listed(&self.streams_broken));
        println!("| plain answers broken | {} |", listed(&self.plain_broken));
        println!("| wrong | {} |", listed(&self.wrong));
        let Moves { sessions, sessions_moved, times, without_fault, lost_without_fault, .. } =
            self.moves;
        println!("| sessions, of which moved, how often | {sessions}, {sessions_moved}, {times} |");
        println!(
            "| moves without a fault, of which lost their cache | {without_fault}, {lost_without_fault} |"
        );
        println!("| why those | {} |", listed(&self.moves.why_without_fault));
        println!("| sound replicas put out | {} |", self.ejected_without_cause.len());
        for ejected in &self.ejected_without_cause {
            println!("    {ejected}");
        }
        println!("| greetings refused as if they were poison | {} |", self.greetings_blamed);
        for HangFound { after_s, explained_s } in &self.hangs_found {
            println!("| put out as hung after, explained | {after_s} s, {explained_s} s |");
        }
        println!(
            "\n| fault | times | noticed | noticed after ms, p50 / max | streams resumed | sent elsewhere after ms, p50 / max | going on after ms, p50 / max | all clients moving after ms, p50 / max | replicas dead, most |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        let pair = |p50: Option<u128>, max: Option<u128>| match (p50, max) {
            (Some(p50), Some(max)) => format!("{p50} / {max}"),
            _ => "–".to_owned(),
        };
        for it in &self.faults {
            let detected = pair(it.detected_ms_p50, it.detected_ms_max);
            let moving = pair(it.moving_again_ms_p50, it.moving_again_ms_max);
            let sent = pair(it.sent_elsewhere_ms_p50, it.sent_elsewhere_ms_max);
            let begun = pair(it.going_on_ms_p50, it.going_on_ms_max);
            let dead = if it.is_crash { it.replicas_dead_max.unwrap_or(0) } else { 0 };
            let (fault, times, noticed, resumed) = (it.fault, it.count, it.detected, it.resumed);
            println!(
                "| {fault} | {times} | {noticed} | {detected} | {resumed} | {sent} | {begun} | {moving} | {dead} |"
            );
        }
    }

    /// Names the bars that were missed.
    pub(in crate::chaos) fn missed(&self) -> Vec<String> {
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
        let blamed = u32::try_from(self.greetings_blamed).unwrap_or(u32::MAX);
        must_be_none("greetings refused as if they were poison", blamed);
        let streams = u32::try_from(self.streams).map_or(f64::MAX, f64::from);
        let broken = f64::from(total(&self.streams_broken)) * 1000.0 / streams.max(1.0);
        if BROKEN_PER_MILLE_MAX < broken {
            missed.push(format!("streams broken: {broken:.1} of a thousand"));
        }
        for it in &self.hangs_found {
            let limit_s = HUNG_SECONDS_MAX.max(HUNG_FACTOR_MAX * it.explained_s);
            if limit_s < it.after_s {
                missed.push(format!("a hang was found after {} s", it.after_s));
            }
        }
        for it in &self.faults {
            let fault = it.fault;
            if it.is_hang && it.detected < it.count {
                missed.push(format!("{fault}: not found"));
            }
            let sent_ms = it.sent_elsewhere_ms_max.filter(|_| it.is_crash);
            if let Some(ms) = sent_ms.filter(|ms| REROUTED_MS_MAX < *ms) {
                missed.push(format!("{fault}: a stream was sent elsewhere after {ms} ms"));
            }
            if it.replicas_dead_allowed.is_some_and(|most| Some(most) < it.replicas_dead_max) {
                missed.push(format!("{fault}: killed {:?}", it.replicas_dead_max));
            }
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
