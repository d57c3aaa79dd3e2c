//! How pools stand, as recordings tell it, and the order to record.

use std::sync::Arc;
use std::time::Duration;

use cleave_core::domain::span_ms;
use cleave_core::recording::{ClassLine, CostLine, PoolLine, ReplicaLine};

use super::Router;
use super::ordering::NotAudited;
use crate::proxy::pool::Pool;
use crate::telemetry::{AuditEntry, Incident, NoFolder};

/// Why an order to record is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum NotRecorded {
    #[error(transparent)]
    NotAudited(#[from] NotAudited),
    #[error(transparent)]
    NoFolder(#[from] NoFolder),
}

impl Router {
    /// Runs until stopped: writes recordings while they are on.
    pub async fn record(self: Arc<Self>) {
        let router = Arc::clone(&self);
        let pools = move || {
            let pools = if router.recorder.is_on() { router.pools() } else { Arc::default() };
            pools.iter().map(|it| (it.key(), line_of(it))).collect()
        };
        Arc::clone(&self.recorder).run(pools).await;
    }

    /// Turns recording on, for a time if one is given, or off; `by` is the token that orders it.
    pub fn order_recording(
        &self,
        on: bool,
        lasts: Option<Duration>,
        by: &str,
    ) -> Result<(), NotRecorded> {
        let of = lasts.filter(|_| on).map(|it| format!("for {}", humantime::format_duration(it)));
        let order = if on { "record" } else { "stop recording" };
        self.write_down(&AuditEntry { by, order, pool: None, of: of.clone() })?;
        self.recorder.switch(on, lasts)?;
        self.events.publish(Incident {
            kind: "record",
            state: if on { "recording" } else { "stopped" },
            by: Some(by.to_owned()),
            detail: of,
            ..Incident::default()
        });
        Ok(())
    }
}

/// Says how a pool stands; its number and the time are the recorder's to give.
fn line_of(pool: &Pool) -> PoolLine {
    let spec = pool.spec();
    let classes = pool.classes();
    let learned = pool.learned_costs();
    let cost_of = |class: &str| {
        let learned = learned.iter().find(|it| it.class == class);
        let given = spec.replicas.iter().map(|it| &it.hardware).find(|it| it.class == class);
        let given = given.or(Some(&spec.classes.usual).filter(|it| it.class == class));
        let given = given.or_else(|| spec.classes.named.values().find(|it| it.class == class));
        match (learned, given) {
            (Some(it), _) if it.is_used => Some((it.step, it.overhead_ms, true)),
            (Some(it), None) => Some((it.given, 0.0, false)),
            (_, Some(it)) => Some((it.step, it.overhead_ms, false)),
            (None, None) => None,
        }
    };
    let states = pool.snapshot().replicas;
    let replicas = pool.load().into_iter().map(|it| {
        let state = states.iter().find(|of| of.id == it.id);
        ReplicaLine {
            id: it.id.0,
            address: it.name,
            class: it.class,
            weight: state.map_or(1.0, |it| it.weight),
            state: state.map_or("unknown", |it| it.state).to_owned(),
            // In steps, so that a line is written again only for a change that matters.
            pace: (it.pace * 20.0).round() / 20.0,
            kv_tokens: it.report.and_then(|it| it.kv_tokens_max),
        }
    });
    let replicas: Vec<ReplicaLine> = replicas.collect();
    let mut names: Vec<&str> = replicas.iter().map(|it| it.class.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let costs = names.into_iter().filter_map(|class| {
        let (step, overhead_ms, is_learned) = cost_of(class)?;
        Some(CostLine { class: class.to_owned(), step, overhead_ms, is_learned })
    });
    PoolLine {
        pool: 0,
        at_us: 0,
        name: pool.name.clone(),
        policy: spec.brain.policy.to_string(),
        holds: spec.brain.line.holds,
        gates: spec.brain.line.gates,
        learns: spec.brain.learns_costs,
        classes: classes
            .iter()
            .map(|(id, it)| ClassLine {
                name: it.name.clone(),
                weight: f64::from(it.weight.thousandths()) / 1e3,
                wait_max_ms: span_ms(it.wait_max),
                first_token_ms: it.promise.first_token.map(span_ms),
                token_gap_ms: it.promise.token_gap.map(span_ms),
                is_default: id == classes.default_id(),
            })
            .collect(),
        costs: costs.collect(),
        replicas,
    }
}
