//! Figures that a client places in an answer: engines echo free-form `metadata` after the usage, and
//! `FastAPI`'s 422 echoes the input. Seven requests teach the router that their prompt is of four billion
//! tokens; eighty with the same beginning then wait, and some of them leave.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::client::{bare, chat, post, request};
use super::super::fake::{Asked, METRICS, Mouth, honest, responses};
use super::super::plan::{EVE, MALLORY, Plan};
use super::super::scene::Scene;
use super::super::{Attack, vitals};

/// More than any engine reads.
const HUGE: &str = "4294967295";
/// Nothing that was sent comes near to this.
const BOOKING_MAX: f64 = 1e8;

/// Requests with the long opening that are in the engines.
static BUSY: AtomicUsize = AtomicUsize::new(0);
/// Beyond this many an engine says that its memory is full.
const BUSY_MAX: usize = 4;

pub(super) const WAITING: Attack = Attack {
    name: "usage_echoed_waiting",
    tries: "the same while the engines are full, so that the 80 wait in the line and leave it at once",
    plan: waiting_plan,
    run,
};

pub(super) const ATTACK: Attack = Attack {
    name: "usage_echoed",
    tries: "a usage of 4,294,967,295 tokens in metadata, in a 422 and in a text, by two tenants; then 80 prompts with that beginning, half of which leave",
    plan,
    run,
};

fn plan() -> Plan {
    Plan::fakes(2, says)
}

fn waiting_plan() -> Plan {
    let mut plan = Plan::fakes(2, says_full);
    plan.is_full = true;
    plan
}

/// The same engine, which says that it is full while it is.
fn says_full(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if asked.decoded_path() == "/metrics" && BUSY_MAX < BUSY.load(Relaxed) {
        let full = METRICS.replace("perc{model_name=\"m\"} 0", "perc{model_name=\"m\"} 0.99");
        let full = full.replace("waiting{model_name=\"m\"} 0", "waiting{model_name=\"m\"} 9");
        return mouth.answer(200, "text/plain; version=0.0.4", "", &full);
    }
    says(asked, mouth)
}

/// An engine that echoes, and takes its time with what is not forged.
fn says(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if asked.says("forged-metadata") {
        let body = asked.text();
        let echoed = body.split_once("\"metadata\":").map_or("{}", |it| it.1.trim_end_matches('}'));
        let closed = format!("{echoed}}}}}");
        return mouth.json(200, &responses(asked, &closed));
    }
    if asked.says("forged-422") {
        let input = asked.text();
        let refusal = format!(r#"{{"detail":[{{"loc":["body"],"msg":"bad","input":{input}}}]}}"#);
        return mouth.json(422, &refusal);
    }
    if asked.says("forged-text") {
        // An engine that quotes a client's words without escaping them would be broken; one that
        // puts them into an event of their own is not.
        mouth.begin_stream()?;
        mouth.piece(&format!("event: note\ndata: {{\"input\":{}}}\n\n", asked.text()))?;
        mouth.piece("data: [DONE]\n\n")?;
        return mouth.end_stream();
    }
    if asked.says("opening") {
        BUSY.fetch_add(1, Relaxed);
        mouth.wait(Duration::from_millis(1_500));
        BUSY.fetch_sub(1, Relaxed);
    }
    honest(asked, mouth)
}

fn run(scene: &mut Scene) -> Result<()> {
    let opening = "opening words of a long prompt ".repeat(2_000);
    let usage = |input: &str, output: &str| {
        format!(r#""usage":{{"{input}":{HUGE},"{output}":{HUGE},"total_tokens":{HUGE}}}"#)
    };
    let (of_responses, of_chats) =
        (usage("input_tokens", "output_tokens"), usage("prompt_tokens", "completion_tokens"));
    for (number, tenant) in [MALLORY, EVE].iter().cycle().take(14).enumerate() {
        let key = Some(tenant.key);
        let metadata = format!(r#","metadata":{{"a":"forged-metadata",{of_responses}}}"#);
        let responses = format!(r#"{{"model":"m","input":"{opening} {number}"{metadata}}}"#);
        post(scene.address, key, "/v1/responses", "", &responses)?;
        for mark in ["forged-422", "forged-text"] {
            let more = format!(r#","mark":"{mark}",{of_chats}"#);
            post(scene.address, key, "/v1/chat/completions", "", &uncapped(&opening, &more))?;
        }
    }
    let (address, admin) = (scene.address, scene.admin);
    let until = Instant::now() + scene.seconds / 2;
    let mut largest: f64 = 0.0;
    thread::scope(|scope| {
        for number in 0..80 {
            // Streamed without usage, so that nothing corrects what was learned.
            let body = uncapped(&format!("{opening} {number}"), r#","stream":true"#);
            scope.spawn(move || {
                // One after the other: their number is the attack, not their coming at once.
                thread::sleep(Duration::from_millis(20 * number));
                while Instant::now() < until {
                    let leaves = number % 2 == 0;
                    // What becomes of these requests is not what is measured.
                    if leaves {
                        _ = leave_early(address, &body);
                    } else {
                        _ = post(address, Some(MALLORY.key), "/v1/chat/completions", "", &body);
                    }
                }
            });
        }
        while Instant::now() < until {
            largest = largest.max(vitals::largest_booking(admin).unwrap_or(0.0));
            thread::sleep(Duration::from_millis(50));
        }
    });
    scene.check(largest < BOOKING_MAX, || format!("{largest:.0} tokens or ms were booked"));
    Ok(())
}

/// A chat whose answer may be of any length, so that it is expected as long as others were.
fn uncapped(prompt: &str, more: &str) -> String {
    chat(prompt, more).replace("\"max_tokens\":8,", "")
}

/// Asks and hangs up before an answer can come.
fn leave_early(address: std::net::SocketAddr, body: &str) -> io::Result<()> {
    use std::io::Write as _;
    let mut stream = bare(address)?;
    let request = request("POST", "/v1/chat/completions", Some(MALLORY.key), "", body);
    stream.write_all(request.as_bytes())?;
    thread::sleep(Duration::from_millis(900));
    Ok(())
}
