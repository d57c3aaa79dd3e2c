//! Random requests with figures that no honest client sends, in fields and in headers, many of them
//! cancelled at a random moment. A seed repeats them.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::super::Attack;
use super::super::client::{bare, post, request};
use super::super::plan::{EVE, MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const ATTACK: Attack = Attack {
    name: "hostile_figures",
    tries: "random figures (0, 2^32, 2^64, negative, NaN, 1e400, lists) in every field and header that is read, half of the requests cancelled at random",
    plan: || {
        Plan::mocks(2).attackers(
            "contract = { mu_per_min = 50.0, tokens_per_min = 200000, requests_per_min = 100000 }",
        )
    },
    run,
};

const FIGURES: [&str; 15] = [
    "0",
    "1",
    "-1",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "1e400",
    "-1e400",
    "NaN",
    "0.1",
    "null",
    "[]",
    "\"1\"",
];
const FIELDS: [&str; 12] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "priority",
    "n",
    "best_of",
    "logprobs",
    "service_tier",
    "user",
    "prompt_cache_key",
    "temperature",
    "stream",
];
const HEADERS: [&str; 9] = [
    "x-cleave-class",
    "x-priority",
    "x-request-timeout-ms",
    "x-llm-d-inference-ttl",
    "x-gateway-inference-ttl",
    "x-slo-ttft-ms",
    "x-llm-d-slo-ttft-ms",
    "x-session-id",
    "x-cleave-explain",
];
const PATHS: [&str; 5] =
    ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"];

fn run(scene: &mut Scene) -> Result<()> {
    let until = Instant::now() + scene.seconds;
    let address = scene.address;
    let seeds: Vec<u64> = (0..6).map(|_| scene.rng.random()).collect();
    thread::scope(|scope| {
        for (number, seed) in seeds.into_iter().enumerate() {
            scope.spawn(move || {
                let mut rng = Pcg64Mcg::seed_from_u64(seed);
                let key = Some([MALLORY, EVE][number % 2].key);
                while Instant::now() < until {
                    let (path, headers, body) = draw(&mut rng);
                    if rng.random_bool(0.5) {
                        _ = post(address, key, path, &headers, &body);
                        continue;
                    }
                    let request = request("POST", path, key, &headers, &body);
                    let Ok(mut stream) = bare(address) else { continue };
                    _ = stream.write_all(request.as_bytes());
                    thread::sleep(Duration::from_millis(rng.random_range(0..60)));
                }
            });
        }
    });
    Ok(())
}

fn draw(rng: &mut Pcg64Mcg) -> (&'static str, String, String) {
    let figure = |rng: &mut Pcg64Mcg| FIGURES[rng.random_range(0..FIGURES.len())];
    let words = "word ".repeat(rng.random_range(0..300));
    let mut body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{words}"}}],"prompt":"{words}","input":"{words}""#
    );
    for field in FIELDS {
        if rng.random_bool(0.25) {
            body.extend([",\"", field, "\":", figure(rng)]);
        }
    }
    if rng.random_bool(0.8) {
        body.push_str(",\"max_tokens\":8,\"max_output_tokens\":8");
    }
    body.push('}');
    let mut headers = String::new();
    for header in HEADERS {
        if rng.random_bool(0.2) {
            headers.extend([header, ": ", figure(rng), "\r\n"]);
        }
    }
    (PATHS[rng.random_range(0..PATHS.len())], headers, body)
}
