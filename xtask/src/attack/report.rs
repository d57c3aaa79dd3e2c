//! What the attacks came to: one row each, for people and for machines.

use std::time::Duration;

use serde::Serialize;

/// Misses that are printed of one attack; a file has them all.
const SHOWN_MAX: usize = 6;

#[derive(Debug, Serialize)]
pub(super) struct AttackRow {
    pub(super) attack: &'static str,
    /// What was tried.
    pub(super) tried: &'static str,
    /// What did not hold; none when the router withstood.
    pub(super) misses: Vec<String>,
    pub(super) calm_requests: usize,
    pub(super) attacked_requests: usize,
    pub(super) calm_p99_ms: Option<f64>,
    pub(super) attacked_p99_ms: Option<f64>,
    pub(super) files: (usize, usize),
    pub(super) resident_mib: (u64, u64),
    pub(super) seconds: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct AttackReport {
    pub(super) seed: u64,
    pub(super) rows: Vec<AttackRow>,
}

impl AttackRow {
    pub(super) const fn withstood(&self) -> bool {
        self.misses.is_empty()
    }

    /// Prints how one attack went, as soon as it is over.
    pub(super) fn print(&self) {
        let verdict = if self.withstood() { "withstood" } else { "FAILED" };
        println!(
            "{verdict}: {} in {:.0} s, bystanders {} -> {} ms ({} and {} requests), files {} -> {}, MiB {} -> {}",
            self.attack,
            self.seconds,
            shown(self.calm_p99_ms),
            shown(self.attacked_p99_ms),
            self.calm_requests,
            self.attacked_requests,
            self.files.0,
            self.files.1,
            self.resident_mib.0,
            self.resident_mib.1,
        );
        for miss in self.misses.iter().take(SHOWN_MAX) {
            println!("    {miss}");
        }
        if let Some(more) = self.misses.len().checked_sub(SHOWN_MAX).filter(|it| 0 < *it) {
            println!("    and {more} more");
        }
    }
}

impl AttackReport {
    pub(super) fn print(&self) {
        println!("\nseed {}", self.seed);
        println!("| attack | what was tried | verdict | p99 calm ms | p99 attacked ms |");
        println!("| --- | --- | --- | --- | --- |");
        for row in &self.rows {
            let first = row.misses.first();
            let verdict = first.map_or("withstood".to_owned(), |it| format!("**FAILED**: {it}"));
            let (calm, attacked) = (shown(row.calm_p99_ms), shown(row.attacked_p99_ms));
            println!("| {} | {} | {verdict} | {calm} | {attacked} |", row.attack, row.tried);
        }
    }

    pub(super) fn failed(&self) -> Vec<&'static str> {
        self.rows.iter().filter(|it| !it.withstood()).map(|it| it.attack).collect()
    }
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn shown(ms: Option<f64>) -> String {
    ms.map_or("–".to_owned(), |it| format!("{it:.0}"))
}
