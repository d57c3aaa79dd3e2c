//! What came of requests over the last hour, for the page: counted as requests end, by a few atomic additions
//! each, and written down every five seconds. Metrics hold the same since the start; here is how it went.
//! Everything has a fixed size: an hour is 720 samples a pool, and about five KiB a replica.

mod histogram;
mod history;
mod replica;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use cleave_core::queue::{ClassId, Tenant};

use crate::telemetry::ServedRequest;

use histogram::TimeHistogram;
pub use history::{FlowHistory, FlowSample};
pub use replica::{Lately, ReplicaFlow};

/// Tenants, classes and reasons that are told apart among refusals.
const REFUSED_MAX: usize = 4096;

/// How requests end, in the order of [`FlowSample::ended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowEnd {
    Answered,
    Failed,
    Refused,
    Cancelled,
}

/// What has ended in a pool since the last sample.
#[derive(Debug, Default)]
pub struct FlowMeter {
    ended: [AtomicU64; 4],
    /// Tokens of prompts, those of them that were cached, and tokens of answers.
    tokens: [AtomicU64; 3],
    first_tokens: TimeHistogram,
    /// What was refused since the start. Locked by refusals only.
    refused: Mutex<BTreeMap<RefusedKind, u64>>,
}

/// Whose requests were refused, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedKind {
    pub tenant: Tenant,
    pub class: Option<ClassId>,
    pub reason: &'static str,
}

/// The same as plain figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FlowTaken {
    pub(super) ended: [u64; 4],
    pub(super) tokens: [u64; 3],
    /// At the 50th, 90th and 99th percentile, in milliseconds.
    pub(super) first_token_ms: Option<[f64; 3]>,
}

impl FlowMeter {
    /// Counts a request that ended.
    pub(super) fn note(
        &self,
        end: FlowEnd,
        (tenant, class): (Tenant, Option<ClassId>),
        it: &ServedRequest,
    ) {
        let at = match end {
            FlowEnd::Answered => 0,
            FlowEnd::Failed => 1,
            FlowEnd::Refused => 2,
            FlowEnd::Cancelled => 3,
        };
        self.ended[at].fetch_add(1, Relaxed);
        let usage = [it.usage.input, it.usage.cached, it.usage.output];
        for (counter, tokens) in self.tokens.iter().zip(usage) {
            counter.fetch_add(tokens.unwrap_or(0).into(), Relaxed);
        }
        if let Some(first_token) = it.first_token {
            self.first_tokens.note(first_token);
        }
        if let Some(reason) = it.refused {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let refusal = RefusedKind { tenant, class, reason };
            if refused.len() < REFUSED_MAX || refused.contains_key(&refusal) {
                *refused.entry(refusal).or_default() += 1;
            }
        }
    }

    /// Lists what was refused since the start.
    pub fn refused(&self) -> Vec<(RefusedKind, u64)> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.iter().map(|(it, count)| (*it, *count)).collect()
    }

    /// Takes what was counted and begins anew.
    pub(super) fn take(&self) -> FlowTaken {
        let take = |it: &AtomicU64| it.swap(0, Relaxed);
        FlowTaken {
            ended: self.ended.each_ref().map(take),
            tokens: self.tokens.each_ref().map(take),
            first_token_ms: self.first_tokens.take().quantiles_ms([0.5, 0.9, 0.99]),
        }
    }
}
