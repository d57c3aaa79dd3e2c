//! What if, asked on the page: `cleave replay` on what this router recorded, in a process of its own, so that
//! requests are served as if it were not there. One question at a time; the process is niced, has one thread, and
//! bounds its own memory and time; this side ends it if it takes longer still.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::proxy::Router;

/// How long an answer may take.
const TAKES_MAX: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);
const SAID_BYTES_MAX: u64 = 1 << 20;
const WORD_BYTES_MAX: usize = 256;
const POLICIES_MAX: usize = 8;

/// What can be asked; each as the flag of `cleave replay` has it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WhatIfQuestion {
    pool: Option<String>,
    last: Option<String>,
    policies: Vec<String>,
    replicas: Option<String>,
    rate_scale: Option<f64>,
    slo: Option<String>,
    hardware: Option<String>,
    speed: Option<f64>,
    closed: bool,
}

impl WhatIfQuestion {
    /// Writes it as arguments. Each value stands in one with its flag, so that none is taken for another flag.
    fn arguments(&self) -> Result<Vec<String>, &'static str> {
        if POLICIES_MAX < self.policies.len() {
            return Err("ask for 8 policies at most\n");
        }
        let policies = Some(self.policies.join(",")).filter(|it| !it.is_empty());
        let number = |it: Option<f64>| it.map(|it| it.to_string());
        let named = [
            ("pool", self.pool.clone()),
            ("last", self.last.clone()),
            ("policy", policies),
            ("replicas", self.replicas.clone()),
            ("rate-scale", number(self.rate_scale)),
            ("slo", self.slo.clone()),
            ("hardware", self.hardware.clone()),
            ("speed", number(self.speed)),
            ("loop", self.closed.then(|| "closed".to_owned())),
        ];
        let given = named.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
        let given: Vec<_> = given.filter(|it| !it.1.trim().is_empty()).collect();
        if given.iter().any(|it| WORD_BYTES_MAX < it.1.len()) {
            return Err("a word of the question is too long\n");
        }
        Ok(given.into_iter().map(|(flag, value)| format!("--{flag}={}", value.trim())).collect())
    }
}

/// Where the question stands.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct WhatIfState {
    running: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_seconds: Option<f64>,
    /// What `cleave replay --json` said.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Box<RawValue>>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Takes one question at a time.
#[derive(Debug)]
pub(super) struct WhatIfDesk {
    /// The program that answers; nothing where questions are not taken.
    program: Option<PathBuf>,
    state: Mutex<WhatIfState>,
}

impl WhatIfDesk {
    pub(super) fn new(program: Option<PathBuf>) -> Self {
        Self { program, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, WhatIfState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, dir: String, asked: Vec<String>) -> Result<(), (StatusCode, String)> {
        let Some(program) = self.program.clone() else {
            let said = "this router does not know the program that answers\n";
            return Err((StatusCode::NOT_IMPLEMENTED, said.to_owned()));
        };
        {
            let mut state = self.lock();
            if state.running {
                let said = "another question is being answered: one at a time\n";
                return Err((StatusCode::CONFLICT, said.to_owned()));
            }
            *state = WhatIfState { running: true, ..WhatIfState::default() };
        }
        let desk = Arc::clone(self);
        // A thread of its own: it waits for a process, and nothing waits for it.
        thread::spawn(move || {
            let began = Instant::now();
            let answered = answer(&program, &dir, &asked);
            let mut state = desk.lock();
            *state = WhatIfState {
                took_seconds: Some(began.elapsed().as_secs_f64()),
                ..WhatIfState::default()
            };
            match answered {
                Ok(answer) => state.answer = Some(answer),
                Err(problem) => state.problem = Some(problem),
            }
        });
        Ok(())
    }
}

pub(super) async fn show(Extension(desk): Extension<Arc<WhatIfDesk>>) -> Json<WhatIfState> {
    Json(desk.lock().clone())
}

pub(super) async fn ask(
    State(router): State<Arc<Router>>,
    Extension(desk): Extension<Arc<WhatIfDesk>>,
    body: Bytes,
) -> Result<(StatusCode, Json<WhatIfState>), (StatusCode, String)> {
    let question: WhatIfQuestion = serde_json::from_slice(&body)
        .map_err(|why| (StatusCode::BAD_REQUEST, format!("{why}\n")))?;
    let asked = question.arguments().map_err(|it| (StatusCode::BAD_REQUEST, it.to_owned()))?;
    let Some(dir) = router.recorder.status().dir else {
        let said = "there is nothing to replay: recordings have no folder (record.dir)\n";
        return Err((StatusCode::CONFLICT, said.to_owned()));
    };
    desk.take(dir, asked)?;
    Ok((StatusCode::ACCEPTED, Json(desk.lock().clone())))
}

/// Runs the program to its end, and reads what it says.
fn answer(program: &Path, dir: &str, asked: &[String]) -> Result<Box<RawValue>, String> {
    let own = ["replay", dir, "--json", "--bounded"];
    let piped = |command: &mut Command| {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn()
    };
    // Where there is no `nice`, its one thread and its limits must do.
    let niced = piped(Command::new("nice").args(["-n", "19"]).arg(program).args(own).args(asked));
    let child = niced.or_else(|_| piped(Command::new(program).args(own).args(asked)));
    let mut child =
        child.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (said, complained, ended) = thread::scope(|scope| {
        let said = scope.spawn(|| read(out));
        let complained = scope.spawn(|| read(err));
        let ended = wait(&mut child);
        (said.join().unwrap_or_default(), complained.join().unwrap_or_default(), ended)
    });
    if !ended? {
        let why = complained.trim().trim_start_matches("error: ").to_owned();
        let none = "it ended without a word: perhaps the recording is too long for its memory";
        return Err(if why.is_empty() { none.to_owned() } else { why });
    }
    RawValue::from_string(said).map_err(|error| format!("no answer: {error}"))
}

/// Waits for the end, for as long as it may take; tells whether it was a good one.
fn wait(child: &mut Child) -> Result<bool, String> {
    let until = Instant::now() + TAKES_MAX;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if Instant::now() < until => thread::sleep(LOOK),
            Ok(None) => {
                // It may have ended by itself just now.
                _ = child.kill();
                _ = child.wait();
                let seconds = TAKES_MAX.as_secs();
                return Err(format!("it took more than {seconds} s: ask about less with `last`"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn read(from: Option<impl Read>) -> String {
    let mut said = Vec::new();
    if let Some(from) = from {
        // What cannot be read was not said.
        _ = from.take(SAID_BYTES_MAX).read_to_end(&mut said);
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_becomes_flags_and_no_value_becomes_another_flag() {
        let question: WhatIfQuestion = serde_json::from_str(
            r#"{"last":"30m","policies":["priced","session"],"replicas":"+2","rate_scale":2,"pool":"--json","slo":" "}"#,
        )
        .unwrap();
        let want = [
            "--pool=--json",
            "--last=30m",
            "--policy=priced,session",
            "--replicas=+2",
            "--rate-scale=2",
        ];
        assert_eq!(question.arguments().unwrap(), want);
        let long = WhatIfQuestion { slo: Some("x".repeat(300)), ..WhatIfQuestion::default() };
        assert!(long.arguments().is_err());
        assert!(serde_json::from_str::<WhatIfQuestion>(r#"{"command":"rm"}"#).is_err());
    }

    #[test]
    fn one_question_at_a_time_and_a_program_that_fails_is_told() {
        let desk = Arc::new(WhatIfDesk::new(Some("/nonexistent/cleave".into())));
        desk.lock().running = true;
        assert_eq!(desk.take(String::new(), Vec::new()).unwrap_err().0, StatusCode::CONFLICT);
        let why = answer(Path::new("/nonexistent/cleave"), "", &[]).unwrap_err();
        assert!(!why.is_empty());
        let none = Arc::new(WhatIfDesk::new(None));
        assert_eq!(
            none.take(String::new(), Vec::new()).unwrap_err().0,
            StatusCode::NOT_IMPLEMENTED
        );
    }
}
