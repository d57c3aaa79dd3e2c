//! Decisions that are kept, to be asked about: those drawn by lot, those whose client asked for it, and those of
//! requests that failed, were tried again, were slow, were held or moved. Each kind is bounded in number and in
//! bytes, and its oldest makes room, so that a flood of one kind leaves the others. They hold no text of prompts
//! or answers, and no session's name. The brain says why; this room only keeps it and adds what came of it.

mod kept;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cleave_core::brain::Explanation;
use cleave_core::domain::{RequestId, SliceKey};
use http::{HeaderMap, HeaderValue};
use twox_hash::XxHash3_64;

use super::headers::EXPLAIN;
use super::settings::ExplainSettings;

pub(super) use kept::Visibility;
pub use kept::{KeptDecision, KeptFor, KeptLife, KeptTry, RequestOutcome};

/// What the decisions that were asked for or drawn may take together.
const BYTES_MAX: usize = 16 << 20;
/// The same for each kind that is kept for what came of it.
const KIND_BYTES_MAX: usize = 4 << 20;

/// What is kept.
#[derive(Debug)]
pub struct Explanations {
    settings: ExplainSettings,
    kept: Mutex<[KeptDecisions; KeptFor::KINDS]>,
}

/// Those of one kind, the newest last.
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
        let all = self.lock();
        let found = all.iter().flat_map(|it| &it.kept).filter(|it| it.request_id == request_id);
        found.max_by_key(|it| it.request).cloned()
    }

    /// Lists those that came last, the newest first; only those that are kept for `kept_for`, where it is given.
    pub fn latest(&self, count: usize, kept_for: Option<&str>) -> Vec<KeptDecision> {
        let is_wanted =
            |it: &KeptDecision| kept_for.is_none_or(|word| it.kept_for.as_str() == word);
        let mut left = count;
        self.map_all(|it| {
            let is_taken = 0 < left && is_wanted(it);
            left -= usize::from(is_taken);
            is_taken.then(|| it.clone())
        })
    }

    /// Reads something off each that is kept, the newest first.
    pub fn map_all<T>(&self, read: impl FnMut(&KeptDecision) -> Option<T>) -> Vec<T> {
        let all = self.lock();
        let mut sorted: Vec<_> = all.iter().flat_map(|it| &it.kept).collect();
        sorted.sort_unstable_by_key(|it| std::cmp::Reverse(it.request));
        sorted.into_iter().filter_map(read).collect()
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
        let all = &mut self.lock()[kept.kept_for.kind()];
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
        self.make_room(kept.kept_for, all);
    }

    /// Keeps a request for what came of it, of which nothing was kept while it ran.
    pub(super) fn add(&self, kept: KeptDecision) {
        let kept_for = kept.kept_for;
        let all = &mut self.lock()[kept_for.kind()];
        all.bytes += kept.bytes();
        all.kept.push_back(kept);
        self.make_room(kept_for, all);
    }

    fn make_room(&self, kept_for: KeptFor, all: &mut KeptDecisions) {
        let bytes_max = if let KeptFor::Remark(_) = kept_for { KIND_BYTES_MAX } else { BYTES_MAX };
        while self.settings.kept_max < all.kept.len() || bytes_max < all.bytes {
            let Some(oldest) = all.kept.pop_front() else { return };
            all.bytes -= oldest.bytes();
        }
    }

    fn lock(&self) -> MutexGuard<'_, [KeptDecisions; KeptFor::KINDS]> {
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

    use cleave_core::brain::Remark;
    use cleave_core::domain::{Moment, Usage};

    use super::*;

    fn keeping(kept_max: usize) -> Explanations {
        Explanations::new(ExplainSettings { kept_max, ..ExplainSettings::default() })
    }

    fn kept(number: u64, id: &str) -> KeptDecision {
        let mut kept =
            KeptDecision::new(RequestId(number), id.to_owned(), Moment::ZERO, KeptFor::Lot);
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
            explanations.latest(9, None).into_iter().map(|it| it.request_id).collect();
        assert_eq!(latest, ["r-4", "r-3", "r-2"]);
        assert!(explanations.find("r-1").is_none());
        let (ttft, total, usage) = (None, Duration::from_secs(1), Usage::default());
        let came = Some(RequestOutcome { outcome: "done", status: 200, ttft, total, usage });
        explanations.put(&KeptDecision { came, ..kept(3, "r-3") });
        explanations.put(&KeptDecision { came, ..kept(1, "r-1") });
        assert!(explanations.find("r-3").is_some_and(|it| it.came.is_some()));
        assert!(explanations.find("r-1").is_none(), "what made room stays away");
        assert_eq!(explanations.latest(9, None).len(), 3);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let explanations = keeping(usize::MAX);
        let long = "x".repeat(1 << 20);
        (0..40).for_each(|it| explanations.put(&kept(it, &long)));
        for remark in Remark::ALL {
            let kept_for = KeptFor::Remark(remark);
            (0..40).for_each(|it| explanations.add(KeptDecision { kept_for, ..kept(it, &long) }));
        }
        let all = explanations.lock();
        for (kind, it) in all.iter().enumerate() {
            let bytes_max = if kind == 0 { BYTES_MAX } else { KIND_BYTES_MAX };
            assert!(it.bytes <= bytes_max && 2 < it.kept.len(), "kind {kind}");
            assert_eq!(it.bytes, it.kept.iter().map(KeptDecision::bytes).sum::<usize>());
        }
    }

    #[test]
    fn a_flood_of_one_kind_leaves_the_others() {
        let explanations = keeping(3);
        let of = |kept_for, number| KeptDecision { kept_for, ..kept(number, &number.to_string()) };
        explanations.put(&of(KeptFor::Asked, 0));
        explanations.add(of(KeptFor::Remark(Remark::Failed), 1));
        (2..99).for_each(|it| explanations.add(of(KeptFor::Remark(Remark::Held), it)));
        let ids = |kept_for| -> Vec<u64> {
            explanations.latest(9, kept_for).into_iter().map(|it| it.request.0).collect()
        };
        assert_eq!(ids(None), [98, 97, 96, 1, 0]);
        assert_eq!(ids(Some("failed")), [1]);
        assert!(explanations.find("0").is_some() && explanations.find("50").is_none());
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
