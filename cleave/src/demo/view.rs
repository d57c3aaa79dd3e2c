//! The live table: a state in, text out. It never writes anywhere and never asks the time, so every
//! picture can be tested. Lines are at most 80 columns wide, and with the most replicas there can be
//! they are at most 24, so a plain terminal shows them all.

use std::time::Duration;

use super::fleet::Busy;
use super::tally::{Tallies, Tally};
use crate::style::Style;

const COLUMNS: usize = 79;
const BAR_CELLS: u32 = 12;
const HIT_CELLS: u32 = 6;

/// One moment of one phase.
#[derive(Debug)]
pub(super) struct DemoFrame<'a> {
    pub(super) title: &'a str,
    /// Whether people are still coming and nothing counts yet.
    pub(super) is_arriving: bool,
    pub(super) elapsed: Duration,
    pub(super) length: Duration,
    pub(super) busy: &'a [Busy],
    pub(super) tallies: &'a Tallies,
}

impl DemoFrame<'_> {
    /// Draws the table under its title.
    pub(super) fn draw(&self, style: Style) -> String {
        let note = if self.is_arriving { "warming up, " } else { "" };
        let time = format!("{note}{} s of {} s", self.elapsed.as_secs(), seconds_up(self.length));
        let room = COLUMNS.saturating_sub(self.title.chars().count());
        format!("{}{time:>room$}\n{}", style.bold(self.title), self.table(style))
    }

    /// Draws a line for each replica and one for all of them.
    pub(super) fn table(&self, style: Style) -> String {
        let header = format!(
            "{:<12}{:<17}{:>8}{:>8}{:>9}{:>14}{:>11}",
            "", "in flight", "waiting", "running", "requests", "cache hits", "TTFT p50"
        );
        let mut text = style.dim(header) + "\n";
        let bar_max = self.busy.iter().map(|it| it.in_flight).max().unwrap_or(0).max(BAR_CELLS);
        for (number, (busy, tally)) in self.busy.iter().zip(&self.tallies.replicas).enumerate() {
            let bar = bar(busy.in_flight, bar_max);
            text += &row(&format!("replica {number}"), &bar, *busy, tally, style);
        }
        text += &row("all", "", sum(self.busy), &self.tallies.total(), style);
        text
    }

    /// Says it in one line, for files.
    pub(super) fn line(&self) -> String {
        let (all, total) = (sum(self.busy), self.tallies.total());
        format!(
            "{:>4} s  in flight {:<3} waiting {:<3} requests {:<5} cache hits {:<4} TTFT p50 {}{}",
            self.elapsed.as_secs(),
            all.in_flight,
            all.waiting,
            total.requests,
            percent(total.hit_share()),
            milliseconds(total.ttft_ms(50)),
            if self.is_arriving { " (warming up)" } else { "" },
        )
    }
}

fn row(name: &str, bar: &str, busy: Busy, tally: &Tally, style: Style) -> String {
    let hits = tally.hit_share();
    let hit_bar = hits.map_or_else(String::new, share_bar);
    format!(
        "{name:<11}{:>4} {}{:>9}{:>8}{:>9}{:>7} {}{:>11}\n",
        busy.in_flight,
        style.cyan(format!("{bar:<12}")),
        busy.waiting,
        busy.running,
        tally.requests,
        percent(hits),
        style.green(format!("{hit_bar:<6}")),
        milliseconds(tally.ttft_ms(50)),
    )
}

/// Adds up what all replicas are busy with.
fn sum(busy: &[Busy]) -> Busy {
    busy.iter().fold(Busy::default(), |sum, it| Busy {
        in_flight: sum.in_flight + it.in_flight,
        waiting: sum.waiting + it.waiting,
        running: sum.running + it.running,
    })
}

/// Draws a count so that `max` fills the bar; a count above zero always shows.
fn bar(count: u32, max: u32) -> String {
    let cells = (count * BAR_CELLS).div_ceil(max.max(1));
    "█".repeat(usize::try_from(cells).unwrap_or(0))
}

fn share_bar(share: f64) -> String {
    let is_full = |cell: u32| f64::from(cell) + 0.5 <= share * f64::from(HIT_CELLS);
    (0..HIT_CELLS).map(|cell| if is_full(cell) { '█' } else { '░' }).collect()
}

fn seconds_up(time: Duration) -> u64 {
    time.as_secs() + u64::from(0 < time.subsec_nanos())
}

pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |it| format!("{:.0}%", it * 100.0))
}

pub(super) fn milliseconds(ms: Option<f64>) -> String {
    match ms {
        None => "–".to_owned(),
        Some(ms) if ms < 9.95 => format!("{ms:.1} ms"),
        Some(ms) => format!("{ms:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tally::{Sample, Turn};

    fn tallies(replicas: usize) -> Tallies {
        let mut tallies = Tallies::new(replicas);
        for (replica, cached_tokens, ms) in [(0, 900, 8), (0, 700, 12), (1, 100, 412)] {
            let ttft = Duration::from_millis(ms);
            let sample =
                Sample { replica, ttft, prompt_tokens: 1_000, cached_tokens, output_tokens: 80 };
            tallies.add(&sample, Turn::Later);
        }
        tallies
    }

    fn frame<'a>(busy: &'a [Busy], tallies: &'a Tallies) -> DemoFrame<'a> {
        let (elapsed, length) = (Duration::from_millis(12_900), Duration::from_millis(19_500));
        DemoFrame { title: "session", is_arriving: false, elapsed, length, busy, tallies }
    }

    #[test]
    fn a_frame_shows_every_replica_and_the_sum() {
        let busy = [
            Busy { in_flight: 4, waiting: 0, running: 4 },
            Busy { in_flight: 24, waiting: 9, running: 15 },
        ];
        let text = frame(&busy, &tallies(2)).draw(Style::Plain);
        let expected = "\
session                                                            12 s of 20 s
            in flight         waiting running requests    cache hits   TTFT p50
replica 0     4 ██                  0       4        2    80% █████░     8.0 ms
replica 1    24 ████████████        9      15        1    10% █░░░░░     412 ms
all          28                     9      19        3    57% ███░░░      12 ms
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_most_replicas_fit_into_80_columns_and_24_lines() {
        let busy = [Busy { in_flight: 64, waiting: 32, running: 32 }; 16];
        let text = frame(&busy, &tallies(16)).draw(Style::Plain);
        assert!(text.lines().count() < 24);
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let (busy, tallies) = ([Busy::default(); 2], tallies(2));
        let frame = frame(&busy, &tallies);
        let mut text = frame.draw(Style::Coloured);
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[36m"] {
            text = text.replace(code, "");
        }
        assert_eq!(text, frame.draw(Style::Plain));
    }

    #[test]
    fn a_frame_says_that_nothing_counts_yet() {
        let (busy, tallies) = ([Busy::default(); 2], Tallies::new(2));
        let frame = DemoFrame { is_arriving: true, ..frame(&busy, &tallies) };
        let text = frame.draw(Style::Plain);
        assert!(text.lines().next().is_some_and(|it| it.ends_with(" warming up, 12 s of 20 s")));
        assert!(frame.line().ends_with("(warming up)"));
    }

    #[test]
    fn a_line_says_it_all_for_files() {
        let busy = [Busy { in_flight: 4, waiting: 1, running: 3 }; 2];
        let line = frame(&busy, &tallies(2)).line();
        assert!(line.chars().count() < 80);
        let expected =
            "  12 s  in flight 8   waiting 2   requests 3     cache hits 57%  TTFT p50 12 ms";
        assert_eq!(line, expected);
    }
}
