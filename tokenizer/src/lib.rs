//! How many tokens has this prompt, counted by the tokenizer that its engine runs? One thread, a short line of
//! prompts before it, and what it has counted. Counting is off the hot path: a decision waits a few milliseconds
//! at most. What was counted is remembered by the blocks it ends with, so of a later turn only what is new is
//! counted, which is nearly always in time.
//!
//! A crate of its own, because the library weighs as much as all of Cleave: it is built and tested with the
//! workspace, and is part of the product only in builds with the feature `tokenizer`.

mod beginnings;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use beginnings::Beginnings;

/// How long a decision waits for a count. A prompt of a thousand tokens takes about a millisecond.
const WAIT: Duration = Duration::from_millis(3);
/// Prompts that may stand in line; beyond it they are not counted.
const LINE_MAX: usize = 64;
/// A text that is longer is not counted: it would hold up the others for too long.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// Why a prompt has no count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncounted {
    /// It will be known, but not in time for this decision.
    Late,
    /// The counter is busy, or the prompt too long.
    Skipped,
}

/// One tokenizer and its thread, which ends with the last clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    path: PathBuf,
    line: SyncSender<Job>,
    counted: Arc<Mutex<Beginnings>>,
}

/// One prompt to count: what is new of it, in two parts.
#[derive(Debug)]
struct Job {
    /// Tokens of what was counted before.
    known: u32,
    /// Up to the last block that is noted, and after it.
    texts: [String; 2],
    /// The hash of that block.
    noted: Option<u64>,
    reply: oneshot::Sender<u32>,
}

impl PartialEq for Tokenizer {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json` and starts its thread.
    pub fn load(path: &Path) -> Result<Self, String> {
        let inner = tokenizers::Tokenizer::from_file(path).map_err(|error| error.to_string())?;
        let (line, jobs) = sync_channel(LINE_MAX);
        let counted = Arc::new(Mutex::new(Beginnings::default()));
        let shared = Arc::clone(&counted);
        thread::Builder::new()
            .name("tokenizer".to_owned())
            .spawn(move || work(&inner, &jobs, &shared))
            .map_err(|error| error.to_string())?;
        Ok(Self { path: path.to_owned(), line, counted })
    }

    /// Counts a prompt by its blocks, and by its text between two of them. Waits a moment, no longer.
    pub async fn count(
        &self,
        blocks: &[u64],
        text: impl Fn(Range<usize>) -> String,
    ) -> Result<u32, Uncounted> {
        let (from, known) = lock(&self.counted).longest(blocks);
        let until = Beginnings::noted(blocks.len()).max(from);
        let (begin, end) = (text(from..until), text(until..usize::MAX));
        if TEXT_BYTES_MAX < begin.len() + end.len() {
            return Err(Uncounted::Skipped);
        }
        let noted = (from < until).then(|| blocks[until - 1]);
        let (reply, counted) = oneshot::channel();
        if self.line.try_send(Job { known, texts: [begin, end], noted, reply }).is_err() {
            return Err(Uncounted::Skipped);
        }
        match timeout(WAIT, counted).await {
            Ok(counted) => counted.map_err(|_| Uncounted::Skipped),
            Err(_) => Err(Uncounted::Late),
        }
    }
}

/// Counts until every sender is gone.
fn work(inner: &tokenizers::Tokenizer, jobs: &Receiver<Job>, counted: &Mutex<Beginnings>) {
    for Job { known, texts: [begin, end], noted, reply } in jobs {
        let tokens = |text: String| {
            let encoded = inner.encode_fast(text, false).map_or(0, |it| it.len());
            u32::try_from(encoded).unwrap_or(u32::MAX)
        };
        // It reads what clients write with code that is not ours. A panic costs one prompt its count, and
        // not all that come after it.
        _ = catch_unwind(AssertUnwindSafe(|| {
            let known = known.saturating_add(tokens(begin));
            if let Some(last) = noted {
                lock(counted).note(last, known);
            }
            // The request may have been decided without it.
            _ = reply.send(known.saturating_add(tokens(end)));
        }));
    }
}

fn lock(counted: &Mutex<Beginnings>) -> MutexGuard<'_, Beginnings> {
    counted.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token is a word or a mark.
    const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
        "normalizer":null,"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
        "model":{"type":"WordLevel","vocab":{"[UNK]":0,"one":1,"two":2},"unk_token":"[UNK]"}}"#;

    fn tokenizer(name: &str) -> Tokenizer {
        let path = std::env::temp_dir().join(format!("cleave-{name}-{}.json", std::process::id()));
        std::fs::write(&path, WORDS).unwrap();
        let tokenizer = Tokenizer::load(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        tokenizer
    }

    /// Counts however long it takes.
    async fn count(tokenizer: &Tokenizer, blocks: &[u64], text: &str) -> u32 {
        let at = |block: usize| block.saturating_mul(4).min(text.len());
        let text_in = |it: Range<usize>| text[at(it.start)..at(it.end)].to_owned();
        for _ in 0..10_000 {
            if let Ok(tokens) = tokenizer.count(blocks, text_in).await {
                return tokens;
            }
        }
        panic!("it is not counted");
    }

    #[tokio::test]
    async fn words_are_counted_and_of_a_later_turn_only_the_new_ones() {
        let tokenizer = tokenizer("counted");
        let blocks: Vec<u64> = (0..40).collect();
        let text = "one ".repeat(43);
        assert_eq!(count(&tokenizer, &blocks, &text).await, 43);
        // What lies before the blocks that are known is not read again.
        let other = "two,".repeat(32) + &"one ".repeat(11);
        assert_eq!(count(&tokenizer, &blocks, &other).await, 43);
        assert_eq!(count(&tokenizer, &[], "one, two").await, 3);
    }

    #[tokio::test]
    async fn what_is_too_long_is_not_counted() {
        let tokenizer = tokenizer("long");
        let long = "one ".repeat(TEXT_BYTES_MAX / 4 + 1);
        assert_eq!(tokenizer.count(&[], |_| long.clone()).await, Err(Uncounted::Skipped));
    }

    #[test]
    fn what_is_no_tokenizer_is_refused() {
        assert!(Tokenizer::load(Path::new("Cargo.toml")).is_err());
    }
}
