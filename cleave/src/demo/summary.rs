//! Both phases side by side: measurements in, text out.

use std::time::Duration;

use cleave_core::brain::TtftError;
use cleave_core::policy::PolicyKind;
use comfy_table::{CellAlignment, Table, presets};

use super::tally::{Tallies, Tally, to_f64};
use super::view::{milliseconds, percent};

/// What came of one phase.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) policy: PolicyKind,
    pub(super) elapsed: Duration,
    pub(super) tallies: Tallies,
    /// How well the router predicted first tokens when it chose a replica.
    pub(super) ttft_error: TtftError,
}

/// One line of the comparison: a figure of every phase, and how it is written.
struct Figure {
    name: &'static str,
    of: fn(&Outcome, &Tally) -> Option<f64>,
    write: fn(Option<f64>) -> String,
    /// Whether a factor between the phases says anything.
    has_factor: bool,
}

const FIGURES: [Figure; 12] = [
    figure("time to first token, p50", |_, total| total.ttft_ms(50), milliseconds, true),
    figure("time to first token, p90", |_, total| total.ttft_ms(90), milliseconds, true),
    figure("time to first token, p99", |_, total| total.ttft_ms(99), milliseconds, true),
    figure("the same after the first turn, p99", |_, it| it.later_ttft_ms(99), milliseconds, true),
    figure("first token predicted within, p50", |it, _| predicted_ms(it, 0.5), milliseconds, false),
    figure("first token predicted within, p90", |it, _| predicted_ms(it, 0.9), milliseconds, false),
    figure("prefix cache hit rate", |_, total| total.hit_share(), percent, true),
    figure("prompt tokens computed per request", prefilled_per_request, whole, true),
    figure("output tokens per second", output_per_second, whole, true),
    figure("requests", |_, total| Some(to_f64(total.requests)), whole, true),
    figure("errors", |outcome, _| Some(to_f64(outcome.tallies.errors)), whole, false),
    figure("work per replica, max / mean", |it, _| it.tallies.work_max_over_mean(), ratio, false),
];

const fn figure(
    name: &'static str,
    of: fn(&Outcome, &Tally) -> Option<f64>,
    write: fn(Option<f64>) -> String,
    has_factor: bool,
) -> Figure {
    Figure { name, of, write, has_factor }
}

/// Writes the comparison of whatever phases there were.
pub(super) fn compare(outcomes: &[Outcome]) -> String {
    let totals: Vec<Tally> = outcomes.iter().map(|it| it.tallies.total()).collect();
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    let policies = outcomes.iter().map(|it| it.policy.to_string());
    let mut header: Vec<String> = std::iter::once(String::new()).chain(policies).collect();
    if outcomes.len() == 2 {
        header.push("change".to_owned());
    }
    table.set_header(header);
    for it in &FIGURES {
        let found: Vec<Option<f64>> =
            outcomes.iter().zip(&totals).map(|(outcome, total)| (it.of)(outcome, total)).collect();
        let mut row = vec![it.name.to_owned()];
        row.extend(found.iter().map(|figure| (it.write)(*figure)));
        if let [before, after] = found[..] {
            row.push(if it.has_factor { factor(before, after) } else { String::new() });
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let errors = outcomes.iter().filter_map(|it| {
        let error = it.tallies.first_error.as_ref()?;
        Some(format!(
            "
first error under {}: {error}",
            it.policy
        ))
    });
    std::iter::once(table.to_string()).chain(errors).collect()
}

fn predicted_ms(outcome: &Outcome, share: f64) -> Option<f64> {
    (0 < outcome.ttft_error.count()).then(|| outcome.ttft_error.error_ms(share))
}

fn prefilled_per_request(_: &Outcome, total: &Tally) -> Option<f64> {
    (0 < total.requests).then(|| to_f64(total.prefilled_tokens()) / to_f64(total.requests))
}

fn output_per_second(outcome: &Outcome, total: &Tally) -> Option<f64> {
    let seconds = outcome.elapsed.as_secs_f64();
    (0.0 < seconds).then(|| to_f64(total.output_tokens) / seconds)
}

/// Writes by what `before` must be multiplied or divided to become `after`.
fn factor(before: Option<f64>, after: Option<f64>) -> String {
    match (before, after) {
        (Some(before), Some(after)) if 0.0 < before && 0.0 < after => {
            let factor = after / before;
            if 1.0 <= factor {
                format!("× {factor:.2}")
            } else {
                format!("÷ {:.2}", 1.0 / factor)
            }
        }
        (_, _) => String::new(),
    }
}

fn whole(figure: Option<f64>) -> String {
    figure.map_or_else(|| "–".to_owned(), |it| format!("{it:.0}"))
}

fn ratio(figure: Option<f64>) -> String {
    figure.map_or_else(|| "–".to_owned(), |it| format!("{it:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tally::{Sample, Turn};

    fn outcome(policy: PolicyKind, cached_tokens: u32, ttft_ms: u64) -> Outcome {
        let mut tallies = Tallies::new(2);
        let ttft = Duration::from_millis(ttft_ms);
        for replica in [0, 0, 1] {
            let sample =
                Sample { replica, ttft, prompt_tokens: 1_000, cached_tokens, output_tokens: 100 };
            tallies.add(&sample, if replica == 0 { Turn::First } else { Turn::Later });
        }
        let (elapsed, ttft_error) = (Duration::from_secs(2), TtftError::default());
        Outcome { policy, elapsed, tallies, ttft_error }
    }

    #[test]
    fn two_phases_stand_side_by_side() {
        let text = compare(&[
            outcome(PolicyKind::ROUND_ROBIN, 200, 400),
            outcome(PolicyKind::SESSION, 800, 25),
        ]);
        let expected = "\
┌────────────────────────────────────┬─────────────┬─────────┬─────────┐
│                                    ┆ round_robin ┆ session ┆  change │
╞════════════════════════════════════╪═════════════╪═════════╪═════════╡
│ time to first token, p50           ┆      400 ms ┆   25 ms ┆ ÷ 16.00 │
│ time to first token, p90           ┆      400 ms ┆   25 ms ┆ ÷ 16.00 │
│ time to first token, p99           ┆      400 ms ┆   25 ms ┆ ÷ 16.00 │
│ the same after the first turn, p99 ┆      400 ms ┆   25 ms ┆ ÷ 16.00 │
│ first token predicted within, p50  ┆           – ┆       – ┆         │
│ first token predicted within, p90  ┆           – ┆       – ┆         │
│ prefix cache hit rate              ┆         20% ┆     80% ┆  × 4.00 │
│ prompt tokens computed per request ┆         800 ┆     200 ┆  ÷ 4.00 │
│ output tokens per second           ┆         150 ┆     150 ┆  × 1.00 │
│ requests                           ┆           3 ┆       3 ┆  × 1.00 │
│ errors                             ┆           0 ┆       0 ┆         │
│ work per replica, max / mean       ┆        1.33 ┆    1.33 ┆         │
└────────────────────────────────────┴─────────────┴─────────┴─────────┘";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_run_that_was_cut_short_shows_what_it_has() {
        let nothing = Outcome {
            policy: PolicyKind::ROUND_ROBIN,
            elapsed: Duration::ZERO,
            tallies: Tallies::new(2),
            ttft_error: TtftError::default(),
        };
        let text = compare(&[nothing]);
        assert!(text.contains("round_robin") && !text.contains("change"), "{text}");
        assert!(text.contains('–') && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn the_first_error_is_told() {
        let mut outcome = outcome(PolicyKind::SESSION, 0, 1);
        outcome.tallies.fail(&anyhow::anyhow!("the stream ended"));
        let text = compare(&[outcome]);
        assert!(text.ends_with("first error under session: the stream ended"));
    }
}
