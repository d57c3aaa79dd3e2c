//! What is written, and that the guide says the same.

use std::sync::Arc;
use std::time::Duration;

use cleave_core::brain::{Brain, MoveTotals, Settings, SubsetTotals, TtftError};
use cleave_core::cluster::LinkTotals;
use cleave_core::cost::learned::{Learner, Sighting, SightingKind};
use cleave_core::domain::Usage;
use cleave_core::fleet::Drift;
use cleave_core::sharding::Balance;
use cleave_core::tokens::TokenErrors;

use super::*;

/// A pool in which nothing has happened.
fn idle() -> PoolGauges {
    let shadows = Brain::new(Settings::default()).shadows();
    let mut learner = Learner::new(Arc::default());
    learner.see(
        SightingKind::Gaps,
        &Sighting { steps: 8.0, batch: 1.0, ms: 60.0, ..Sighting::default() },
    );
    PoolGauges {
        sessions_moved: MoveTotals::default(),
        quarantined_total: 0,
        misses: TokenErrors::default(),
        ttft_error: TtftError::default(),
        costs: vec![learner.learned()],
        workloads: Vec::new(),
        shadows,
    }
}

fn set_scale_and_certificates(metrics: &Metrics) {
    metrics.set_certificates([("clients", "/etc/cleave/tls.crt", 1_800_000_000)].into_iter());
    metrics.set_scale(
        "p",
        &ScaleGauges {
            wanted: 3,
            replicas: [("ready", 2), ("starting", 1), ("unhealthy", 0)],
            needed: [("forecast", 3), ("backlog", 1), ("memory", 1), ("floor", 0)],
            work: [("demand", 200.0), ("forecast", 240.0), ("capacity", 100.0)],
            start_up_s: 45.0,
            steps: [("done", 4), ("failed", 1)],
            replica_hours: 1.5,
        },
    );
}

#[test]
fn the_guide_lists_every_metric_and_no_other() {
    let metrics = Metrics::default();
    metrics.pool("p").on_refused("r");
    metrics.pool("p").on_counted("late");
    let served = ServedRequest {
        status: 200,
        stream: true,
        first_token: Some(Duration::from_secs(1)),
        gap: Some(Duration::from_millis(20)),
        total: Duration::from_secs(8),
        usage: Usage { input: Some(3), output: Some(2), cached: Some(1) },
        refused: Some("line_full"),
    };
    let handles = metrics.pool("p").replica("http://gpu-0:8000");
    handles.on_served(&served);
    handles.on_error("lost");
    metrics.pool("p").tenants.on_ended((1, "acme"), (0, "batch"), &served);
    metrics.on_error("unknown_key", 401);
    let replica = ReplicaGauges {
        replica: "http://gpu-0:8000",
        up: true,
        in_flight: 1,
        sessions: 2,
        sent_total: 3,
        failed_total: 4,
        report_age: Some(Duration::from_millis(1500)),
        in_flight_mu: 0.25,
        pace: 1.0,
        drift: Drift { predicted_us: 2_500_000, ..Drift::default() },
        denied_total: 5,
        is_drained: true,
        capacity_mu_per_min: 100.0,
        engine: Some((1, 2, 0.5)),
    };
    let workloads = vec![("acme × chat".to_owned(), replica.drift)];
    let own = PoolGauges { workloads, ..idle() };
    metrics.set_pool("p", &own, [replica].into_iter());
    let (totals, balance) = (SubsetTotals::default(), Balance::default());
    let (slices, hot_keys, planning) = (3, 1, Duration::from_millis(2));
    let assignment =
        AssignmentGauges { totals: &totals, balance: &balance, slices, hot_keys, planning };
    metrics.set_assignment("p", assignment);
    let contract_used = [("mu", Some(0.5)), ("tokens", None), ("requests", None)];
    let used_mu = [("burst", 2.5); 3];
    let tenant = TenantGauges { tenant: "t", waiting: 1, used_mu, contract_used };
    metrics.span_counters().sent.inc();
    metrics.record_counters().written.inc();
    metrics.on_lag("main", Duration::from_millis(1));
    metrics.pool("p").gen_ai.on_ended("chat", "m", &served);
    metrics.set_line("p", [("batch", 3)].into_iter(), &[tenant]);
    metrics.set_peers(&[PeerGauges {
        peer: "10.0.0.2:7400",
        lag: Duration::from_millis(3),
        totals: LinkTotals { bytes_told: 1, gaps: 3, ..LinkTotals::default() },
        in_flight: 7,
    }]);
    metrics.on_router_refused("plain");
    set_scale_and_certificates(&metrics);
    let text = metrics.write();
    let written = text.lines().filter_map(|it| it.strip_prefix("# TYPE "));
    let mut written: Vec<&str> = written.filter_map(|it| it.split(' ').next()).collect();
    let guide = include_str!("../../../../docs/guide/metrics.md");
    let listed = guide.lines().filter_map(|it| it.strip_prefix("| `")?.split('`').next());
    let mut listed: Vec<&str> = listed.map(|it| it.trim_end_matches("_total")).collect();
    written.sort_unstable();
    listed.sort_unstable();
    assert_eq!(written, listed);
    assert!(text.contains("cleave_replica_sent_total{pool=\"p\",replica=\"http://gpu-0:8000\"} 3"));
    assert!(text.contains("cleave_scale_wanted_replicas{pool=\"p\"} 3\n"), "{text}");
    assert!(text.contains("replica=\"http://gpu-0:8000\"} 1.5\n"));
    assert!(text.contains("workload=\"acme × chat\",kind=\"predicted\"} 2.5\n"), "{text}");
}

#[test]
fn tenants_beyond_a_hundred_are_counted_together() {
    let metrics = Metrics::default();
    let pool = metrics.pool("p");
    let served = ServedRequest {
        status: 429,
        stream: false,
        first_token: None,
        gap: None,
        total: Duration::ZERO,
        usage: Usage::default(),
        refused: None,
    };
    for number in 0..10_000_u64 {
        pool.tenants.on_ended((number, &format!("t-{number}")), (0, "standard"), &served);
    }
    let text = metrics.write();
    let other = "cleave_tenant_requests_total{pool=\"p\",tenant=\"other\",class=\"standard\",\
                 status_class=\"4xx\"} 9900";
    assert!(text.contains(other), "{text}");
    assert_eq!(text.matches("cleave_tenant_requests_total{").count(), 5 * 101);
}

#[test]
fn alerts_and_symptoms_name_only_metrics_that_exist() {
    let known = include_str!("../../../../docs/guide/metrics.md");
    let known: Vec<&str> = known.split('`').filter(|it| it.starts_with("cleave_")).collect();
    let pages = [
        include_str!("../../../../docs/guide/alerts.md"),
        include_str!("../../../../docs/guide/troubleshooting.md"),
    ];
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    for page in pages {
        let named: Vec<&str> =
            page.split(|it| !is_name(it)).filter(|it| it.starts_with("cleave_")).collect();
        assert!(!named.is_empty());
        for name in named {
            assert!(known.contains(&name.trim_end_matches("_bucket")), "{name} does not exist");
        }
    }
}

#[test]
fn beyond_some_number_tenants_are_summed() {
    let metrics = Metrics::default();
    let names: Vec<String> = (0..1_000).map(|it| format!("t{it}")).collect();
    let used_mu = [("guaranteed", 1.0), ("burst", 0.0), ("best_effort", 0.0)];
    let contract_used = [("mu", Some(0.5)); 3];
    let tenants = names.iter();
    let tenants = tenants.map(|it| TenantGauges { tenant: it, waiting: 1, used_mu, contract_used });
    let tenants: Vec<TenantGauges<'_>> = tenants.collect();
    metrics.set_line("p", std::iter::empty(), &tenants);
    let text = metrics.write();
    assert!(text.contains("cleave_tenant_waiting{pool=\"p\",tenant=\"other\"} 900"));
    assert_eq!(text.matches("cleave_tenant_waiting{").count(), 101);
}

#[test]
fn models_beyond_a_hundred_are_counted_together() {
    let metrics = Metrics::default();
    let pool = metrics.pool("p");
    let served = ServedRequest {
        status: 200,
        stream: false,
        first_token: None,
        gap: None,
        total: Duration::from_secs(1),
        usage: Usage::default(),
        refused: None,
    };
    for number in 0..1_000 {
        pool.gen_ai.on_ended("chat", &format!("m-{number}"), &served);
    }
    let text = metrics.write();
    let name = "gen_ai_server_request_duration_seconds_count{";
    assert_eq!(text.matches(name).count(), 101);
    let other = "gen_ai_operation_name=\"other\",gen_ai_provider_name=\"cleave\",\
                 gen_ai_request_model=\"other\"} 900";
    assert!(text.contains(&format!("{name}{other}")), "{text}");
}

#[test]
fn a_replica_that_left_is_not_reported() {
    let metrics = Metrics::default();
    let replica = ReplicaGauges {
        replica: "gone",
        up: true,
        in_flight: 0,
        sessions: 0,
        sent_total: 0,
        failed_total: 0,
        report_age: None,
        in_flight_mu: 0.0,
        pace: 1.0,
        drift: Drift::default(),
        denied_total: 0,
        is_drained: false,
        capacity_mu_per_min: 0.0,
        engine: None,
    };
    metrics.set_pool("p", &idle(), [replica].into_iter());
    metrics.clear_replicas();
    assert!(!metrics.write().contains("gone"));
}
