//! For tests, here and in the simulator (which includes this file): a policy on the bench: some replicas, a clock that stands still until moved, and the notices that
//! a brain would give.

use std::time::Duration;

use rand::SeedableRng as _;

use super::*;

/// Tokens in a block of the prompts made here.
pub(super) const BLOCK_TOKENS: u32 = 100;

pub(super) struct Bench {
    pub(super) policy: Box<dyn Policy>,
    pub(super) candidates: Vec<Candidate>,
    chance: Pcg64Mcg,
    now: Moment,
    requests: u64,
    /// What each request has booked until its first token, in microseconds.
    booked_us: Vec<u64>,
}

impl Bench {
    pub(super) fn new(kind: PolicyKind, replicas: u32) -> Self {
        let chance = Pcg64Mcg::seed_from_u64(7);
        let (candidates, now, requests, booked_us) = (Vec::new(), Moment::ZERO, 0, Vec::new());
        let mut bench = Self { policy: kind.make(), candidates, chance, now, requests, booked_us };
        (0..replicas).for_each(|it| bench.join(it));
        bench
    }

    pub(super) fn join(&mut self, number: u32) {
        let (id, place) = (ReplicaId(number), Place::of(&format!("http://gpu-{number}:8000")));
        self.policy.on_joined(id, place);
        self.candidates.push(Candidate {
            id,
            place,
            weight: 1.0,
            in_flight: 0,
            report: None,
            load: LoadModel::default(),
        });
    }

    fn at(&self, replica: u32) -> usize {
        self.candidates.binary_search_by_key(&ReplicaId(replica), |it| it.id).unwrap()
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// Says where a request of the session with that prompt would go.
    pub(super) fn pick_for(&mut self, session: u64, outline: &Outline) -> u32 {
        self.pick_from(None, session, outline)
    }

    /// Says where the next request of a session would go that `home` served last.
    pub(super) fn pick_from(&mut self, home: Option<u32>, session: u64, outline: &Outline) -> u32 {
        let (key, home) = (SliceKey(session), home.map(ReplicaId));
        let ask = Ask { now: self.now, key, outline, home, promise: Promise::default() };
        let chosen = self.policy.pick(&ask, &self.candidates, &mut self.chance);
        self.candidates[chosen].id.0
    }

    pub(super) fn pick(&mut self, outline: &Outline) -> u32 {
        self.pick_for(1, outline)
    }

    /// Counts where each of `times` requests for the same prompt would go.
    pub(super) fn tally(&mut self, outline: &Outline, times: u32) -> Vec<u32> {
        let mut counts = vec![0; self.candidates.len()];
        for _ in 0..times {
            let chosen = self.pick(outline);
            counts[self.at(chosen)] += 1;
        }
        counts
    }

    /// Sends a request to that replica, whatever the policy would have chosen.
    pub(super) fn send(&mut self, outline: &Outline, to: u32) -> RequestId {
        let request = RequestId(self.requests);
        self.requests += 1;
        let at = self.at(to);
        let ask = Ask {
            now: self.now,
            key: SliceKey(1),
            outline,
            home: None,
            promise: Promise::default(),
        };
        let held = self.policy.on_sent(request, &ask, &self.candidates[at]);
        self.candidates[at].in_flight += 1;
        let (new, cached) = (outline.tokens_beyond(held), outline.tokens_in(held));
        let us = whole((1e3 * self.candidates[at].load.cost.prefill_ms(new, cached)).round());
        self.booked_us.push(us);
        self.book(at, |booked| booked + us);
        request
    }

    fn book(&mut self, at: usize, change: impl FnOnce(u64) -> u64) {
        let load = &mut self.candidates[at].load;
        load.wait_ms = float(change(whole((1e3 * load.wait_ms).round()))) / 1e3;
    }

    fn begin(&mut self, request: RequestId, at: u32) {
        let at = self.at(at);
        let us = std::mem::take(&mut self.booked_us[usize::try_from(request.0).unwrap()]);
        self.book(at, |booked| booked - us);
    }

    pub(super) fn answer(&mut self, request: RequestId, at: u32) {
        self.begin(request, at);
        self.policy.on_first_token(self.now, request, ReplicaId(at));
    }

    pub(super) fn end(&mut self, request: RequestId, at: u32) {
        self.policy.on_ended(self.now, request, ReplicaId(at));
        self.begin(request, at);
        let at = self.at(at);
        self.candidates[at].in_flight -= 1;
    }

    /// One whole request that leaves only its cache behind.
    pub(super) fn serve(&mut self, outline: &Outline, at: u32) {
        let request = self.send(outline, at);
        self.answer(request, at);
        self.end(request, at);
    }

    pub(super) fn report(&mut self, replica: u32, waiting: u32, kv_used_share: f64) {
        let report = Report {
            taken_at: self.now,
            waiting,
            running: 0,
            waiting_tokens: None,
            kv_used_share,
            kv_tokens_max: Some(100_000),
        };
        let at = self.at(replica);
        self.candidates[at].report = Some(report);
    }

    pub(super) fn in_flight(&mut self, counts: &[u32]) {
        for (candidate, count) in self.candidates.iter_mut().zip(counts) {
            candidate.in_flight = *count;
        }
    }
}

/// Makes a prompt of the blocks `(first, count)`, of [`BLOCK_TOKENS`] each.
pub(super) fn prompt(parts: &[(u64, u64)]) -> Outline {
    let blocks: Vec<u64> = parts.iter().flat_map(|&(first, count)| first..first + count).collect();
    let prompt_tokens = u32::try_from(blocks.len()).unwrap() * BLOCK_TOKENS;
    let (block_tokens, output_tokens) = (BLOCK_TOKENS, None);
    Outline {
        blocks: blocks.into(),
        block_tokens,
        prompt_tokens,
        output_tokens,
        ..Outline::default()
    }
}
