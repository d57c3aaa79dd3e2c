//! What the file, the environment and the flags add up to.

use std::collections::BTreeSet;
use std::time::Duration;

use cleave_core::policy::PolicyKind;

use super::{Config, ENOUGH, Flags, changes_static, leaves, lines, load_all, load_text};
use crate::config::shape::{Applies, Shape};

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let file = "listen = \"1.1.1.1:1\"\npolicy = \"random\"\n[admin]\nlisten = \"1.1.1.1:2\"\n";
    let variables = [("CLEAVE__LISTEN", "2.2.2.2:1"), ("CLEAVE__ADMIN__LISTEN", "2.2.2.2:2")];
    let flags = Flags {
        listen: Some("3.3.3.3:1".to_owned()),
        replicas: vec!["http://a:1".to_owned(), "http://b:1".to_owned()],
        ..Flags::default()
    };
    let config = load_all(file, &variables, flags).unwrap();
    assert_eq!(config.proxy.listen.to_string(), "3.3.3.3:1");
    assert_eq!(config.admin.listen.to_string(), "2.2.2.2:2");
    let [pool] = config.pools.as_slice() else { panic!("one pool: {:?}", config.pools) };
    assert_eq!((pool.name.as_str(), pool.brain.policy), ("default", PolicyKind::RANDOM));
    let origins: Vec<&str> = pool.replicas.iter().map(|it| it.origin.as_str()).collect();
    assert_eq!(origins, ["http://a:1", "http://b:1"]);
}

#[test]
fn a_variable_reaches_every_depth_and_needs_no_quotes() {
    let file = "[[pools]]\nname = \"a\"\nreplicas = [\"http://a:1\"]\n[pools.aliases]\nGPT = \"m\"";
    let variables = [
        ("CLEAVE__LIMITS__BODY_MIB_MAX", "64"),
        ("cleave__timeouts__idle", "10m"),
        ("CLEAVE__SESSIONS__HEADERS", "[\"x-a\", \"x-b\"]"),
        ("CLEAVE__LOG__ACCESS", "false"),
        ("CLEAVE__ADMIN__TOKEN", "12345"),
        ("CLEAVE__POOLS__0__POLICY", "random"),
        ("CLEAVE__POOLS__0__ALIASES__GPT", "n"),
        ("CLEAVE__POOLS__0__REPLICAS__1", "{ url = \"http://b:1\", weight = 2 }"),
        ("CLEAVE__POOLS__0__REPLICAS__2__URL", "http://c:1"),
        ("CLEAVE__POOLS__1__NAME", "7"),
        ("CLEAVE_LOG", "not ours"),
        ("PATH", "/bin"),
    ];
    let config = load_all(file, &variables, Flags::default()).unwrap();
    assert_eq!(config.proxy.limits.body_bytes_max, 64 << 20);
    assert_eq!(config.proxy.timeouts.idle, Duration::from_secs(600));
    assert_eq!(config.proxy.session_headers, ["x-a", "x-b"]);
    assert!(!config.telemetry.access_log);
    assert_eq!(config.admin.tokens[0].token.0, "12345");
    let [first, second] = config.pools.as_slice() else { panic!("two pools: {:?}", config.pools) };
    assert_eq!((first.brain.policy, second.name.as_str()), (PolicyKind::RANDOM, "7"));
    assert_eq!(first.aliases.get("GPT"), Some(&"n".to_owned()));
    let weights: Vec<f64> = first.replicas.iter().map(|it| it.weight).collect();
    assert_eq!(weights, [1.0, 2.0, 1.0]);
}

#[test]
fn index_nine_comes_before_index_ten() {
    let variables: Vec<(String, String)> = (0..12)
        .rev()
        .map(|at| (format!("CLEAVE__REPLICAS__{at}"), format!("http://r{at}:1")))
        .collect();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let config = load_all("", &variables, Flags::default()).unwrap();
    assert_eq!(config.pools[0].replicas[11].origin.as_str(), "http://r11:1");
}

#[test]
fn a_problem_names_the_variable_or_the_flag_it_came_from() {
    let variables = [
        ("CLEAVE__LIMITS__BODY_MIB_MAX", "none"),
        ("CLEAVE__LIMITS__BODY_MAX", "3"),
        ("CLEAVE__LISTEN__PORT", "3"),
        ("CLEAVE__REPLICAS__7", "http://b:1"),
        ("CLEAVE__REPLICAS__0__WEIGHT", "2"),
        ("CLEAVE__LOG", "{ format = \"xml\" }"),
        ("CLEAVE__THREADS", "4"),
        ("cleave__threads", "5"),
    ];
    let flags = Flags {
        admin: Some("9090".to_owned()),
        policy: Some("sessions".to_owned()),
        ..Flags::default()
    };
    let want = [
        "CLEAVE__LIMITS__BODY_MAX: limits.body_max: unknown key; did you mean `body_mib_max`?",
        "CLEAVE__LIMITS__BODY_MIB_MAX: limits.body_mib_max: is text; give a whole number from 1 to \
         4096",
        "CLEAVE__LISTEN__PORT: listen: nothing can be set inside, because it is text; give a \
         listen address such as \"127.0.0.1:8080\"",
        "CLEAVE__LOG: log.format: xml is not a choice; give one of \"text\", \"json\"",
        "CLEAVE__REPLICAS__0__WEIGHT: replicas[0]: nothing can be set inside, because it is text; \
         give a replica address such as \"http://gpu-0:8000\" or a table of url, weight, class, \
         zone, api_key, api_key_file, engine_tls",
        "CLEAVE__REPLICAS__7: replicas.7: is no index of the list; the next free index is 1",
        "cleave__threads: says the same as CLEAVE__THREADS; unset one of the two",
        "--admin: admin.listen: is not an address to listen on; write it as IP:PORT, for example \
         127.0.0.1:8080, or 0.0.0.0:8080 for every interface",
        "--policy: policy: sessions is not a choice; did you mean \"session\"? give one of \
         \"priced\", \"session\", \"round_robin\", \"random\", \"least_requests\", \
         \"power_of_two\"",
    ];
    assert_eq!(lines(load_all(ENOUGH, &variables, flags)), want);
}

#[test]
fn replica_flags_beside_pools_are_refused() {
    let flags = Flags { replicas: vec!["http://a:1".to_owned()], ..Flags::default() };
    let result = load_all("[[pools]]\nname = \"a\"", &[], flags);
    let want = "--replica: replicas: are given beside pools; move these replicas into a pool, or \
                remove the pools";
    assert_eq!(lines(result), [want]);
}

/// A value other than the default for every setting that needs a restart.
const OTHERS: [(&str, &str); 58] = [
    ("listen", "127.0.0.1:1"),
    ("threads", "1023"),
    ("policy", "random"),
    ("learn_costs", "false"),
    ("admin.listen", "127.0.0.1:1"),
    ("admin.keda_listen", "127.0.0.1:1"),
    ("admin.token", "other"),
    ("timeouts.drain_delay", "3s"),
    ("admin.audit_file", "/dev/null"),
    ("paths.allow", "[\"/ping\"]"),
    ("limits.body_mib_max", "1"),
    ("limits.buffered_mib_max", "999"),
    ("limits.connections_max", "1"),
    ("timeouts.header", "1ms"),
    ("timeouts.body_whole", "1ms"),
    ("timeouts.write", "1ms"),
    ("limits.client_kib_per_s_min", "2"),
    ("admin.hosts", "[\"a\"]"),
    ("timeouts.body", "1ms"),
    ("timeouts.connect", "1ms"),
    ("timeouts.first_byte", "1ms"),
    ("timeouts.idle", "1ms"),
    ("timeouts.drain", "1ms"),
    ("sessions.headers", "[]"),
    ("sessions.table_mib", "1"),
    ("sessions.ids_mib", "1"),
    ("sessions.ttl", "1ms"),
    ("subsets.floor", "3"),
    ("subsets.cap", "7"),
    ("subsets.spill_after", "9ms"),
    ("subsets.spill_max", "1"),
    ("subsets.workload_header", "x-workload"),
    ("subsets.state_dir", "other"),
    ("retries.tries_max", "1"),
    ("retries.share", "0"),
    ("retries.reserve", "1"),
    ("breaker.failures_max", "1"),
    ("breaker.open", "1ms"),
    ("breaker.open_max", "9h"),
    ("health.path", "/other"),
    ("health.interval", "1ms"),
    ("health.timeout", "1ms"),
    ("health.report_interval", "1ms"),
    ("health.token_after", "1ms"),
    ("quarantine.enabled", "false"),
    ("quarantine.ttl", "1ms"),
    ("explain.sample", "1"),
    ("explain.kept_max", "1"),
    ("explain.clients", "true"),
    ("keys.cache_secret", "0123456789abcdef"),
    ("line.hold", "false"),
    ("line.length_max", "1"),
    ("line.waiting_mib_max", "1"),
    ("line.gate", "true"),
    ("line.kv_share", "0.5"),
    ("log.format", "json"),
    ("log.level", "warn"),
    ("log.access", "false"),
];

fn changes(file: &str, variables: &[(&str, &str)]) -> Vec<&'static str> {
    let config = |variables| load_all(file, variables, Flags::default()).unwrap();
    changes_static(&config(&[]), &config(variables))
}

/// These come to light under another name: the token, the policy, the classes, the workloads, the other
/// routers, the traces, the recordings.
const UNDER_ANOTHER_NAME: [&str; 58] = [
    "admin.token_file",
    "admin.tokens.name",
    "admin.tokens.rights",
    "admin.tokens.token",
    "admin.tokens.token_file",
    "classes.first_token",
    "classes.name",
    "classes.token_gap",
    "classes.wait_max",
    "classes.weight",
    "cluster.advertise",
    "cluster.discover",
    "cluster.etcd.endpoints",
    "cluster.etcd.lease",
    "cluster.etcd.password",
    "cluster.etcd.password_file",
    "cluster.etcd.prefix",
    "cluster.etcd.tls.ca",
    "cluster.etcd.tls.cert",
    "cluster.etcd.tls.key",
    "cluster.etcd.tls.server_name",
    "cluster.etcd.user",
    "cluster.kubernetes.kubeconfig",
    "cluster.kubernetes.lease",
    "cluster.kubernetes.name",
    "cluster.kubernetes.namespace",
    "cluster.kubernetes.port",
    "cluster.kubernetes.selector",
    "cluster.listen",
    "cluster.peers",
    "cluster.secret",
    "cluster.secret_file",
    "cluster.store",
    "keys.cache_secret_file",
    "line.default_class",
    "pools.policy",
    "record.dir",
    "record.enabled",
    "record.file_mib_max",
    "record.total_mib_max",
    "traces.endpoint",
    "traces.follow_parent",
    "traces.headers",
    "traces.interval",
    "traces.protocol",
    "traces.sample",
    "traces.service_name",
    "traces.timeout",
    "traces.tls.ca",
    "traces.tls.cert",
    "traces.tls.key",
    "traces.tls.server_name",
    "workloads.cap",
    "workloads.floor",
    "workloads.isolation",
    "workloads.name",
    "workloads.spill",
    "workloads.workload",
];

#[test]
fn every_setting_that_needs_a_restart_is_named_when_it_changes() {
    let mut unseen: BTreeSet<String> = leaves(&Shape::of_file())
        .into_iter()
        .filter(|(_, applies)| *applies == Applies::Restart)
        .map(|(path, _)| path)
        .collect();
    for (path, other) in OTHERS {
        let variable = format!("CLEAVE__{}", path.replace('.', "__").to_uppercase());
        assert_eq!(changes(ENOUGH, &[(&variable, other)]), [path]);
        assert!(unseen.remove(path), "{path} is not in the schema");
    }
    let pool = "[[pools]]\nname = \"a\"\nreplicas = [\"http://a:1\"]";
    assert_eq!(changes(pool, &[("CLEAVE__POOLS__0__POLICY", "random")]), ["policy"]);
    assert_eq!(changes(ENOUGH, &[("CLEAVE__LINE__DEFAULT_CLASS", "batch")]), ["classes"]);
    let class = "{ name = \"standard\", weight = 2.0, first_token = \"1s\", token_gap = \"50ms\", wait_max = \"1s\" }";
    assert_eq!(changes(ENOUGH, &[("CLEAVE__CLASSES__0", class)]), ["classes"]);
    let workload = "{ workload = \"1a2b3c4d\", name = \"nightly\" }";
    assert_eq!(changes(ENOUGH, &[("CLEAVE__WORKLOADS__0", workload)]), ["workloads"]);
    let cluster = "{ listen = \"127.0.0.1:1\" }";
    assert_eq!(changes(ENOUGH, &[("CLEAVE__CLUSTER", cluster)]), ["cluster"]);
    let collector = ("CLEAVE__TRACES__ENDPOINT", "http://127.0.0.1:4318");
    assert_eq!(changes(ENOUGH, &[collector]), ["traces"]);
    let recorded = ("CLEAVE__RECORD__DIR", "/recordings");
    assert_eq!(changes(ENOUGH, &[recorded]), ["record"]);
    assert_eq!(unseen.into_iter().collect::<Vec<_>>(), UNDER_ANOTHER_NAME);
}

#[test]
fn what_may_change_while_running_is_not_named() {
    let file = "[[pools]]\nname = \"a\"\nmodels = [\"m\"]\nreplicas = [\"http://a:1\"]";
    let live = [
        ("CLEAVE__POOLS__0__MODELS__1", "n"),
        ("CLEAVE__POOLS__0__ALIASES__X", "m"),
        ("CLEAVE__POOLS__0__REPLICAS", "[{ url = \"http://b:1\", weight = 0.5 }]"),
        ("CLEAVE__POOLS__0__CACHE", "per_tenant"),
        ("CLEAVE__FORWARD_CREDENTIALS", "true"),
        ("CLEAVE__POOLS__0__ENGINE_FIELDS__ALLOW", "[\"priority\"]"),
        ("CLEAVE__POOLS__0__ENGINE_HEADERS__ALLOW", "[\"x-override-*\"]"),
        ("CLEAVE__POOLS__1__NAME", "b"),
    ];
    assert_eq!(changes(file, &live), [""; 0]);
}

#[test]
fn the_token_is_read_from_its_file() {
    let file = std::env::temp_dir().join(format!("cleave-token-{}", std::process::id()));
    let variable = ("CLEAVE__ADMIN__TOKEN_FILE", file.to_str().unwrap());
    let load = |content: &str| {
        std::fs::write(&file, content).unwrap();
        load_all(ENOUGH, &[variable], Flags::default())
    };
    assert_eq!(load("hunter2\n").unwrap().admin.tokens[0].token.0, "hunter2");
    let wrong = "CLEAVE__ADMIN__TOKEN_FILE: admin.token_file: is empty; give a token, or leave \
                 the key out";
    assert_eq!(lines(load("\n")), [wrong]);
    assert!(!lines(load("hunter 2")).concat().contains("hunter"));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_nobody_sets_is_as_the_other_rooms_default_it() {
    let Config { proxy, pools, discover, tenants, admin, cluster, telemetry, files, certificates } =
        load_text(ENOUGH).unwrap();
    assert!(discover.is_empty() && files.is_empty() && cluster.is_none());
    assert!(certificates.is_empty());
    assert_eq!(proxy.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(proxy.limits, crate::proxy::Limits::default());
    assert_eq!(proxy.timeouts, crate::proxy::Timeouts::default());
    assert_eq!(proxy.explain, crate::proxy::ExplainSettings::default());
    assert_eq!(proxy.session_headers, crate::proxy::default_session_headers());
    assert_eq!(tenants.limits("default"), []);
    assert_eq!(admin.listen.to_string(), "127.0.0.1:9090");
    assert_eq!(telemetry, crate::telemetry::LogSettings::default());
    assert_eq!(pools[0].brain, cleave_core::brain::Settings::default());
    assert_eq!(pools[0].probe, crate::replicas::ProbeSettings::default());
}
