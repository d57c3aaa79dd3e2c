//! Decisions that are kept, to be asked about: those drawn by lot, and those whose client asked for it.
//! Bounded in number and in bytes, the oldest makes room. They hold no text of prompts or answers, and
//! no session's name. The brain says why; this room only keeps it and adds what came of it.

mod kept;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cleave_core::domain::RequestId;
use http::{HeaderMap, HeaderValue};
use twox_hash::XxHash3_64;

use super::headers::EXPLAIN;
use super::settings::ExplainSettings;

pub(super) use kept::Visibility;
pub use kept::{KeptDecision, RequestOutcome};

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

/// Compares without telling by its time where the first difference is.
pub(crate) fn equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cleave_core::domain::Usage;

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
