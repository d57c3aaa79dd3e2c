//! What is answered: how far the replay of what happened is off, then what happened beside what would have.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use cleave_core::policy::PolicyKind;
use cleave_sim::measure::{ratio, real};
use cleave_sim::results::{Quantiles, Results};
use cleave_sim::world::{World, WorldSettings};
use serde::Serialize;

use super::basis::Basis;
use super::past::Past;
use crate::simulate::table::{digits, right_align, share, table};

/// What clients felt.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Felt {
    pub(super) requests: u64,
    pub(super) requests_per_s: f64,
    pub(super) ttft_s: Quantiles,
    pub(super) end_to_end_s: Quantiles,
    /// Share of prompt tokens found in a cache.
    pub(super) hit: f64,
    /// Share of requests that kept the promise.
    pub(super) good_share: f64,
    pub(super) refused: u64,
    /// Replicas that got nothing.
    pub(super) replicas_idle: u64,
}

/// Reads one figure.
type ReadFigure = fn(&Felt) -> f64;

impl Felt {
    pub(super) fn of(world: &World, policy: PolicyKind) -> Self {
        let it = Results::of(world, policy.as_str());
        let idle = it.replicas.iter().filter(|it| it.requests == 0).count();
        Self {
            requests: it.requests,
            requests_per_s: ratio(real(it.requests), it.span_s),
            ttft_s: it.ttft_s,
            end_to_end_s: it.end_to_end_s,
            hit: it.hit,
            good_share: it.good_share,
            refused: it.refused,
            replicas_idle: u64::try_from(idle).unwrap_or(u64::MAX),
        }
    }

    /// Adds what the way to the client takes, which engines know nothing of.
    pub(super) fn add_overhead(&mut self, overhead_ms: f64) {
        for it in [&mut self.ttft_s, &mut self.end_to_end_s] {
            for figure in [&mut it.mean, &mut it.p50, &mut it.p90, &mut it.p99, &mut it.max] {
                *figure += overhead_ms / 1e3;
            }
        }
    }
}

/// One way it might be.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Variant {
    pub(super) policy: String,
    pub(super) replicas: usize,
    pub(super) rate_scale: f64,
}

impl Variant {
    pub(super) fn of(settings: &WorldSettings, rate_scale: f64) -> Self {
        let policy = settings.brain.policy.to_string();
        Self { policy, replicas: settings.replicas.len(), rate_scale }
    }

    fn label(&self) -> String {
        let mut label = format!("{}, {} replicas", self.policy, self.replicas);
        if 1e-9 < (self.rate_scale - 1.0).abs() {
            _ = write!(label, ", traffic × {}", digits(self.rate_scale));
        }
        label
    }
}

/// A figure as it was recorded and as the replay has it.
#[derive(Clone, Debug, Serialize)]
struct AgreementFigure {
    figure: &'static str,
    recorded: f64,
    replayed: f64,
    /// How far the replay is off, as a share of what was recorded; nothing where that was zero.
    off: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct WhatIf {
    #[serde(flatten)]
    variant: Variant,
    #[serde(flatten)]
    felt: Felt,
}

/// The whole answer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ReplayAnswer {
    version: &'static str,
    pool: String,
    policy: String,
    replicas: usize,
    from: String,
    span_s: f64,
    files: usize,
    promise: String,
    costs: String,
    overhead_ms: f64,
    /// What could not be read of the recording.
    damage: Vec<String>,
    agreement: Vec<AgreementFigure>,
    recorded: Felt,
    replayed: Felt,
    what_if: Vec<WhatIf>,
    remarks: Vec<String>,
}

impl ReplayAnswer {
    /// Puts it together: the fleet as it was, and as it might be.
    pub(super) fn new(
        past: Past,
        basis: &Basis,
        (own, replayed): (Variant, Felt),
        played: Vec<(Variant, Felt)>,
    ) -> Self {
        let recorded = past.felt.clone();
        let figures: [(&'static str, ReadFigure); 6] = [
            ("first token p50, s", |it| it.ttft_s.p50),
            ("first token p90, s", |it| it.ttft_s.p90),
            ("first token p99, s", |it| it.ttft_s.p99),
            ("whole answer p50, s", |it| it.end_to_end_s.p50),
            ("whole answer p99, s", |it| it.end_to_end_s.p99),
            ("cached share of prompts", |it| it.hit),
        ];
        let agreement = figures.map(|(figure, of)| {
            let (was, is) = (of(&recorded), of(&replayed));
            let off = (0.0 < was).then(|| is / was - 1.0);
            AgreementFigure { figure, recorded: was, replayed: is, off }
        });
        let mut remarks = Vec::new();
        if 0 < past.left_out {
            remarks.push(format!(
                "{} requests are neither counted nor played: they failed, or were refused for another reason than want of room, as by a contract",
                past.left_out
            ));
        }
        for (variant, felt) in &played {
            if 0 < felt.replicas_idle {
                remarks.push(format!(
                    "{}: {} replicas got nothing; with so little to share, more of them change nothing",
                    variant.label(),
                    felt.replicas_idle
                ));
            }
        }
        let from = UNIX_EPOCH + Duration::from_micros(past.from_us);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            pool: past.pool.name.clone(),
            policy: own.policy,
            replicas: own.replicas,
            from: humantime::format_rfc3339_seconds(from).to_string(),
            span_s: real(past.until_us - past.from_us) / 1e6,
            files: past.files,
            promise: past.slo.to_string(),
            costs: basis.words(),
            overhead_ms: past.overhead_ms,
            damage: past.damage,
            agreement: agreement.to_vec(),
            recorded,
            replayed,
            what_if: played.into_iter().map(|(variant, felt)| WhatIf { variant, felt }).collect(),
            remarks,
        }
    }

    /// Writes it for a terminal.
    pub(super) fn text(&self) -> String {
        let span = humantime::format_duration(Duration::from_secs_f64(self.span_s.round()));
        let mut text = format!(
            "cleave {} replay\n  recorded: pool {}, {} from {}, {} files\n  fleet: {} replicas under {}; what work takes was {}\n  promise: {}\n",
            self.version,
            self.pool,
            span,
            self.from,
            self.files,
            self.replicas,
            self.policy,
            self.costs,
            self.promise,
        );
        for it in &self.damage {
            _ = writeln!(text, "  damaged: {it}");
        }
        let mut agreement = table(&["how well it agrees", "recorded", "replayed", "off by"]);
        for it in &self.agreement {
            let off = it.off.map_or_else(|| "–".to_owned(), |it| format!("{:+.1}%", 100.0 * it));
            agreement.add_row([
                it.figure.to_owned(),
                digits(it.recorded),
                digits(it.replayed),
                off,
            ]);
        }
        _ = writeln!(text, "\n{}\n\n{}", right_align(agreement), self.what_if_table());
        for it in &self.remarks {
            _ = writeln!(text, "{it}");
        }
        text
    }

    fn what_if_table(&self) -> comfy_table::Table {
        let mut rows = table(&[
            "what if",
            "requests/s",
            "first token p50 s",
            "p90",
            "p99",
            "whole p50 s",
            "p99",
            "cached",
            "kept promise",
            "refused",
        ]);
        let mut row = |label: String, it: &Felt| {
            rows.add_row([
                label,
                digits(it.requests_per_s),
                digits(it.ttft_s.p50),
                digits(it.ttft_s.p90),
                digits(it.ttft_s.p99),
                digits(it.end_to_end_s.p50),
                digits(it.end_to_end_s.p99),
                share(it.hit),
                share(it.good_share),
                it.refused.to_string(),
            ]);
        };
        row("(recorded)".to_owned(), &self.recorded);
        row("(replayed as it was)".to_owned(), &self.replayed);
        for it in &self.what_if {
            row(it.variant.label(), &it.felt);
        }
        right_align(rows)
    }
}
