//! The ladder of concurrencies: some clients ask without a pause, then twice as many, until twice
//! as many get no more done. Only the time in which all of them were busy counts: neither the first
//! round, which begins at one moment as no real load does, nor the last, in which clients leave one
//! by one.

use std::cell::{Cell, RefCell};

use cleave_core::cost::{Mix, Rung, still_grows};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::client::{Question, QuestionError};
use super::measure::{Bench, Halt};
use super::opening::Subject;
use crate::stream::{Answer, ms_between};

/// Lists the concurrencies, lowest first.
pub(super) fn concurrencies(clients_max: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1), |it| Some(it * 2)).take_while(move |it| *it <= clients_max)
}

/// Counts what climbing to the top would take.
pub(super) fn requests_in_all(clients_max: u32) -> u32 {
    concurrencies(clients_max).map(requests).sum()
}

/// Gives each client a first request, a last one, and between them one that counts, or several where
/// clients are few. Whole rounds, because clients that began together tend to end together.
fn requests(clients: u32) -> u32 {
    clients * (2 + (32 / clients).clamp(1, 4))
}

/// Says whether a higher rung would tell nothing new: twice in a row no growth to speak of.
pub(super) fn is_over(rungs: &[Rung]) -> bool {
    rungs
        .split_last()
        .is_some_and(|(_, before)| 2 <= before.len() && !still_grows(rungs) && !still_grows(before))
}

/// Measures one rung.
pub(super) async fn climb(bench: &mut Bench<'_>, mix: Mix, clients: u32) -> Result<Rung, Halt> {
    let total = requests(clients);
    bench.spend(total)?;
    let prompts = &mut bench.subject.prompts;
    let asks: Vec<Question> = (0..total)
        .map(|at| {
            let output_tokens = spread(mix.output_tokens, at);
            Question { prompt: prompts.write(mix.prompt_tokens), output_tokens }
        })
        .collect();
    let (next, answers) = (Cell::new(0), RefCell::new(Vec::new()));
    let Subject { client, model, dialect, .. } = &*bench.subject;
    let work = try_join_all((0..clients).map(|_| async {
        while let Some(ask) = asks.get(next.replace(next.get() + 1)) {
            let answer = client.ask(model, *dialect, ask).await?;
            answers.borrow_mut().push((Instant::now(), answer));
        }
        Ok::<(), QuestionError>(())
    }));
    bench.within_time(work).await?.map_err(|it| Halt::Broken(it.into_error()))?;
    let (mut ends, answers): (Vec<Instant>, Vec<Answer>) = answers.into_inner().into_iter().unzip();
    bench.note(&answers);
    ends.sort_unstable();
    Ok(Rung { concurrency: clients, requests_per_min: rate(&ends, clients) })
}

/// Varies a length from half of it to half as much again, evenly. Answers of one length would end, and
/// the next prompts begin, all at one time for ever: a convoy that no real load is.
fn spread(mean: u32, at: u32) -> u32 {
    /// A number without common factors, so that any few neighbours are far apart.
    const STEP: u64 = 0x9E37_79B9;
    let drawn = u64::from(at) * STEP % (1 << 32);
    let more = (u64::from(mean) * drawn) >> 32;
    (mean / 2 + u32::try_from(more).unwrap_or(mean)).max(1)
}

/// Counts the requests a minute while all clients were busy: from the end of as many requests as there
/// are clients until the last request was sent, which is when as many are left as there are clients.
fn rate(ends: &[Instant], clients: u32) -> f64 {
    let clients = usize::try_from(clients).unwrap_or(usize::MAX);
    let (first, last) = (clients - 1, ends.len() - clients - 1);
    let ms = ms_between(ends[first], ends[last]).max(1e-6);
    let per_min = f64::from(u32::try_from(last - first).unwrap_or(u32::MAX)) / ms * 60_000.0;
    // Tenths are all that a clock of milliseconds can tell.
    (per_min * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_time_when_all_are_busy_counts() {
        let start = Instant::now();
        let end = |second: u64| start + Duration::from_secs(second);
        // Two clients: slow first round, two a second, a slow end.
        let ends = [10, 10, 11, 11, 12, 12, 13, 13, 30, 30].map(end);
        assert!((rate(&ends, 2) - 120.0).abs() < 1e-6);
    }

    #[test]
    fn lengths_spread_evenly_around_their_mean() {
        let lengths: Vec<u32> = (0..1_000).map(|at| spread(128, at)).collect();
        assert!(lengths.iter().all(|it| (64..=192).contains(it)));
        let sum: u32 = lengths.iter().sum();
        assert!((126_000..=130_000).contains(&sum), "{sum}");
        assert_eq!(spread(1, 0), 1);
    }

    #[test]
    fn the_ladder_ends_after_two_rungs_without_growth() {
        let rungs = |rates: &[f64]| -> Vec<Rung> {
            let steps = concurrencies(256).zip(rates);
            steps.map(|(concurrency, &it)| Rung { concurrency, requests_per_min: it }).collect()
        };
        assert!(!is_over(&rungs(&[])) && !is_over(&rungs(&[1.0])) && !is_over(&rungs(&[1.0, 1.0])));
        assert!(!is_over(&rungs(&[1.0, 2.0, 2.1])));
        assert!(is_over(&rungs(&[1.0, 2.0, 2.1, 2.0])));
        assert_eq!(concurrencies(64).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
        assert!(requests_in_all(256) < 1_700);
    }
}
