//! What a tenant can learn of the fleet and of others: the header that asks for reasons, and whatever
//! an answer says of where it came from.

use anyhow::Result;

use super::super::Attack;
use super::super::client::{chat, exchange, post, request};
use super::super::plan::{ALICE, MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const ATTACK: Attack = Attack {
    name: "explanations",
    tries: "x-cleave-explain in many forms, after another tenant has sent the same prompt",
    plan: || Plan::mocks(2),
    run,
};

fn run(scene: &mut Scene) -> Result<()> {
    let prompt = "words that only one tenant should know of ".repeat(100);
    let body = chat(&prompt, "");
    post(scene.address, Some(ALICE.key), "/v1/chat/completions", "", &body)?;
    let addresses: Vec<String> = scene.mocks.iter().map(|it| it.address.to_string()).collect();
    for asks in [
        "x-cleave-explain: 1\r\n",
        "X-Cleave-Explain: true\r\n",
        "x-cleave-explain: 1\r\nx-cleave-explain: 1\r\n",
        "x-cleave-explain: Bearer x\r\n",
        "x-cleave-explain:\r\n",
        "",
    ] {
        for path in ["/v1/chat/completions", "/v1/nothing", "/v1/completions"] {
            let headers = format!("{asks}x-request-id: explained\r\n");
            let request = request("POST", path, Some(MALLORY.key), &headers, &body);
            let answer = exchange(scene.address, request.as_bytes())?;
            let head = answer.head_text().to_ascii_lowercase();
            for secret in
                addresses.iter().map(String::as_str).chain(["cached_tokens", "x-cleave-decision"])
            {
                scene
                    .check(!head.contains(secret), || format!("{asks:?} on {path} shows {secret}"));
            }
        }
    }
    Ok(())
}
