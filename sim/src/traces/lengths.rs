//! `ServeGen` alone: tenants with rates, burstiness and lengths, and no content to share.

use std::sync::Arc;
use std::time::Duration;

use cleave_core::domain::Moment;
use rand_pcg::Pcg64Mcg;

use super::arrivals::Arrivals;
use super::draw::{self, Spread};
use super::prompt::{Prompt, mix, named};
use super::readers::servegen::{Client, Clients};
use super::readers::{UNSHARED_BLOCK_TOKENS, lone_request};
use super::replay::Replay;
use super::request::{Request, Tenant, index};
use super::source::Requests;

/// For a file in which no client has lengths.
const UNKNOWN: Spread = Spread::Fixed(512);

/// Generates the requests of all clients, each of its own content.
pub(super) fn requests(clients: Arc<Clients>, replay: &Replay) -> Requests {
    let arrivals = Arrivals::new(Arc::clone(&clients), replay.clone());
    let mut rng = draw::rng(replay.seed, "lengths", 0);
    let (from, tokens_max) = (replay.from, replay.prompt_tokens_max);
    let draw = move |(number, (at, client)): (u64, (Moment, usize))| {
        let (input, output) =
            lengths(&clients.clients[client], from + at.since(Moment::ZERO), &mut rng);
        let space = mix(SPACE, number);
        let prompt = Prompt::unshared(space, input, UNSHARED_BLOCK_TOKENS);
        Request { tenant: Tenant(index(client)), ..lone_request(at, space, prompt, output) }
    };
    let requests = (0..).zip(arrivals).map(draw);
    Box::new(requests.filter(move |it| it.prompt.tokens() <= tokens_max).map(Ok))
}

const SPACE: u64 = named("servegen requests");

/// Draws by the latest quantiles that had begun by then.
fn lengths(client: &Client, at: Duration, rng: &mut Pcg64Mcg) -> (u32, u32) {
    let begun = client.lengths.partition_point(|&(start_s, ..)| u64::from(start_s) <= at.as_secs());
    let (input, output) = match client.lengths.get(begun.saturating_sub(1)) {
        Some((_, input, output)) => (input, output),
        None => (&UNKNOWN, &UNKNOWN),
    };
    (input.draw(rng).max(1), output.draw(rng).max(1))
}
