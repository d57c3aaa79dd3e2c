//! Requests that share a timestamp did not arrive together: the recorder rounded. This spreads them
//! over the time its clock stood still, at random by seed, and keeps their order. Left alone, every
//! three seconds of a Mooncake trace would be one burst, and any policy that survives bursts would win.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::draw;
use super::lines::TraceError;
use super::request::Request;
use super::source::Requests;

/// Spreads ties over at most `bucket`, and never beyond the next timestamp.
pub(super) struct Ties {
    requests: Peekable<Requests>,
    bucket: Duration,
    rng: Pcg64Mcg,
    spread: VecDeque<Request>,
}

impl Ties {
    pub(super) fn new(requests: Requests, bucket: Duration, seed: u64) -> Self {
        let rng = draw::rng(seed, "ties", 0);
        Self { requests: requests.peekable(), bucket, rng, spread: VecDeque::new() }
    }

    /// Gathers the requests of the next timestamp and gives each a moment of its own.
    fn refill(&mut self) -> Result<(), TraceError> {
        let Some(first) = self.requests.next().transpose()? else { return Ok(()) };
        let tied = first.arrival;
        self.spread.push_back(first);
        let is_tied = |next: &Result<Request, _>| next.as_ref().is_ok_and(|it| it.arrival == tied);
        while let Some(request) = self.requests.next_if(is_tied).transpose()? {
            self.spread.push_back(request);
        }
        if self.spread.len() == 1 {
            return Ok(());
        }
        let width = match self.requests.peek() {
            Some(Ok(next)) => next.arrival.since(tied).min(self.bucket),
            Some(Err(_)) | None => self.bucket,
        };
        let mut offsets: Vec<f64> = self.spread.iter().map(|_| self.rng.random()).collect();
        offsets.sort_by(f64::total_cmp);
        for (request, offset) in self.spread.iter_mut().zip(offsets) {
            request.arrival = tied + draw::scaled(width, offset);
        }
        Ok(())
    }
}

impl Iterator for Ties {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.spread.is_empty()
            && let Err(error) = self.refill()
        {
            return Some(Err(error));
        }
        self.spread.pop_front().map(Ok)
    }
}
