//! When tenants send, by `ServeGen`'s description: per client and ten minutes a rate and the law of the
//! time between arrivals. The published shapes and scales do not quite give the published rates, so
//! the gaps of a window are drawn by shape and then stretched to fill it: the rate is exact, the
//! burstiness is the law's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use cleave_core::domain::Moment;
use rand::RngExt;
use rand_distr::{Distribution, Gamma, Weibull};
use rand_pcg::Pcg64Mcg;

use super::draw;
use super::readers::servegen::{Client, Clients, Pattern, Window};
use super::replay::Replay;

/// Arrivals of all clients, in order; each with the place of its client in the list.
pub(super) struct Arrivals {
    clients: Arc<Clients>,
    replay: Replay,
    streams: Vec<ClientStream>,
    next: BinaryHeap<Reverse<(Moment, usize)>>,
}

/// One client: the window it is in and what is left of it, latest first.
struct ClientStream {
    rng: Pcg64Mcg,
    window: usize,
    left: Vec<Moment>,
}

impl Arrivals {
    pub(super) fn new(clients: Arc<Clients>, replay: Replay) -> Self {
        let stream = |client: &Client| ClientStream {
            rng: draw::rng(replay.seed, "client", u64::from(client.id)),
            window: 0,
            left: Vec::new(),
        };
        let streams = clients.clients.iter().map(stream).collect();
        let mut arrivals = Self { clients, replay, streams, next: BinaryHeap::new() };
        for client in 0..arrivals.streams.len() {
            arrivals.push_next(client);
        }
        arrivals
    }

    fn push_next(&mut self, client: usize) {
        let stream = &mut self.streams[client];
        let windows = &self.clients.clients[client].windows;
        while stream.left.is_empty() && stream.window < windows.len() {
            let window = windows[stream.window];
            stream.window += 1;
            stream.fill(window, self.clients.window_s, &self.replay);
        }
        if let Some(at) = stream.left.pop() {
            self.next.push(Reverse((at, client)));
        }
    }
}

impl Iterator for Arrivals {
    type Item = (Moment, usize);

    fn next(&mut self) -> Option<(Moment, usize)> {
        let Reverse((at, client)) = self.next.pop()?;
        self.push_next(client);
        Some((at, client))
    }
}

impl ClientStream {
    /// Draws the arrivals of one window, as far as they lie in the part to be played.
    fn fill(&mut self, window: Window, window_s: u32, replay: &Replay) {
        let start = Duration::from_secs(u64::from(window.start_s));
        let width = Duration::from_secs(u64::from(window_s));
        if replay.until <= start || start + width <= replay.from {
            return;
        }
        let mean = window.per_second * f64::from(window_s) * replay.rate_scale.get();
        let more = u32::from(self.rng.random_bool(mean.fract()));
        let count = draw::tokens(mean.floor()).saturating_add(more);
        let mut sum = 0.0;
        let mut sums: Vec<f64> = Vec::new();
        for _ in 0..count {
            sum += gap(window, &mut self.rng);
            sums.push(sum);
        }
        // The gap after the last arrival belongs to the window too.
        sum += gap(window, &mut self.rng);
        let arrivals = sums.iter().map(|part| start + draw::scaled(width, part / sum));
        let played = arrivals.filter(|at| replay.from <= *at && *at < replay.until);
        self.left = played.map(|at| Moment::ZERO + at.saturating_sub(replay.from)).collect();
        self.left.reverse();
    }
}

fn gap(window: Window, rng: &mut Pcg64Mcg) -> f64 {
    let drawn = match window.pattern {
        Pattern::Gamma => Gamma::new(window.shape, 1.0).ok().map(|law| law.sample(rng)),
        Pattern::Weibull => Weibull::new(1.0, window.shape).ok().map(|law| law.sample(rng)),
    };
    // Tiny shapes underflow; a window of nothing but zeros must still have a width.
    drawn.unwrap_or(1.0).clamp(f64::MIN_POSITIVE, 1e300)
}
