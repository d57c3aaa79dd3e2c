//! A replica that lies about everything it can: the usage of its answers, its metrics, the models it
//! serves and how much they read. The other one is honest, and must not be given up for the liar.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::client::{chat, post};
use super::super::fake::{Asked, Mouth, event, honest, script, wants_stream};
use super::super::plan::{Engine, MALLORY, Plan};
use super::super::scene::Scene;
use super::super::{Attack, vitals};

/// Numbers as no honest engine has them.
const FIGURES: [&str; 14] = [
    "0",
    "1",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "-9223372036854775808",
    "1e400",
    "1e19",
    "0.5",
    "null",
    "\"7\"",
    "[1]",
];
const GAUGES: [&str; 8] =
    ["NaN", "+Inf", "-Inf", "-1", "1e308", "18446744073709551616", "0x10", ""];
/// Nothing that was sent comes near to this.
const BOOKING_MAX: f64 = 1e8;

static TURN: AtomicUsize = AtomicUsize::new(0);

pub(super) const ATTACK: Attack = Attack {
    name: "lying_replica",
    tries: "one of two replicas gives absurd usage, metrics and models",
    plan,
    run,
};

fn plan() -> Plan {
    Plan::fakes(1, honest).with(Engine::Fake(script(lies)))
}

fn lies(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    let turn = TURN.fetch_add(1, Relaxed);
    let one = FIGURES[turn % FIGURES.len()];
    let other = FIGURES[(turn / FIGURES.len()) % FIGURES.len()];
    let usage = format!(
        r#""usage":{{"prompt_tokens":{one},"completion_tokens":{other},"total_tokens":{one},"prompt_tokens_details":{{"cached_tokens":{other}}}}}"#
    );
    match asked.decoded_path().as_str() {
        "/metrics" => {
            let gauge = GAUGES[turn % GAUGES.len()];
            let page = format!(
                "vllm:num_requests_running {gauge}\nvllm:num_requests_waiting {gauge}\nvllm:kv_cache_usage_perc {gauge}\nvllm:cache_config_info{{block_size=\"{one}\",num_gpu_blocks=\"{other}\"}} 1\nvllm:prompt_tokens_total {gauge}\nvllm:generation_tokens_total {gauge}\nprocess_start_time_seconds 1700000000\n"
            );
            mouth.answer(200, "text/plain", "", &page)
        }
        "/v1/models" => mouth.json(
            200,
            &format!(r#"{{"object":"list","data":[{{"id":"m","max_model_len":{one}}}]}}"#),
        ),
        "/v1/chat/completions" if wants_stream(asked) => {
            mouth.begin_stream()?;
            mouth.piece(&event("w"))?;
            mouth.piece(&format!("data: {{\"id\":\"c1\",\"choices\":[],{usage}}}\n\n"))?;
            mouth.piece("data: [DONE]\n\n")?;
            mouth.end_stream()
        }
        "/v1/chat/completions" => mouth.json(
            200,
            &format!(r#"{{"id":"c1","choices":[{{"message":{{"content":"w"}}}}],{usage}}}"#),
        ),
        _ => honest(asked, mouth),
    }
}

fn run(scene: &mut Scene) -> Result<()> {
    let until = Instant::now() + scene.seconds;
    let (address, admin) = (scene.address, scene.admin);
    let mut largest: f64 = 0.0;
    thread::scope(|scope| {
        for number in 0..32 {
            scope.spawn(move || {
                let opening = "what is learned of this beginning is a lie ".repeat(1_000);
                while Instant::now() < until {
                    let stream = if number % 2 == 0 { "" } else { r#","stream":true"# };
                    let body = chat(&opening, stream).replace("\"max_tokens\":8,", "");
                    _ = post(address, Some(MALLORY.key), "/v1/chat/completions", "", &body);
                    // The lies are the attack, not the load.
                    thread::sleep(Duration::from_millis(100));
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
