//! What a router recorded (`core/recording` has the form): how its pools stood, and every request with what became
//! of it. A recording is read whole, because its lines are in the order in which requests ended and it is
//! played in the order in which they came; without text, a request takes some two hundred bytes.
//!
//! A file that breaks off, or is damaged somewhere, is read up to there, and what is missing is told.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleave_core::domain::{Moment, float, whole_u32};
use cleave_core::recording::{FileHead, NumberedRun, PoolLine, RequestLine};
use indexmap::IndexSet;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::lines::{Lines, TraceError};
use super::prompt::{Prompt, Run, Runs, mix, named};
use super::readers::lone_request;
use super::request::{Class, Request, Tenant};

/// No prompt and no answer is longer; a file that says so is damaged.
const TOKENS_MAX: u32 = 1 << 24;
const BLOCKS_MAX: u32 = 1 << 18;
/// What a token has where the recording does not tell, in bytes.
const BYTES_PER_TOKEN: f64 = 4.0;
/// An answer of which nothing is known, where nothing is known of any.
const OUTPUT_TOKENS: f64 = 128.0;

/// How a request ends that found no room in time.
const FOR_ROOM: [&str; 6] = [
    "line_full",
    "deadline_unmeetable",
    "deadline_passed",
    "waited_out",
    "sessions_full",
    "cancelled",
];

/// Keeps what recordings number apart from all else.
const SPACE: u64 = named("recorded blocks");
const ALONE: u64 = named("recorded prompts without blocks");

/// The key that tells a line about a pool from one about a request.
#[derive(Deserialize)]
struct Kind {
    name: Option<IgnoredAny>,
}

/// A request and the recorder that saw it.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// When it came, in microseconds since 1970.
    pub at_us: u64,
    pub line: RequestLine,
    recorder: u64,
}

/// All that was recorded, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// How pools stood, with the moment and the recorder.
    told: Vec<(u64, u64, PoolLine)>,
    pub requests: Vec<RecordedRequest>,
    /// What could not be read, and where.
    pub damage: Vec<String>,
    pub files: usize,
}

impl Recording {
    /// Reads files, of one recorder or several.
    pub fn open<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<Self, TraceError> {
        let mut all = Self::default();
        for file in files {
            all.add(Lines::open(file)?)?;
        }
        all.settle();
        Ok(all)
    }

    pub(super) fn of_file(lines: Lines) -> Result<Self, TraceError> {
        let mut all = Self::default();
        all.add(lines)?;
        all.settle();
        Ok(all)
    }

    /// Puts all in the order of time, and numbers pools by their names: each recorder has numbers of its own.
    fn settle(&mut self) {
        let mut numbers = BTreeMap::<(u64, u32), u32>::new();
        let mut names = IndexSet::<String>::new();
        for (_, recorder, line) in &mut self.told {
            let (place, _) = names.insert_full(line.name.clone());
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            numbers.insert((*recorder, line.pool), place);
            line.pool = place;
        }
        for it in &mut self.requests {
            let place = numbers.get(&(it.recorder, it.line.pool));
            it.line.pool = place.copied().unwrap_or(u32::MAX);
        }
        self.requests.sort_by_key(|it| it.at_us);
        self.told.sort_by_key(|it| it.0);
    }

    /// Lists how the pools stood, with the moment in microseconds since 1970, in the order of time.
    pub fn pools(&self) -> impl DoubleEndedIterator<Item = (u64, &PoolLine)> {
        self.told.iter().map(|it| (it.0, &it.2))
    }

    /// Adds what a file has. Its first line must be sound; after that, what is sound is taken.
    fn add(&mut self, mut lines: Lines) -> Result<(), TraceError> {
        lines.peek()?;
        let head: FileHead = lines.next_json()?.ok_or_else(|| lines.complain("no head"))?;
        head.check().map_err(|problem| lines.complain(problem))?;
        self.files += 1;
        let recorder = named(&head.recorder);
        let began_us = head.began_ms.saturating_mul(1_000);
        loop {
            match self.add_line(&mut lines, recorder, began_us) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(problem) => {
                    let after = lines.number().saturating_sub(1);
                    let cause = std::error::Error::source(&problem);
                    let cause = cause.map_or_else(String::new, |it| format!(": {it}"));
                    self.damage.push(format!(
                        "{problem}{cause}; the {after} lines before it are read, the rest of the file is not"
                    ));
                    return Ok(());
                }
            }
        }
    }

    fn add_line(
        &mut self,
        lines: &mut Lines,
        recorder: u64,
        began_us: u64,
    ) -> Result<bool, TraceError> {
        if !lines.advance()? {
            return Ok(false);
        }
        let kind: Kind = lines.json()?;
        if kind.name.is_some() {
            let pool: PoolLine = lines.json()?;
            self.told.push((began_us.saturating_add(pool.at_us), recorder, pool));
            return Ok(true);
        }
        let line: RequestLine = lines.json()?;
        let tokens = [line.input, line.output, line.cached].into_iter().flatten().max();
        if tokens.is_some_and(|it| TOKENS_MAX < it) {
            return Err(lines.complain("more tokens than a request can have"));
        }
        let blocks = line.blocks.iter().try_fold(0_u32, |sum, it| sum.checked_add(it.1));
        if blocks.is_none_or(|it| BLOCKS_MAX < it) {
            return Err(lines.complain("more blocks than a prompt can have"));
        }
        let at_us = began_us.saturating_add(line.t);
        self.requests.push(RecordedRequest { at_us, line, recorder });
        Ok(true)
    }

    /// Keeps the requests that `is_kept` says, and all that is known of pools.
    #[must_use]
    pub fn only(&self, is_kept: impl Fn(&RecordedRequest) -> bool) -> Self {
        let requests = self.requests.iter().filter(|it| is_kept(it)).cloned().collect();
        let (told, damage) = (self.told.clone(), self.damage.clone());
        Self { requests, told, damage, files: self.files }
    }

    /// Makes the workload: all that came and was worth a replica's time, from the moment `from_us` on.
    pub fn requests_from(&self, from_us: u64) -> Vec<Request> {
        let bytes_per_token = self.bytes_per_token();
        let mean_output = self.mean_output();
        let mut tenants = IndexSet::<&str>::new();
        let mut ends = FxHashMap::<u64, u64>::default();
        let mut made = Vec::with_capacity(self.requests.len());
        for (number, it) in self.requests.iter().enumerate().filter(|it| it.1.is_work()) {
            let line = &it.line;
            let at = Moment::ZERO + Duration::from_micros(it.at_us.saturating_sub(from_us));
            let tenant = tenants.insert_full(&line.tenant).0;
            let session = mix(it.recorder, named(&line.session));
            let alone = mix(ALONE, u64::try_from(number).unwrap_or(u64::MAX));
            let prompt = it.prompt(bytes_per_token, alone);
            let output = line.output.unwrap_or(mean_output).max(1);
            let think = ends.insert(session, it.at_us.saturating_add(line.end));
            let think = think.map(|end| Duration::from_micros(it.at_us.saturating_sub(end)));
            made.push(Request {
                tenant: Tenant(u32::try_from(tenant).unwrap_or(u32::MAX)),
                class: Class(line.class),
                deadline: line.due_us.map(Duration::from_micros),
                think,
                ..lone_request(at, session, prompt, output)
            });
        }
        join_turns(&mut made);
        made
    }

    /// Makes the workload of all that was recorded; of a damaged recording there is none.
    pub(super) fn whole(&self) -> Result<Vec<Request>, TraceError> {
        match self.damage.first() {
            Some(what) => Err(TraceError::Damaged { what: what.clone() }),
            None => Ok(self.requests_from(self.requests.first().map_or(0, |it| it.at_us))),
        }
    }

    /// Says what a token has in bytes, as far as engines told.
    pub fn bytes_per_token(&self) -> f64 {
        let told = self.requests.iter().filter_map(|it| Some((it.line.bytes, it.line.input?)));
        let (bytes, tokens) = told.fold((0, 0), |(bytes, tokens), (of, in_them)| {
            (bytes + u64::from(of), tokens + u64::from(in_them))
        });
        if bytes == 0 || tokens == 0 { BYTES_PER_TOKEN } else { float(bytes) / float(tokens) }
    }

    fn mean_output(&self) -> u32 {
        let (mut sum, mut count) = (0, 0);
        for output in self.requests.iter().filter_map(|it| it.line.output) {
            sum += u64::from(output);
            count += 1;
        }
        whole_u32(if count == 0 { OUTPUT_TOKENS } else { float(sum) / float(count) })
    }
}

impl RecordedRequest {
    /// Tells whether it cost a replica something, or would have with more room. What a contract refused, or what
    /// no replica could take whatever it had to do, another fleet would not have served either.
    pub fn is_work(&self) -> bool {
        let is_answered = self.line.status < 400;
        if self.line.replica.is_some() { is_answered } else { FOR_ROOM.contains(&&*self.line.how) }
    }

    fn prompt(&self, bytes_per_token: f64, alone: u64) -> Prompt {
        let line = &self.line;
        let guess = || whole_u32(f64::from(line.bytes) / bytes_per_token);
        let tokens = line.input.unwrap_or_else(guess).clamp(1, TOKENS_MAX);
        let block = whole_u32(f64::from(line.block) / bytes_per_token);
        let Some(block) = NonZeroU32::new(block).filter(|_| !line.blocks.is_empty()) else {
            return Prompt::unshared(alone, tokens, super::readers::UNSHARED_BLOCK_TOKENS);
        };
        let mut runs = Runs::default();
        for run in &line.blocks {
            push(&mut runs, mix(SPACE, self.recorder), *run);
        }
        runs.prompt(tokens, block)
    }
}

/// Adds a run of numbers, which are larger than those of a space.
fn push(runs: &mut Runs, space: u64, NumberedRun(first, count): NumberedRun) {
    let end = first.saturating_add(count.into());
    let mut at = first;
    while at < end {
        let (high, low) = (at >> 32, at & 0xFFFF_FFFF);
        let border = (high + 1).checked_mul(1 << 32);
        let until = border.map_or(end, |it| end.min(it));
        let (low, count) = (u32::try_from(low).unwrap_or(0), until - at);
        let count =
            u32::try_from(count).unwrap_or(u32::MAX).min((u32::MAX - low).saturating_add(1));
        runs.push(Run { space: mix(space, high), first: low, count });
        at = until;
    }
}

/// Tells each request of a session what the next one begins with: its own prompt and the answer to it.
fn join_turns(requests: &mut [Request]) {
    let mut later = BTreeMap::<u64, Arc<Prompt>>::new();
    for request in requests.iter_mut().rev() {
        let own = Arc::new(request.prompt.clone());
        request.next = later.insert(request.session, own);
    }
}

#[cfg(test)]
mod tests;
