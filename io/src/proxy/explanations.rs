//! Decisions that are kept, to be asked about: those drawn by lot, and those whose client asked for it.
//! Bounded in number and in bytes, the oldest makes room. They hold no text of prompts or answers, and
//! no session's name. The brain says why; this room only keeps it and adds what came of it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_core::brain::{Considered, Explanation, Other, Refusal, Waited};
use cleave_core::domain::{RequestId, SliceKey, Usage};
use http::{HeaderMap, HeaderValue};
use twox_hash::XxHash3_64;

use super::headers::EXPLAIN;
use super::settings::ExplainSettings;

/// What all that is kept may take together.
const BYTES_MAX: usize = 16 << 20;

/// What is kept.
#[derive(Debug)]
pub struct Explanations {
    settings: ExplainSettings,
    kept: Mutex<KeptDecisions>,
}

/// The newest last.
#[derive(Debug, Default)]
struct KeptDecisions {
    kept: VecDeque<KeptDecision>,
    bytes: usize,
}

/// How much of a decision is shown in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    /// All of it, with the admin token.
    Whole,
    /// What is the request's own. Not where it went, nor any figure that tells what others have sent:
    /// what is cached, and what a prefill takes for that.
    Own,
}

/// One request: each time it was placed, and what came of it.
#[derive(Clone, Debug)]
pub struct KeptDecision {
    request: RequestId,
    /// As the client knows it.
    pub request_id: String,
    pub pool: String,
    /// What it went through before it was first sent or refused.
    pub waited: Option<Waited>,
    /// One for each time it was sent.
    pub choices: Vec<Explanation>,
    /// Why it was not sent, or not sent again.
    pub refusal: Option<&'static str>,
    /// `None` while it runs.
    pub came: Option<RequestOutcome>,
}

/// What came of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestOutcome {
    pub outcome: &'static str,
    pub status: u16,
    /// From the last decision to the first piece of a stream.
    pub ttft: Option<Duration>,
    /// From its arrival to its end.
    pub total: Duration,
    pub usage: Usage,
}

impl Explanations {
    pub(super) fn new(settings: ExplainSettings) -> Self {
        Self { settings, kept: Mutex::default() }
    }

    /// Finds what is kept of a request; the newest, if a client used the id twice.
    pub fn find(&self, request_id: &str) -> Option<KeptDecision> {
        self.lock().kept.iter().rev().find(|it| it.request_id == request_id).cloned()
    }

    /// Lists what was kept last, the newest first.
    pub fn latest(&self, count: usize) -> Vec<KeptDecision> {
        self.lock().kept.iter().rev().take(count).cloned().collect()
    }

    /// Reads something off each that is kept, the newest first.
    pub fn map_all<T>(&self, read: impl FnMut(&KeptDecision) -> Option<T>) -> Vec<T> {
        self.lock().kept.iter().rev().filter_map(read).collect()
    }

    /// Finds the choices that were made for a session, with the ids of their requests, the newest first.
    pub fn of_session(&self, key: SliceKey) -> Vec<(String, Vec<Explanation>)> {
        self.map_all(|it| {
            let is_of = it.choices.first().is_some_and(|it| it.key == key);
            is_of.then(|| (it.request_id.clone(), it.choices.clone()))
        })
    }

    /// The share of requests that is kept.
    pub const fn sample(&self) -> f64 {
        self.settings.sample
    }

    /// Tells whether a request asks for its decision, and how much of it may be shown.
    pub(super) fn asks(&self, headers: &HeaderMap) -> Option<Visibility> {
        let asked = headers.get(EXPLAIN)?.as_bytes();
        let token = self.settings.token.as_ref().map(HeaderValue::as_bytes);
        if token.is_some_and(|it| equal_in_constant_time(asked, it)) {
            return Some(Visibility::Whole);
        }
        self.settings.clients.then_some(Visibility::Own)
    }

    /// Draws a lot for a request; by its number, so that no generator is locked for it.
    pub(super) fn samples(&self, request: RequestId) -> bool {
        if self.settings.sample <= 0.0 {
            return false;
        }
        let lot = XxHash3_64::oneshot(&request.0.to_le_bytes()) >> 32;
        // 32 bits fit a double exactly.
        u32::try_from(lot).is_ok_and(|it| f64::from(it) < self.settings.sample * 2_f64.powi(32))
    }

    /// Keeps what is known of a request so far, in place of what was known before.
    pub(super) fn put(&self, kept: &KeptDecision) {
        let mut all = self.lock();
        let known = all.kept.iter().rposition(|it| it.request == kept.request);
        all.bytes += kept.bytes();
        if let Some(at) = known {
            let before = std::mem::replace(&mut all.kept[at], kept.clone());
            all.bytes -= before.bytes();
        } else if kept.came.is_none() {
            all.kept.push_back(kept.clone());
        } else {
            // It had to make room while it ran.
            all.bytes -= kept.bytes();
        }
        while self.settings.kept_max < all.kept.len() || BYTES_MAX < all.bytes {
            let Some(oldest) = all.kept.pop_front() else { return };
            all.bytes -= oldest.bytes();
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptDecisions> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptDecision {
    pub(super) fn new(request: RequestId, request_id: String) -> Self {
        let (pool, choices) = (String::new(), Vec::new());
        Self { request, request_id, pool, waited: None, choices, refusal: None, came: None }
    }

    pub(super) fn on_placed(
        &mut self,
        pool: &str,
        waited: Option<Waited>,
        choice: Option<Explanation>,
        refusal: Option<&Refusal>,
    ) {
        pool.clone_into(&mut self.pool);
        self.waited = self.waited.take().or(waited);
        self.choices.extend(choice);
        self.refusal = refusal.map(|it| it.as_str());
    }

    /// Tells whether it was refused, failed or broke off.
    pub fn has_failed(&self) -> bool {
        let failed =
            |it: &RequestOutcome| 400 <= it.status || matches!(it.outcome, "cut" | "panicked");
        self.refusal.is_some() || self.came.as_ref().is_some_and(failed)
    }

    /// Tells whether anything was decided about it.
    pub(super) const fn is_placed(&self) -> bool {
        !self.choices.is_empty() || self.refusal.is_some()
    }

    /// Writes the last decision in one line, for a header. `apart` says that what is cached for the
    /// request is its tenant's own.
    pub(super) fn line(&self, sight: Visibility, apart: bool) -> Option<String> {
        match sight {
            Visibility::Whole => self.whole_line(),
            Visibility::Own => self.own_line(apart),
        }
    }

    fn own_line(&self, apart: bool) -> Option<String> {
        let mut line = match self.choices.last() {
            None => self.refusal?.to_owned(),
            Some(it) => {
                let mut line = format!("sent try={}", self.choices.len());
                if let Some(terms) = it.terms.filter(|_| apart) {
                    write!(line, " cached_tokens={}", terms.cached_tokens).expect("text grows");
                }
                write!(line, " prompt_tokens={}", it.prompt_tokens).expect("text grows");
                line
            }
        };
        let Some(it) = &self.waited else { return Some(line) };
        if let Some(cause) = it.cause {
            let (cause, ms) = (cause.as_str(), it.span().as_millis());
            write!(line, " class={} waited_for={cause} waited_ms={ms}", it.class)
                .expect("text grows");
        }
        if let Some(within) = it.first_token_within {
            write!(line, " first_token_within_ms={}", within.as_millis()).expect("text grows");
        }
        Some(line)
    }

    fn whole_line(&self) -> Option<String> {
        let Some(it) = self.choices.last() else {
            return self.refusal.map(|it| format!("{it}{}", self.waited_words()));
        };
        let (tries, candidates) = (self.choices.len(), it.candidates);
        let mut line =
            format!("{} why={} try={tries} candidates={candidates}", it.name, it.why.as_str());
        let chosen = it.considered.iter().find(|one| one.replica == it.replica);
        if let Some(beyond) = chosen.and_then(|it| it.beyond) {
            write!(line, " beyond={}", beyond.as_str()).expect("text grows");
        }
        let prompt = it.prompt_tokens;
        if let Some(terms) = it.terms {
            let (price, cached) = (terms.price_ms, terms.cached_tokens);
            write!(
                line,
                " wait_ms={:.1} prefill_ms={:.1} evict_ms={:.1} slow_ms={:.1} \
                 price_ms={price:.1} cached_tokens={cached}",
                terms.wait_ms, terms.prefill_ms, terms.evict_ms, terms.slow_ms,
            )
            .expect("text grows");
        }
        write!(line, " prompt_tokens={prompt} ttft_ms={:.1}", it.ttft_ms).expect("text grows");
        Some(line + &self.waited_words())
    }

    /// Writes what it waited for, and what was predicted against its deadline; nothing for one that did
    /// neither wait nor have a deadline.
    fn waited_words(&self) -> String {
        let mut words = String::new();
        let Some(it) = &self.waited else { return words };
        if let Some(cause) = it.cause {
            write!(
                words,
                " class={} waited_for={} waited_ms={} wait_expected_ms={} ahead_mu={:.2}",
                it.class,
                cause.as_str(),
                it.span().as_millis(),
                it.wait_expected.as_millis(),
                it.ahead_mu,
            )
            .expect("text grows");
        }
        if let Some(within) = it.first_token_within {
            let (ms, expected_ms) = (within.as_millis(), it.first_token_ms);
            write!(words, " first_token_within_ms={ms} first_token_expected_ms={expected_ms:.1}")
                .expect("text grows");
        }
        words
    }

    /// Measures what it takes.
    fn bytes(&self) -> usize {
        let choice = |it: &Explanation| {
            let considered = it.considered.iter().map(|it| size_of::<Considered>() + it.name.len());
            let others = it.others.iter().map(|it| size_of::<Other>() + it.name.len());
            let home = it.home.as_ref().map_or(0, String::len);
            size_of::<Explanation>()
                + it.name.len()
                + home
                + considered.chain(others).sum::<usize>()
        };
        let class = self.waited.as_ref().map_or(0, |it| it.class.len());
        let own = size_of::<Self>() + self.request_id.len() + self.pool.len() + class;
        own + self.choices.iter().map(choice).sum::<usize>()
    }
}

/// Compares without telling by its time where the first difference is.
pub(crate) fn equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeping(kept_max: usize) -> Explanations {
        Explanations::new(ExplainSettings { kept_max, ..ExplainSettings::default() })
    }

    fn kept(number: u64, id: &str) -> KeptDecision {
        let mut kept = KeptDecision::new(RequestId(number), id.to_owned());
        kept.refusal = Some("no_replica");
        kept
    }

    #[test]
    fn the_oldest_makes_room_and_what_is_known_later_replaces_what_was_known() {
        let explanations = keeping(3);
        for number in 0..5 {
            explanations.put(&kept(number, &format!("r-{number}")));
        }
        let latest: Vec<String> =
            explanations.latest(9).into_iter().map(|it| it.request_id).collect();
        assert_eq!(latest, ["r-4", "r-3", "r-2"]);
        assert!(explanations.find("r-1").is_none());
        let (ttft, total, usage) = (None, Duration::from_secs(1), Usage::default());
        let came = Some(RequestOutcome { outcome: "done", status: 200, ttft, total, usage });
        explanations.put(&KeptDecision { came, ..kept(3, "r-3") });
        explanations.put(&KeptDecision { came, ..kept(1, "r-1") });
        assert!(explanations.find("r-3").is_some_and(|it| it.came.is_some()));
        assert!(explanations.find("r-1").is_none(), "what made room stays away");
        assert_eq!(explanations.latest(9).len(), 3);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let explanations = keeping(usize::MAX);
        let long = "x".repeat(1 << 20);
        (0..40).for_each(|it| explanations.put(&kept(it, &long)));
        let all = explanations.lock();
        assert!(all.bytes <= BYTES_MAX && 10 < all.kept.len());
        assert_eq!(all.bytes, all.kept.iter().map(KeptDecision::bytes).sum::<usize>());
    }

    #[test]
    fn the_share_that_is_drawn_is_the_share_asked_for() {
        for (sample, wanted) in [(0.0, 0..=0), (0.01, 900..=1100), (1.0, 100_000..=100_000)] {
            let settings = ExplainSettings { sample, ..ExplainSettings::default() };
            let explanations = Explanations::new(settings);
            let drawn = (0..100_000).filter(|it| explanations.samples(RequestId(*it))).count();
            assert!(wanted.contains(&drawn), "{drawn} of 100,000 at {sample}");
        }
    }

    #[test]
    fn who_has_the_token_sees_all_and_others_their_own_if_they_may_ask() {
        let asked = |value: &'static str| {
            HeaderMap::from_iter([(EXPLAIN, HeaderValue::from_static(value))])
        };
        for clients in [false, true] {
            let own = clients.then_some(Visibility::Own);
            for token in [None, Some(HeaderValue::from_static("hunter2"))] {
                let whole = token.is_some().then_some(Visibility::Whole).or(own);
                let settings = ExplainSettings { clients, token, ..ExplainSettings::default() };
                let explanations = Explanations::new(settings);
                assert_eq!(explanations.asks(&HeaderMap::new()), None);
                assert_eq!(explanations.asks(&asked("1")), own);
                assert_eq!(explanations.asks(&asked("hunter2")), whole);
            }
        }
    }
}
