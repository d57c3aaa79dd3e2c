//! What happens to requests: counted as it happens, by handles made once for each pool.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::gen_ai::GenAiMetrics;
use super::labels::{
    KindLabel, PoolLabel, RefusalLabel, STATUS_CLASSES, StatusLabel, StreamLabel, TOKEN_TYPES,
    TokenLabel, class_of, fine_seconds, seconds,
};
use super::served::{ReplicaHandles, ServedFamilies, TenantMetrics};
use super::traces::{ExampledHistogram, TracedHistogram, exampled_seconds};

#[derive(Debug)]
pub(super) struct RequestFamilies {
    requests: Family<StatusLabel, Counter>,
    refused: Family<RefusalLabel, Counter>,
    retries: Family<PoolLabel, Counter>,
    cut: Family<PoolLabel, Counter>,
    resumed: Family<PoolLabel, Counter>,
    cancelled: Family<PoolLabel, Counter>,
    tokens: Family<TokenLabel, Counter>,
    tokens_counted: Family<KindLabel, Counter>,
    first_byte: Family<PoolLabel, ExampledHistogram>,
    first_token: Family<PoolLabel, ExampledHistogram>,
    total: Family<StreamLabel, ExampledHistogram>,
    line_wait: Family<PoolLabel, Histogram>,
    lock_wait: Family<PoolLabel, Histogram>,
}

/// What requests of one pool touch.
#[derive(Clone, Debug)]
pub struct PoolMetrics {
    pool: String,
    answered: [Counter; 5],
    refused: Family<RefusalLabel, Counter>,
    tokens_counted: Family<KindLabel, Counter>,
    pub retries: Counter,
    /// Answers that broke off after their first byte.
    pub cut: Counter,
    /// Answers that broke off and went on from another replica.
    pub resumed: Counter,
    /// Requests whose client left.
    pub cancelled: Counter,
    pub tokens_input: Counter,
    pub tokens_cached: Counter,
    pub tokens_output: Counter,
    pub first_byte: TracedHistogram,
    /// Of streams only.
    pub first_token: TracedHistogram,
    /// Of whole answers, then of streams.
    pub total: [TracedHistogram; 2],
    /// From asking for a place to getting one.
    pub waited: Histogram,
    /// Panics of its brains.
    pub panics: Counter,
    /// For its decisions to be free, where they were not.
    pub lock_wait: Histogram,
    /// By tenant and class.
    pub tenants: TenantMetrics,
    /// By model and operation.
    pub gen_ai: GenAiMetrics,
    served: Arc<ServedFamilies>,
}

impl Default for RequestFamilies {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            refused: Family::default(),
            retries: Family::default(),
            cut: Family::default(),
            resumed: Family::default(),
            cancelled: Family::default(),
            tokens: Family::default(),
            tokens_counted: Family::default(),
            first_byte: Family::new_with_constructor(exampled_seconds),
            first_token: Family::new_with_constructor(exampled_seconds),
            total: Family::new_with_constructor(exampled_seconds),
            line_wait: Family::new_with_constructor(seconds),
            lock_wait: Family::new_with_constructor(fine_seconds),
        }
    }
}

impl RequestFamilies {
    pub(super) fn register(&self, connections: &Gauge, it: &mut Registry) {
        it.register("cleave_requests", "Answers by status class", self.requests.clone());
        it.register(
            "cleave_refused",
            "Requests the router refused, by reason",
            self.refused.clone(),
        );
        it.register("cleave_retries", "Tries after the first", self.retries.clone());
        it.register(
            "cleave_streams_cut",
            "Answers that broke off after their first byte",
            self.cut.clone(),
        );
        it.register(
            "cleave_streams_resumed",
            "Answers that another replica went on with",
            self.resumed.clone(),
        );
        it.register("cleave_cancelled", "Requests whose client left", self.cancelled.clone());
        it.register("cleave_tokens", "Tokens as engines report them", self.tokens.clone());
        it.register(
            "cleave_tokens_counted",
            "Prompts given to the pool's tokenizer, by what came of it",
            self.tokens_counted.clone(),
        );
        it.register(
            "cleave_first_byte_seconds",
            "Request received to first byte of the answer's body",
            self.first_byte.clone(),
        );
        it.register(
            "cleave_first_token_seconds",
            "Request received to first content of a stream",
            self.first_token.clone(),
        );
        it.register(
            "cleave_request_seconds",
            "Request received to end of answer, streams apart",
            self.total.clone(),
        );
        it.register(
            "cleave_line_wait_seconds",
            "Time until a request is placed",
            self.line_wait.clone(),
        );
        it.register(
            "cleave_lock_wait_seconds",
            "Waits for a pool's decisions to be free; those that found them free are not counted",
            self.lock_wait.clone(),
        );
        it.register("cleave_connections", "Open client connections", connections.clone());
    }

    /// Makes the handles of one pool.
    pub(super) fn pool(
        &self,
        pool: &str,
        panics: Counter,
        served: &Arc<ServedFamilies>,
        gen_ai: GenAiMetrics,
    ) -> PoolMetrics {
        let label = PoolLabel::of(pool);
        let [tokens_input, tokens_cached, tokens_output] = TOKEN_TYPES.map(|token_type| {
            self.tokens.get_or_create_owned(&TokenLabel { pool: pool.to_owned(), token_type })
        });
        let answered = STATUS_CLASSES.map(|status_class| {
            self.requests.get_or_create_owned(&StatusLabel { pool: pool.to_owned(), status_class })
        });
        let total = ["false", "true"].map(|stream| {
            let label = StreamLabel { pool: pool.to_owned(), stream };
            TracedHistogram(self.total.get_or_create_owned(&label))
        });
        PoolMetrics {
            pool: pool.to_owned(),
            answered,
            refused: self.refused.clone(),
            tokens_counted: self.tokens_counted.clone(),
            retries: self.retries.get_or_create_owned(&label),
            cut: self.cut.get_or_create_owned(&label),
            resumed: self.resumed.get_or_create_owned(&label),
            cancelled: self.cancelled.get_or_create_owned(&label),
            tokens_input,
            tokens_cached,
            tokens_output,
            first_byte: TracedHistogram(self.first_byte.get_or_create_owned(&label)),
            first_token: TracedHistogram(self.first_token.get_or_create_owned(&label)),
            total,
            waited: self.line_wait.get_or_create_owned(&label),
            panics,
            lock_wait: self.lock_wait.get_or_create_owned(&label),
            tenants: TenantMetrics::new(pool, Arc::clone(served)),
            gen_ai,
            served: Arc::clone(served),
        }
    }
}

impl PoolMetrics {
    pub fn on_answered(&self, status: u16) {
        self.answered[class_of(status)].inc();
    }

    /// Notes what came of counting a prompt.
    pub fn on_counted(&self, came: &'static str) {
        self.tokens_counted.get_or_create(&KindLabel::of(&self.pool, came)).inc();
    }

    pub fn on_refused(&self, reason: &'static str) {
        self.refused.get_or_create(&RefusalLabel { pool: self.pool.clone(), reason }).inc();
    }

    /// Makes the handles of a replica that joins.
    pub fn replica(&self, replica: &str) -> ReplicaHandles {
        self.served.replica(&self.pool, replica)
    }

    /// Forgets a replica that is gone.
    pub fn forget(&self, replica: &str) {
        self.served.forget(&self.pool, replica);
    }
}
