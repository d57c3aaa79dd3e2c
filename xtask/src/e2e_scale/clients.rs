//! Clients that ask one request after the other, each a session with a long prompt, and what they noticed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::http1;

/// Words of a prompt: some eight thousand tokens.
const PROMPT_WORDS: usize = 6_000;

pub(crate) struct Clients {
    stop: Arc<AtomicBool>,
    tally: Arc<Tally>,
    threads: Vec<JoinHandle<()>>,
}

/// What clients noticed.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Sums>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) answered: usize,
    /// Refused with a word on when to come back.
    pub(crate) refused: usize,
    /// Everything else, with what came.
    pub(crate) lost: Vec<String>,
    pub(crate) longest: Duration,
}

impl Tally {
    pub(crate) fn sums(&self) -> Sums {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, came: Result<bool, String>, took: Duration) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match came {
            Ok(true) => {
                sums.answered += 1;
                sums.longest = sums.longest.max(took);
            }
            Ok(false) => sums.refused += 1,
            Err(what) => sums.lost.push(what),
        }
    }
}

impl Clients {
    /// Starts clients that pause between two requests.
    pub(crate) fn start(router: SocketAddr, count: usize, pause: Duration) -> Self {
        let (stop, tally) = (Arc::new(AtomicBool::new(false)), Arc::new(Tally::default()));
        let client = |number: usize| {
            let (stop, tally) = (Arc::clone(&stop), Arc::clone(&tally));
            thread::spawn(move || {
                for turn in 0.. {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let began = Instant::now();
                    tally.note(ask(router, number, turn), began.elapsed());
                    thread::sleep(pause);
                }
            })
        };
        Self { threads: (0..count).map(client).collect(), stop, tally }
    }

    /// Lets every client finish its request.
    pub(crate) fn stop(self) -> Result<Arc<Tally>> {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
        }
        Ok(self.tally)
    }
}

/// Asks for a stream; says whether it came whole or was refused, and else what came.
fn ask(router: SocketAddr, client: usize, turn: usize) -> Result<bool, String> {
    let words: Vec<String> = (0..PROMPT_WORDS).map(|it| format!("w{client}t{turn}n{it}")).collect();
    let prompt = words.join(" ");
    let body = format!(
        r#"{{"model":"m","stream":true,"max_tokens":32,"ignore_eos":true,"user":"c{client}t{turn}","messages":[{{"role":"user","content":"{prompt}"}}]}}"#
    );
    let answer = http1::post(router, "/v1/chat/completions", &body);
    let (head, body) = answer.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&body);
    if head.status() == 200 && text.trim_end().ends_with("data: [DONE]") {
        Ok(true)
    } else if matches!(head.status(), 429 | 503) && head.header("retry-after").is_some() {
        Ok(false)
    } else {
        let end: String = text.chars().rev().take(200).collect();
        Err(format!("{}: …{}", head.first_line, end.chars().rev().collect::<String>()))
    }
}
