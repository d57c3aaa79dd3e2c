//! Some of the requests of a run as plain numbers: a class, a tenant, the bystanders of a fault.

use std::collections::BTreeMap;

use cleave_core::cost::MODEL_UNIT_MS;
use serde::Serialize;

use super::{Interval, Quantiles};
use crate::measure::{Tally, ratio, real};

/// What some of the requests of one run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupResults {
    pub name: String,
    pub requests: u64,
    pub finished: u64,
    pub good_share: f64,
    /// Model units of the requests that were answered, in all and per minute of the run.
    pub served_mu: f64,
    pub served_mu_per_min: f64,
    pub ttft_s: Quantiles,
    /// From arrival until the router first sent it somewhere.
    pub wait_s: Quantiles,
    /// Share of the deadlines for a first token that were kept; none where no request had one.
    pub deadlines_met: Option<f64>,
    /// Share of them that were missed although the request was sent to a replica; the others were
    /// refused.
    pub deadlines_missed: Option<f64>,
    /// Requests sent to a replica that could not have kept their deadline there, had it had nothing
    /// else to do.
    pub sent_in_vain: u64,
    /// Model units sent on while something of every tenant waited; none where that never was.
    pub contested_mu: Option<f64>,
    /// Refusals of the router, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

impl GroupResults {
    pub(super) fn of(name: &str, it: &Tally, span_s: f64) -> Self {
        let served_mu = it.served_ms / MODEL_UNIT_MS;
        Self {
            name: name.to_owned(),
            requests: it.requests,
            finished: it.finished,
            good_share: ratio(real(it.good), real(it.requests)),
            served_mu,
            served_mu_per_min: ratio(served_mu * 60.0, span_s),
            ttft_s: Quantiles::of(&it.ttft),
            wait_s: Quantiles::of(&it.wait),
            deadlines_met: (0 < it.due).then(|| ratio(real(it.met), real(it.due))),
            deadlines_missed: (0 < it.due).then(|| ratio(real(it.missed), real(it.due))),
            sent_in_vain: it.in_vain,
            contested_mu: (0.0 < it.contested_ms).then(|| it.contested_ms / MODEL_UNIT_MS),
            refused: it.refused.clone(),
        }
    }

    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// Makes results of every tally, in the order of their keys.
pub(super) fn all<K: ToString>(tallies: &BTreeMap<K, Tally>, span_s: f64) -> Vec<GroupResults> {
    let all = tallies.iter().map(|(key, it)| GroupResults::of(&key.to_string(), it, span_s));
    all.collect()
}

/// The figures of a group that are compared, over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupSummary {
    pub name: String,
    pub requests: Interval,
    pub good_share: Interval,
    pub served_mu_per_min: Interval,
    pub ttft_p50_s: Interval,
    pub ttft_p99_s: Interval,
    pub wait_p99_s: Interval,
    pub deadlines_met: Option<Interval>,
    pub deadlines_missed: Option<Interval>,
    pub sent_in_vain: Interval,
    pub contested_mu: Option<Interval>,
    pub refused: Interval,
    /// Refusals by reason, of all seeds together.
    pub refused_by: BTreeMap<&'static str, u64>,
}

/// Puts together what each seed has of a group of that name; nothing where no seed has it.
fn summarize(name: &str, seeds: &[&GroupResults]) -> GroupSummary {
    let over = |figure: fn(&GroupResults) -> f64| Interval::of_each(seeds, |it| figure(it));
    let where_any = |figure: fn(&GroupResults) -> Option<f64>| {
        let all: Vec<f64> = seeds.iter().filter_map(|it| figure(it)).collect();
        (!all.is_empty()).then(|| Interval::of(&all))
    };
    let mut refused_by = BTreeMap::new();
    for (reason, count) in seeds.iter().flat_map(|it| &it.refused) {
        *refused_by.entry(*reason).or_default() += count;
    }
    GroupSummary {
        name: name.to_owned(),
        requests: over(|it| real(it.requests)),
        good_share: over(|it| it.good_share),
        served_mu_per_min: over(|it| it.served_mu_per_min),
        ttft_p50_s: over(|it| it.ttft_s.p50),
        ttft_p99_s: over(|it| it.ttft_s.p99),
        wait_p99_s: over(|it| it.wait_s.p99),
        deadlines_met: where_any(|it| it.deadlines_met),
        deadlines_missed: where_any(|it| it.deadlines_missed),
        sent_in_vain: over(|it| real(it.sent_in_vain)),
        contested_mu: where_any(|it| it.contested_mu),
        refused: over(|it| real(it.refusals())),
        refused_by,
    }
}

/// Summarizes every group that any seed has, in the order in which they are first met.
pub(super) fn summaries<'a>(seeds: impl Iterator<Item = &'a [GroupResults]>) -> Vec<GroupSummary> {
    let mut groups: Vec<(&str, Vec<&GroupResults>)> = Vec::new();
    for group in seeds.flatten() {
        match groups.iter_mut().find(|(name, _)| *name == group.name) {
            Some((_, seen)) => seen.push(group),
            None => groups.push((&group.name, vec![group])),
        }
    }
    groups.iter().map(|(name, seen)| summarize(name, seen)).collect()
}
