//! Decisions as JSON, for `/explain` and `cleave explain`: times in milliseconds, replicas by their
//! address. Both ends of the wire are this one definition.

mod contract;
mod elsewhere;
mod life;

use std::time::Duration;

use cleave_core::brain::{Considered, Explanation, LeaveCause, Waited};
use cleave_core::domain::Moment;
use cleave_core::policy;
use serde::{Deserialize, Serialize};

use super::asking::{PeerQuery, ask};
use super::costs::CostFigures;
use crate::proxy::{KeptDecision, KeptTry, RequestOutcome, Router, Tenants, WorkloadNames};

pub use contract::ContractSeen;
pub use elsewhere::RouterShare;
pub use life::LifeStage;

/// How many decisions the list shows.
const LISTED: usize = 50;

/// One request that was kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explained {
    pub request_id: String,
    /// The router that decided, by its id; null for one that is alone.
    #[serde(default)]
    pub router: Option<String>,
    pub pool: String,
    /// Why it is kept: `asked`, `lot`, or for what came of it: `failed`, `retried`, `slow`, `held`, `moved`.
    #[serde(default)]
    pub kept_for: String,
    /// What made it slow, or that nothing did; null while it runs.
    #[serde(default)]
    pub verdict: Option<String>,
    /// How long ago it came.
    pub age_seconds: f64,
    /// What happened, from its arrival on; empty while it runs.
    #[serde(default)]
    pub life: Vec<LifeStage>,
    /// What it went through before it was first sent or refused.
    #[serde(default)]
    pub line: Option<LineSeen>,
    /// One for each time it was sent.
    pub tries: Vec<Try>,
    /// Why it was not sent, or not sent again.
    pub refusal: Option<String>,
    /// Null while it runs.
    pub outcome: Option<OutcomeSeen>,
}

/// What a request went through before it was sent or refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LineSeen {
    pub class: String,
    /// `default` is all requests without a tenant's key.
    pub tenant: String,
    pub waited_ms: f64,
    /// What it waited for when it began to: `knee`, `subset`, `door`, `sessions`, `turn`; `contract` for
    /// one refused. Null for one that did not wait.
    pub waited_for: Option<String>,
    /// The same in a sentence.
    pub because: Option<String>,
    /// How it did not fit its tenant's contract; null for one that this did not refuse.
    #[serde(default)]
    pub contract: Option<ContractSeen>,
    /// How long it was expected to wait when it came, and what was to be sent before it.
    pub wait_expected_ms: f64,
    pub ahead_mu: f64,
    /// How long after its arrival its first token had to be there, and when it had to be sent for that;
    /// null where it had no deadline.
    pub first_token_within_ms: Option<f64>,
    pub sent_within_ms: Option<f64>,
    /// How long its first token was expected to take once it is sent.
    pub first_token_expected_ms: f64,
}

/// One choice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Try {
    pub replica: String,
    pub why: String,
    /// The same in a sentence.
    pub because: String,
    /// Why it could go there although that is beyond its workload's subset; null when it is not.
    #[serde(default)]
    pub beyond: Option<String>,
    /// Where the session was before; null for a new one.
    #[serde(default)]
    pub home: Option<String>,
    /// Why the session left that, where it did: `lost`, `drained`, `overloaded`, `spilled`, `rebalanced`, `kept`, `rule`.
    #[serde(default)]
    pub moved: Option<String>,
    /// The same in a sentence.
    #[serde(default)]
    pub moved_because: Option<String>,
    /// By how much its replica was the worse choice, where it was overloaded.
    #[serde(default)]
    pub moved_for_ms: Option<f64>,
    pub policy: String,
    /// The tenant and the model, or the digits of both where they have no name.
    #[serde(default)]
    pub workload: String,
    /// The session's place in the key space, not its name.
    pub session: String,
    pub prompt_tokens: u32,
    pub output_tokens_expected: Option<u32>,
    /// The time to the first token, as predicted when it was booked.
    pub ttft_ms: f64,
    /// The time between two tokens, as predicted then; null while it runs.
    #[serde(default)]
    pub gap_ms: Option<f64>,
    /// Why it failed there, if it did.
    #[serde(default)]
    pub failed: Option<String>,
    /// The costs that predict it; null where learning is off.
    #[serde(default)]
    pub costs: Option<CostFigures>,
    /// How the chosen one was weighed; null where the policy does not weigh in time.
    pub terms: Option<Terms>,
    /// How many could have been chosen.
    pub candidates_total: usize,
    /// The cheapest of them first.
    pub candidates: Vec<Candidate>,
    pub what_if: Vec<WhatIf>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidate {
    pub replica: String,
    pub weight: f64,
    pub in_flight: u32,
    pub terms: Option<Terms>,
    /// Why it is among them although it is beyond the workload's subset: `load`, `stand_in`, `home`.
    #[serde(default)]
    pub beyond: Option<String>,
    /// Which part of the work that was booked there each other router had booked, the largest first.
    #[serde(default)]
    pub elsewhere: Vec<RouterShare>,
}

/// What another policy would have done with the same view.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WhatIf {
    pub policy: String,
    pub replica: String,
    pub ttft_ms: Option<f64>,
    pub price_ms: Option<f64>,
}

/// A price, term by term.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Terms {
    pub ttft_ms: f64,
    pub wait_ms: f64,
    pub prefill_ms: f64,
    #[serde(default)]
    pub late_ms: f64,
    pub evict_ms: f64,
    #[serde(default)]
    pub crowd_ms: f64,
    pub slow_ms: f64,
    #[serde(default)]
    pub weight_ms: f64,
    /// What the terms from `wait_ms` to `weight_ms` add up to.
    pub price_ms: f64,
    pub cached_tokens: u32,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutcomeSeen {
    pub outcome: String,
    pub status: u16,
    /// From the last decision to the first piece of a stream; null for what was not streamed.
    pub ttft_ms: Option<f64>,
    pub total_ms: f64,
    pub input_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    pub output_tokens: Option<u32>,
}

/// Lists the latest decisions of all routers, the newest first; of one kind, where it is given.
pub(super) async fn latest(router: &Router, kept_for: Option<String>) -> Vec<Explained> {
    let mut all = own_latest(router, kept_for.as_deref());
    let others = ask::<Vec<Explained>>(router, &PeerQuery::Latest(kept_for)).await;
    all.extend(others.into_iter().filter_map(|it| it.1).flatten());
    all.sort_by(|a, b| a.age_seconds.total_cmp(&b.age_seconds));
    all.truncate(LISTED);
    all
}

/// Lists the latest decisions of this router.
pub(super) fn own_latest(router: &Router, kept_for: Option<&str>) -> Vec<Explained> {
    let (now, kept) = (router.now(), router.explanations.latest(LISTED, kept_for));
    kept.iter().map(|it| Explained::of(router, it, now)).collect()
}

/// Finds one decision of this router.
pub(super) fn own(router: &Router, request_id: &str) -> Option<Explained> {
    let kept = router.explanations.find(request_id)?;
    Some(Explained::of(router, &kept, router.now()))
}

/// Finds one decision, of whichever router, or says how to have it kept.
pub(super) async fn find(router: &Router, request_id: &str) -> Result<Explained, String> {
    if let Some(own) = own(router, request_id) {
        return Ok(own);
    }
    let others = ask::<Explained>(router, &PeerQuery::Explain(request_id.to_owned())).await;
    others.into_iter().find_map(|it| it.1).ok_or_else(|| {
        let percent = 100.0 * router.explanations.sample();
        format!(
            "no decision is kept under this id: {percent}% of all are (explain.sample), and those of \
             requests that failed, were tried again, slow, held or moved, and of each kind the latest \
             (explain.kept_max); send a request whose header `x-cleave-explain` carries the \
             admin token, or 1 where clients may ask (explain.clients), to have it kept; other \
             routers that are there were asked too\n"
        )
    })
}

impl Explained {
    fn of(router: &Router, kept: &KeptDecision, now: Moment) -> Self {
        let pools = router.pools();
        let pool = pools.iter().find(|it| it.name == kept.pool);
        let names = pool.map(|it| router.workload_names(it)).unwrap_or_default();
        let tenants = router.tenants();
        Self {
            request_id: kept.request_id.clone(),
            router: router.sharing().map(|it| it.router().to_string()),
            pool: kept.pool.clone(),
            kept_for: kept.kept_for.as_str().to_owned(),
            verdict: kept.life.as_ref().map(|it| it.course.verdict()),
            life: kept.life.as_ref().map_or_else(Vec::new, |it| life::stages(kept, it)),
            age_seconds: now.since(kept.arrived_at).as_secs_f64(),
            line: kept.waited.as_ref().map(|it| LineSeen::of(it, &tenants)),
            tries: tries(kept, &names),
            refusal: kept.refusal.map(str::to_owned),
            outcome: kept.came.as_ref().map(OutcomeSeen::of),
        }
    }
}

/// Lists the times that it was sent. Of one that is kept for what came of it, the reasons of the last ones are
/// there, or of none.
fn tries(kept: &KeptDecision, names: &WorkloadNames) -> Vec<Try> {
    let Some(life) = &kept.life else {
        return kept.choices.iter().map(|it| Try::of(it, names)).collect();
    };
    let unexplained = life.tries.len().saturating_sub(kept.choices.len());
    let sent = life.tries.iter().enumerate();
    let tries = sent.map(|(at, it)| {
        let choice = at.checked_sub(unexplained).and_then(|at| kept.choices.get(at));
        let one = choice.map_or_else(|| Try::unexplained(it), |it| Try::of(it, names));
        let failed = it.failed.map(|it| it.1.to_owned());
        Try { gap_ms: Some(it.expected.gap_ms), failed, ..one }
    });
    tries.collect()
}

impl LineSeen {
    fn of(it: &Waited, tenants: &Tenants) -> Self {
        let ms = |it: Duration| it.as_secs_f64() * 1e3;
        Self {
            class: it.class.clone(),
            tenant: tenants.name(it.tenant).unwrap_or("default").to_owned(),
            waited_ms: ms(it.span()),
            waited_for: it.cause.map(|it| it.as_str().to_owned()),
            because: it.cause.map(|it| it.sentence().to_owned()),
            contract: it.over.as_ref().map(ContractSeen::of),
            wait_expected_ms: ms(it.wait_expected),
            ahead_mu: it.ahead_mu,
            first_token_within_ms: it.first_token_within.map(ms),
            sent_within_ms: it.sent_within.map(ms),
            first_token_expected_ms: it.first_token_ms,
        }
    }
}

impl Try {
    fn of(choice: &Explanation, names: &WorkloadNames) -> Self {
        let what_if = choice.others.iter().map(|it| WhatIf {
            policy: it.policy.to_string(),
            replica: it.name.clone(),
            ttft_ms: it.terms.map(|it| it.ttft_ms),
            price_ms: it.terms.map(|it| it.price_ms),
        });
        let chosen = choice.considered.iter().find(|it| it.replica == choice.replica);
        let beyond = chosen.and_then(|it| it.beyond);
        let overload = choice.moved.filter(|it| it.cause == LeaveCause::Overloaded);
        Self {
            beyond: beyond.map(|it| it.sentence().to_owned()),
            home: choice.home.clone(),
            moved: choice.moved.map(|it| it.cause.as_str().to_owned()),
            moved_because: choice.moved.map(|it| it.cause.sentence().to_owned()),
            moved_for_ms: overload.map(|it| it.over_ms),
            replica: choice.name.clone(),
            why: choice.why.as_str().to_owned(),
            because: choice.why.sentence().to_owned(),
            policy: choice.policy.to_string(),
            workload: names.name(choice.key.workload()),
            session: choice.key.to_string(),
            prompt_tokens: choice.prompt_tokens,
            output_tokens_expected: choice.output_tokens,
            ttft_ms: choice.ttft_ms,
            gap_ms: None,
            failed: None,
            costs: choice.costs.as_ref().map(CostFigures::of),
            terms: choice.terms.map(Terms::of),
            candidates_total: choice.candidates,
            candidates: choice.considered.iter().map(Candidate::of).collect(),
            what_if: what_if.collect(),
        }
    }

    /// What is known of a try whose reasons were not written down.
    fn unexplained(it: &KeptTry) -> Self {
        let overload = it.expected.moved.filter(|it| it.cause == LeaveCause::Overloaded);
        Self {
            replica: it.replica.clone(),
            why: "unexplained".to_owned(),
            because: "its reasons were not written down".to_owned(),
            beyond: None,
            home: it.home.clone(),
            moved: it.expected.moved.map(|it| it.cause.as_str().to_owned()),
            moved_because: it.expected.moved.map(|it| it.cause.sentence().to_owned()),
            moved_for_ms: overload.map(|it| it.over_ms),
            policy: String::new(),
            workload: String::new(),
            session: String::new(),
            prompt_tokens: it.expected.prompt_tokens,
            output_tokens_expected: it.expected.output_tokens,
            ttft_ms: it.expected.ttft_ms,
            gap_ms: None,
            failed: None,
            costs: None,
            terms: None,
            candidates_total: 0,
            candidates: Vec::new(),
            what_if: Vec::new(),
        }
    }
}

impl Candidate {
    fn of(it: &Considered) -> Self {
        let (replica, terms) = (it.name.clone(), it.terms.map(Terms::of));
        let beyond = it.beyond.map(|it| it.as_str().to_owned());
        let elsewhere = elsewhere::shares(it);
        Self { replica, weight: it.weight, in_flight: it.in_flight, terms, beyond, elsewhere }
    }
}

impl Terms {
    fn of(it: policy::Terms) -> Self {
        let it = it.rounded();
        Self {
            ttft_ms: it.ttft_ms,
            wait_ms: it.wait_ms,
            prefill_ms: it.prefill_ms,
            late_ms: it.late_ms,
            evict_ms: it.evict_ms,
            crowd_ms: it.crowd_ms,
            slow_ms: it.slow_ms,
            weight_ms: it.weight_ms,
            price_ms: it.price_ms,
            cached_tokens: it.cached_tokens,
        }
    }
}

impl OutcomeSeen {
    fn of(came: &RequestOutcome) -> Self {
        Self {
            outcome: came.outcome.to_owned(),
            status: came.status,
            ttft_ms: came.ttft.map(|it| it.as_secs_f64() * 1e3),
            total_ms: came.total.as_secs_f64() * 1e3,
            input_tokens: came.usage.input,
            cached_tokens: came.usage.cached,
            output_tokens: came.usage.output,
        }
    }
}
