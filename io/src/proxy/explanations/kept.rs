//! What is kept of one request, and how its last decision is written in one line.

use std::fmt::Write as _;
use std::time::Duration;

use cleave_core::brain::{
    Considered, Course, Expected, Explanation, Other, Refusal, Remark, Waited,
};
use cleave_core::domain::{Moment, RequestId, Usage};
use cleave_core::policy::Terms;
use cleave_core::queue::OverContract;

/// How much of a decision is shown in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Visibility {
    /// All of it, with the admin token.
    Whole,
    /// What is the request's own. Not where it went, nor any figure that tells what others have sent:
    /// what is cached, and what a prefill takes for that.
    Own,
}

/// Why a decision is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFor {
    /// Its client asked for it, or an operator.
    Asked,
    /// It was drawn.
    Lot,
    /// Of what came of the request.
    Remark(Remark),
}

impl KeptFor {
    /// How many kinds make room for none but their own.
    pub(super) const KINDS: usize = 1 + Remark::ALL.len();

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Lot => "lot",
            Self::Remark(it) => it.as_str(),
        }
    }

    /// Its place among the kinds; what is asked for and what is drawn are one.
    pub(super) fn kind(self) -> usize {
        let Self::Remark(remark) = self else { return 0 };
        1 + Remark::ALL.iter().position(|it| *it == remark).unwrap_or_default()
    }
}

/// How a request went, once it is over.
#[derive(Clone, Debug)]
pub struct KeptLife {
    pub course: Course,
    /// When it first asked for a place.
    pub asked: Duration,
    /// Every time that it was sent.
    pub tries: Vec<KeptTry>,
    pub first_token: Option<Duration>,
    /// When the longest pause in its answer began.
    pub gap_longest_at: Duration,
    /// When its answer was there.
    pub answered: Duration,
}

/// One time that it was sent, in moments after its arrival.
#[derive(Clone, Debug)]
pub struct KeptTry {
    pub replica: String,
    /// Where its session was before, if that was another.
    pub home: Option<String>,
    pub placed: Duration,
    /// When the head of its answer came.
    pub head: Option<Duration>,
    pub failed: Option<(Duration, &'static str)>,
    pub expected: Expected,
}

/// One request: each time it was placed, and what came of it.
#[derive(Clone, Debug)]
pub struct KeptDecision {
    pub(super) request: RequestId,
    pub kept_for: KeptFor,
    /// As the client knows it.
    pub request_id: String,
    pub pool: String,
    /// What it went through before it was first sent or refused.
    pub waited: Option<Waited>,
    /// One for each time it was sent since it is kept; of one that is kept for what came of it, the last ones or
    /// none.
    pub choices: Vec<Explanation>,
    /// Why it was not sent, or not sent again.
    pub refusal: Option<&'static str>,
    /// `None` while it runs.
    pub came: Option<RequestOutcome>,
    /// By the clock of the pools.
    pub arrived_at: Moment,
    pub life: Option<KeptLife>,
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

impl KeptDecision {
    pub(in crate::proxy) fn new(
        request: RequestId,
        request_id: String,
        arrived_at: Moment,
        kept_for: KeptFor,
    ) -> Self {
        Self {
            request,
            kept_for,
            request_id,
            pool: String::new(),
            waited: None,
            choices: Vec::new(),
            refusal: None,
            came: None,
            arrived_at,
            life: None,
        }
    }

    pub(in crate::proxy) fn on_placed(
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
    pub(in crate::proxy) const fn is_placed(&self) -> bool {
        !self.choices.is_empty() || self.refusal.is_some()
    }

    /// Writes the last decision in one line, for a header. `apart` says that what is cached for the
    /// request is its tenant's own.
    pub(in crate::proxy) fn line(&self, sight: Visibility, apart: bool) -> Option<String> {
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
            write_terms(&mut line, &terms.rounded());
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
        if let Some(it) = &it.over {
            let OverContract { limit, per_min, at_once, used, needed, .. } = it;
            let room_in_ms = it.retry_after.as_millis();
            write!(
                words,
                " limit={limit} per_min={per_min} at_once={at_once} used={used} needed={needed} \
                 room_in_ms={room_in_ms}",
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
    pub(super) fn bytes(&self) -> usize {
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
        let tries = self.life.iter().flat_map(|it| &it.tries);
        let names = |it: &KeptTry| it.replica.len() + it.home.as_ref().map_or(0, String::len);
        let tries: usize = tries.map(|it| size_of::<KeptTry>() + names(it)).sum();
        let own = size_of::<Self>() + self.request_id.len() + self.pool.len() + class + tries;
        own + self.choices.iter().map(choice).sum::<usize>()
    }
}

/// Writes the terms of a price and what they add up to.
fn write_terms(line: &mut String, it: &Terms) {
    let (price, cached) = (it.price_ms, it.cached_tokens);
    write!(
        line,
        " wait_ms={:.1} prefill_ms={:.1} late_ms={:.1} evict_ms={:.1} crowd_ms={:.1} slow_ms={:.1} \
         weight_ms={:.1} price_ms={price:.1} cached_tokens={cached}",
        it.wait_ms, it.prefill_ms, it.late_ms, it.evict_ms, it.crowd_ms, it.slow_ms, it.weight_ms,
    )
    .expect("text grows");
}
