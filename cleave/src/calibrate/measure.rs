//! Sends the grid to a replica and turns what the client saw into samples for the fit. It stops
//! when told, when time or requests are spent, or when other clients are served, and keeps what it
//! has: a sample is whole or it is not there.

use std::time::Duration;

use cleave_core::cost::{Mix, Rung, StepSample, StepWork};
use futures_util::future::try_join_all;
use indicatif::ProgressBar;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::client::{Question, QuestionError};
use super::engine_metrics::EngineCounters;
use super::grid::{Cell, GridSize, plan};
use super::ladder;
use super::opening::{Subject, whole};
use crate::stream::{Answer, ms_between};

const REQUESTS_MAX: u32 = 5_000;
/// Fewer intervals between tokens say too little, and so does a smaller part of an answer: pieces that
/// were held up somewhere and came all at once tell nothing about the engine.
const INTERVALS_MIN: usize = 4;
const PART_OF_ANSWER_MIN: usize = 4;
/// Tokens beyond ours that the engine's own count may have: a share of ours, and at least a
/// minimum.
const FOREIGN_SHARE: f64 = 0.02;
const FOREIGN_TOKENS: f64 = 32.0;

/// Why measuring ended before the plan did.
#[derive(Debug)]
pub(super) enum Halt {
    Interrupted,
    OutOfTime,
    OutOfRequests,
    /// The engine wrote this many tokens for other clients.
    Foreign(f64),
    Broken(anyhow::Error),
}

/// A cell and what came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) cell: Cell,
    pub(super) sample: StepSample,
}

/// All that was measured.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) cells: Vec<Measured>,
    pub(super) mix: Mix,
    pub(super) rungs: Vec<Rung>,
    /// What a reader of the numbers should know.
    pub(super) notes: Vec<String>,
    pub(super) halt: Option<Halt>,
}

/// A measurement under way.
pub(super) struct Bench<'a> {
    pub(super) subject: &'a mut Subject,
    pub(super) pace: GridSize,
    pub(super) force: bool,
    pub(super) stop: &'a CancellationToken,
    pub(super) progress: &'a ProgressBar,
    deadline: Instant,
    requests: u32,
    output_tokens: f64,
    caches_prefixes: bool,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        subject: &'a mut Subject,
        pace: GridSize,
        force: bool,
        stop: &'a CancellationToken,
        progress: &'a ProgressBar,
    ) -> Self {
        let time = match pace {
            GridSize::Full => Duration::from_secs(540),
            GridSize::Quick => Duration::from_secs(110),
        };
        let deadline = Instant::now() + time;
        Self {
            subject,
            pace,
            force,
            stop,
            progress,
            deadline,
            requests: 0,
            output_tokens: 0.0,
            caches_prefixes: true,
        }
    }

    /// Measures all there is, as far as it gets.
    pub(super) async fn run(mut self) -> Findings {
        let mix = self.pace.mix(&self.subject.limits);
        let (cells, rungs, notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut findings = Findings { cells, mix, rungs, notes, halt: None };
        let plan = plan(self.pace, &self.subject.limits);
        let clients_max = self.pace.clients_max();
        let planned: u32 = plan.iter().map(|it| it.requests() * self.pace.repeats(*it)).sum();
        self.progress.set_length(u64::from(planned + ladder::requests_in_all(clients_max)));
        // The ladder needs its share of the time, however slow the grid turns out to be.
        let whole = self.deadline;
        self.deadline -= (whole - Instant::now()) * 2 / 5;
        let mut halt = self.grid(&plan, &mut findings).await.err();
        self.deadline = whole;
        if matches!(halt, Some(Halt::OutOfTime)) {
            findings.notes.push("the replica is too slow for the whole grid".to_owned());
            halt = None;
        }
        if halt.is_none() {
            halt = self.ladder(clients_max, &mut findings).await.err();
        }
        self.progress.finish_and_clear();
        findings.halt = halt;
        findings
    }

    async fn grid(&mut self, plan: &[Cell], findings: &mut Findings) -> Result<(), Halt> {
        for &cell in plan {
            self.progress.set_message(cell.to_string());
            match self.measure(cell).await? {
                Ok(sample) => findings.cells.push(Measured { cell, sample }),
                Err(reason) => findings.notes.push(format!("left out {cell}: {reason}")),
            }
            self.look_for_others().await?;
        }
        Ok(())
    }

    async fn ladder(&mut self, clients_max: u32, findings: &mut Findings) -> Result<(), Halt> {
        for clients in ladder::concurrencies(clients_max) {
            self.progress.set_message(format!("{clients} clients"));
            match ladder::climb(self, findings.mix, clients).await {
                Ok(rung) => findings.rungs.push(rung),
                Err(Halt::Broken(error)) if !findings.rungs.is_empty() => {
                    findings.notes.push(format!("{clients} clients were too many: {error:#}"));
                    return Ok(());
                }
                Err(halt) => return Err(halt),
            }
            self.look_for_others().await?;
            if ladder::is_over(&findings.rungs) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Measures one cell as often as the pace asks for and returns the median, or why there is none.
    async fn measure(&mut self, cell: Cell) -> Result<Result<StepSample, String>, Halt> {
        if matches!(cell, Cell::Prompt { cached: 1.., .. }) && !self.caches_prefixes {
            return Ok(Err("the replica reports no cached prefix".to_owned()));
        }
        let prefix = match cell {
            Cell::Prompt { cached, .. } if 0 < cached => self.prime(cached).await?,
            Cell::Prompt { .. } | Cell::Batch { .. } => Ok(String::new()),
        };
        let prefix = match prefix {
            Ok(prefix) => prefix,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut samples = Vec::new();
        for _ in 0..self.pace.repeats(cell) {
            let sample = match cell {
                Cell::Prompt { new, .. } => self.prompt(&prefix, new).await?,
                Cell::Batch { answers, context, output } => {
                    self.batch(answers, context, output).await?
                }
            };
            match sample {
                Ok(sample) => samples.push(sample),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        samples.sort_by(|one, other| one.ms.total_cmp(&other.ms));
        Ok(Ok(samples[samples.len() / 2]))
    }

    /// Puts a prefix into the replica's cache.
    async fn prime(&mut self, tokens: u32) -> Result<Result<String, String>, Halt> {
        let prefix = self.subject.prompts.write(tokens);
        let ask = Question { prompt: format!("{prefix} first"), output_tokens: 1 };
        Ok(self.ask_all(vec![ask]).await?.map(|_| prefix))
    }

    /// Measures how long the first token of one prompt takes.
    async fn prompt(&mut self, prefix: &str, new: u32) -> Result<Result<StepSample, String>, Halt> {
        let before = if prefix.is_empty() { None } else { self.hit_tokens().await? };
        let fresh = self.subject.prompts.write(new);
        let prompt = if prefix.is_empty() { fresh } else { format!("{prefix} {fresh}") };
        let answer = match self.ask_all(vec![Question { prompt, output_tokens: 1 }]).await? {
            Ok(answers) => answers.into_iter().next().expect("one was asked for"),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let cached = match answer.cached_tokens {
            Some(cached) => cached,
            None if prefix.is_empty() => 0,
            None => match (before, self.hit_tokens().await?) {
                (Some(before), Some(after)) => whole(after - before),
                _ => 0,
            },
        };
        if !prefix.is_empty() && cached == 0 {
            self.caches_prefixes = false;
            return Ok(Err("the replica reports no cached prefix".to_owned()));
        }
        let cached = cached.min(answer.prompt_tokens.saturating_sub(1));
        let mut work = StepWork::default();
        work.add(answer.prompt_tokens - cached, cached);
        Ok(Ok(StepSample { work, answers: 1.0, ms: answer.ttft_ms() }))
    }

    async fn hit_tokens(&self) -> Result<Option<f64>, Halt> {
        let report = EngineCounters::fetch(&self.subject.client).await.map_err(Halt::Broken)?;
        Ok(report.hit_tokens)
    }

    /// Measures how long a step takes that writes one token for each of `answers` answers.
    async fn batch(
        &mut self,
        answers: u32,
        context: u32,
        output: u32,
    ) -> Result<Result<StepSample, String>, Halt> {
        let prompts = &mut self.subject.prompts;
        let asks = (0..answers)
            .map(|_| Question { prompt: prompts.write(context), output_tokens: output })
            .collect();
        Ok(self.ask_all(asks).await?.and_then(|answers| {
            read_batch(&answers).ok_or_else(|| "the answers did not run side by side".to_owned())
        }))
    }

    /// Sends requests at once and waits for all answers; a refusal of any is a reason in words.
    pub(super) async fn ask_all(
        &mut self,
        asks: Vec<Question>,
    ) -> Result<Result<Vec<Answer>, String>, Halt> {
        self.spend(u32::try_from(asks.len()).unwrap_or(u32::MAX))?;
        let Subject { client, model, dialect, .. } = &*self.subject;
        let answers = try_join_all(asks.iter().map(|ask| client.ask(model, *dialect, ask)));
        match self.within_time(answers).await? {
            Ok(answers) => {
                self.note(&answers);
                Ok(Ok(answers))
            }
            Err(QuestionError::Refused { status, words }) => Ok(Err(format!("{status} {words}"))),
            Err(QuestionError::Broken(error)) => Err(Halt::Broken(error)),
        }
    }

    /// Waits for something unless it is time to stop.
    pub(super) async fn within_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Halt> {
        tokio::select! {
            () = self.stop.cancelled() => Err(Halt::Interrupted),
            () = sleep_until(self.deadline) => Err(Halt::OutOfTime),
            done = work => Ok(done),
        }
    }

    /// Books requests before they are sent.
    pub(super) fn spend(&mut self, requests: u32) -> Result<(), Halt> {
        self.requests = self.requests.saturating_add(requests);
        self.progress.inc(u64::from(requests));
        if self.requests <= REQUESTS_MAX { Ok(()) } else { Err(Halt::OutOfRequests) }
    }

    /// Books what was written for us.
    pub(super) fn note(&mut self, answers: &[Answer]) {
        self.output_tokens += answers.iter().map(|it| f64::from(it.output_tokens)).sum::<f64>();
    }

    /// Compares what the engine says it wrote with what it wrote for us.
    async fn look_for_others(&self) -> Result<(), Halt> {
        let report = EngineCounters::fetch(&self.subject.client).await.map_err(Halt::Broken)?;
        let (Some(before), Some(now)) =
            (self.subject.report.generated_tokens, report.generated_tokens)
        else {
            return Ok(());
        };
        let foreign = now - before - self.output_tokens;
        let allowed = f64::max(FOREIGN_TOKENS, FOREIGN_SHARE * self.output_tokens);
        if allowed < foreign && !self.force { Err(Halt::Foreign(foreign)) } else { Ok(()) }
    }
}

/// Reads the step time off answers that were written side by side: between the moment when the last of
/// them had begun and the moment when the first of them ended. Nothing when there is no such time.
fn read_batch(answers: &[Answer]) -> Option<StepSample> {
    let from = answers.iter().map(|it| it.pieces_at[0]).max()?;
    let to = answers.iter().filter_map(|it| it.pieces_at.last().copied()).min()?;
    let mut work = StepWork::default();
    let mut gaps_ms = Vec::new();
    for answer in answers {
        let first = answer.pieces_at.partition_point(|at| *at < from);
        let last = answer.pieces_at.partition_point(|at| *at <= to).checked_sub(1)?;
        let enough = INTERVALS_MIN.max(answer.pieces_at.len() / PART_OF_ANSWER_MIN);
        let intervals = last.checked_sub(first).filter(|it| enough <= *it)?;
        let tokens = to_f64(intervals) * answer.tokens_per_piece();
        gaps_ms.push(ms_between(answer.pieces_at[first], answer.pieces_at[last]) / tokens);
        let written = to_f64(first + last) / 2.0 * answer.tokens_per_piece();
        work.new_tokens += 1.0;
        let context = f64::from(answer.prompt_tokens) + written;
        work.context_tokens += context;
        work.attention_pairs += context + 0.5;
    }
    gaps_ms.sort_by(f64::total_cmp);
    let ms = gaps_ms[gaps_ms.len() / 2];
    (0.0 < ms && ms.is_finite()).then_some(StepSample { work, answers: 0.0, ms })
}

fn to_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer whose pieces come every `gap_ms` from `from_ms` on.
    fn answer(zero: Instant, from_ms: u64, gap_ms: u64, pieces: u32, tokens: u32) -> Answer {
        let at = |piece: u32| {
            zero + Duration::from_millis(from_ms) + piece * Duration::from_millis(gap_ms)
        };
        Answer {
            text: String::new(),
            sent_at: zero,
            pieces_at: (0..pieces).map(at).collect(),
            prompt_tokens: 100,
            cached_tokens: None,
            output_tokens: tokens,
        }
    }

    #[test]
    fn a_batch_is_read_where_all_answers_run() {
        let zero = Instant::now();
        let answers = [answer(zero, 0, 10, 41, 41), answer(zero, 200, 10, 41, 41)];
        let sample = read_batch(&answers).unwrap();
        assert!((sample.ms - 10.0).abs() < 1e-6, "{sample:?}");
        // The window is 200 to 400 ms: pieces 20 to 40 of the first, 0 to 20 of the second.
        assert!((sample.work.new_tokens - 2.0).abs() < 1e-9);
        assert!((sample.work.context_tokens - (130.0 + 110.0)).abs() < 1e-6, "{sample:?}");
    }

    #[test]
    fn pieces_of_several_tokens_count_as_many() {
        let sample = read_batch(&[answer(Instant::now(), 0, 30, 21, 61)]).unwrap();
        assert!((sample.ms - 10.0).abs() < 1e-6, "{sample:?}");
    }

    #[test]
    fn answers_one_after_another_are_no_batch() {
        let zero = Instant::now();
        assert_eq!(read_batch(&[answer(zero, 0, 10, 20, 20), answer(zero, 500, 10, 20, 20)]), None);
        assert_eq!(read_batch(&[answer(zero, 0, 10, 3, 3)]), None);
    }
}
