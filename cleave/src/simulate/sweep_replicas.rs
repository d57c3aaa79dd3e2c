//! `cleave simulate sweep --replicas 2..16`: one load on fleets of several sizes. The knee of a policy is the
//! smallest fleet from which on all keep the promise.

use std::collections::{BTreeMap, BTreeSet};

use cleave_core::policy::PolicyKind;
use cleave_sim::report::{SweepAxis, SweepPoint};
use cleave_sim::results::Results;
use serde::Serialize;

use super::args::ReplicaRange;
use super::compare::print;
use super::plan::Plan;
use super::sweep::Sweep;
use super::table::{digits, right_align, share, table};
use super::{header, output, page, runs};

/// Sizes that are tried of a range; of a longer one, as many at equal distances.
const SIZES_MAX: usize = 24;
/// Requests that are looked at to tell whether a result is an artefact of the workload.
const LOOKED_AT_MAX: u64 = 10_000;

/// How a policy does with each size of the fleet.
#[derive(Serialize)]
struct SizedPolicy {
    policy: String,
    /// The smallest fleet from which on all keep the promise; none where none does.
    knee: Option<usize>,
    sizes: Vec<SizedRun>,
}

#[derive(Serialize)]
struct SizedRun {
    replicas: usize,
    good_share: f64,
    good_per_s: f64,
    ttft_p50_s: f64,
    ttft_p99_s: f64,
    hit: f64,
    refused: u64,
    /// Replicas that got nothing.
    idle: usize,
}

#[derive(Serialize)]
struct SizesDocument<'a> {
    version: &'static str,
    seed: u64,
    parameters: BTreeMap<&'static str, String>,
    good: f64,
    policies: &'a [SizedPolicy],
    remarks: &'a [String],
}

impl Sweep {
    /// Tries every size of the fleet.
    pub(super) fn over_replicas(&self, plan: &Plan, range: ReplicaRange) -> anyhow::Result<()> {
        let sizes = sizes(range);
        if !self.json {
            let (first, last) = (range.first, range.last);
            print(&header::text("simulate sweep", plan))?;
            print(&format!("  replicas: {first} to {last}\n  good: {}\n", self.good))?;
        }
        let jobs: Vec<(PolicyKind, usize)> =
            plan.policies.iter().flat_map(|it| sizes.iter().map(|size| (*it, *size))).collect();
        let bar = runs::progress();
        bar.set_message(format!("{} runs", jobs.len()));
        let done = runs::parallel(&jobs, |&(policy, size)| {
            runs::run(&resized(plan, size), policy, plan.seed, &bar).map(|it| (size, it.results))
        });
        bar.finish_and_clear();
        let done: Vec<(usize, Results)> = done.into_iter().collect::<anyhow::Result<_>>()?;
        let policies: Vec<SizedPolicy> =
            done.chunks(sizes.len()).map(|it| self.sized(it)).collect();
        let remarks = remarks(plan, &policies)?;
        if self.json {
            print(&output::json(&SizesDocument {
                version: header::VERSION,
                seed: plan.seed,
                parameters: header::parameters(plan),
                good: self.good,
                policies: &policies,
                remarks: &remarks,
            })?)?;
        } else {
            print(&format!("\n{}\n{}", size_table(&policies), said(&policies, &remarks)))?;
        }
        let Some(file) = &self.report else { return Ok(()) };
        let scale = plan.replay.rate_scale.get();
        let points = done
            .iter()
            .map(|(size, it)| SweepPoint { replicas: *size, ..SweepPoint::of(scale, it) });
        #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a few thousand")]
        let marks = policies.iter().filter_map(|it| Some((it.policy.clone(), it.knee? as f64)));
        // Far too small a fleet tells policies apart by how they fail: they are compared where the promise holds.
        let compared_at = policies.iter().filter_map(|it| it.knee).min().unwrap_or(range.last);
        let axis = SweepAxis {
            over: "replicas",
            knees: marks.collect(),
            good: Some(self.good),
            compared_at: Some(compared_at),
            remarks,
        };
        page::write(file, &resized(plan, compared_at), points.collect(), axis)
    }

    fn sized(&self, runs: &[(usize, Results)]) -> SizedPolicy {
        let bad = runs.iter().rposition(|(_, it)| it.good_share < self.good);
        let knee = runs.get(bad.map_or(0, |it| it + 1)).map(|it| it.0);
        let sizes = runs.iter().map(|(replicas, it)| SizedRun {
            replicas: *replicas,
            good_share: it.good_share,
            good_per_s: it.good_per_s,
            ttft_p50_s: it.ttft_s.p50,
            ttft_p99_s: it.ttft_s.p99,
            hit: it.hit,
            refused: it.refused,
            idle: it.replicas.iter().filter(|it| it.requests == 0).count(),
        });
        let policy = runs.first().map(|it| it.1.policy.clone()).unwrap_or_default();
        SizedPolicy { policy, knee, sizes: sizes.collect() }
    }
}

/// Lists the sizes that are tried, both ends among them.
fn sizes(range: ReplicaRange) -> Vec<usize> {
    let ReplicaRange { first, last } = range;
    let step = (last - first).div_ceil(SIZES_MAX - 1).max(1);
    let mut sizes: Vec<usize> = (first..=last).step_by(step).collect();
    if sizes.last() != Some(&last) {
        sizes.push(last);
    }
    sizes
}

/// The same plan with another number of replicas, in the same mixture.
fn resized(plan: &Plan, size: usize) -> Plan {
    let mut plan = plan.clone();
    let old = plan.settings.replicas.clone();
    plan.settings.replicas = old.iter().copied().cycle().take(size).collect();
    plan
}

fn size_table(policies: &[SizedPolicy]) -> comfy_table::Table {
    let mut heads = vec!["replicas".to_owned()];
    for it in policies {
        heads.extend([format!("{} good", it.policy), "TTFT p99 s".to_owned(), "hit".to_owned()]);
    }
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = table(&heads);
    let rows = policies.first().map_or(0, |it| it.sizes.len());
    for row in 0..rows {
        let mut cells = Vec::new();
        for it in policies {
            let run = &it.sizes[row];
            if cells.is_empty() {
                cells.push(run.replicas.to_string());
            }
            let mark = if it.knee == Some(run.replicas) { "knee ▸ " } else { "" };
            let good = format!("{mark}{}", share(run.good_share));
            cells.extend([good, digits(run.ttft_p99_s), share(run.hit)]);
        }
        table.add_row(cells);
    }
    right_align(table)
}

/// Says in words what the table shows.
fn said(policies: &[SizedPolicy], remarks: &[String]) -> String {
    let mut text = String::new();
    for it in policies {
        let fewest = it.sizes.first().map(|it| it.replicas);
        let line = match it.knee {
            Some(knee) if Some(knee) == fewest => {
                format!(
                    "{}: {knee} replicas, the fewest that were tried, keep the promise\n",
                    it.policy
                )
            }
            Some(knee) => format!("{}: {knee} replicas keep the promise\n", it.policy),
            None => format!("{}: no size that was tried keeps the promise\n", it.policy),
        };
        text.push_str(&line);
    }
    for it in remarks {
        text.push_str(it);
        text.push('\n');
    }
    text
}

/// Finds what makes a result an artefact of how it was asked for.
fn remarks(plan: &Plan, policies: &[SizedPolicy]) -> anyhow::Result<Vec<String>> {
    let mut remarks = Vec::new();
    if has_one_session(plan)? {
        remarks.push(
            "artefact: all requests have one session key, so that what keeps sessions together sends all to one \
             replica, however many there are"
                .to_owned(),
        );
    }
    for it in policies {
        if let Some(run) = it.sizes.iter().find(|it| 0 < it.idle) {
            remarks.push(format!(
                "artefact: under {}, {} of {} replicas got nothing; more of them show nothing",
                it.policy, run.idle, run.replicas
            ));
        }
    }
    Ok(remarks)
}

fn has_one_session(plan: &Plan) -> anyhow::Result<bool> {
    let mut workload = plan.workload(plan.seed)?;
    let mut sessions = BTreeSet::new();
    for looked_at in 0..LOOKED_AT_MAX {
        let Some(request) = workload.take()? else {
            return Ok(1 < looked_at && sessions.len() == 1);
        };
        sessions.insert(request.session);
        if 1 < sessions.len() {
            return Ok(false);
        }
        workload.on_end(request.arrival, request.ticket);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knee_at_the_smallest_size_is_said_to_be_one_of_what_was_tried() {
        let run = |replicas| SizedRun {
            replicas,
            good_share: 1.0,
            good_per_s: 1.0,
            ttft_p50_s: 0.1,
            ttft_p99_s: 0.2,
            hit: 0.0,
            refused: 0,
            idle: 0,
        };
        let of = |knee| SizedPolicy {
            policy: "priced".to_owned(),
            knee,
            sizes: vec![run(2), run(3), run(4)],
        };
        let said = said(&[of(Some(2)), of(Some(3)), of(None)], &["mind".to_owned()]);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "priced: 2 replicas, the fewest that were tried, keep the promise",
                "priced: 3 replicas keep the promise",
                "priced: no size that was tried keeps the promise",
                "mind"
            ]
        );
    }

    #[test]
    fn a_range_is_read_with_both_ends_and_thinned_where_it_is_long() {
        let range: ReplicaRange = "2..16".parse().unwrap();
        assert_eq!(sizes(range), (2..=16).collect::<Vec<_>>());
        assert_eq!("2..=16".parse(), Ok(range));
        let long = sizes("1..1000".parse().unwrap());
        assert!(
            long.len() <= SIZES_MAX + 1 && long.first() == Some(&1) && long.last() == Some(&1000)
        );
        for wrong in ["", "a", "5..2", "0..3", "2..", "1..99999"] {
            assert!(wrong.parse::<ReplicaRange>().unwrap_err().contains("2..16"), "{wrong}");
        }
    }
}
