//! `cleave check-config`: says everything that is wrong with a configuration, or in a few lines
//! what it amounts to. It starts nothing, and contacts nothing unless it is told to ask the replicas, so it
//! can run anywhere.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use cleave_core::queue::{Class, Classes, Limits};
use cleave_io::config::{self, Config, Flags};
use cleave_io::coordination::PeerAddress;
use cleave_io::proxy::{ReplicaSettings, TenantSettings};
use cleave_io::replicas::{Listed, ProbeSettings, Target, Trouble, ask_models, probe};
use humantime::format_duration;

/// Check a configuration and say all that is wrong with it
#[derive(Debug, clap::Args)]
pub(crate) struct CheckConfig {
    /// The file to check; without it, the environment alone
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the JSON schema of the file instead
    #[arg(long)]
    print_schema: bool,
    /// Also ask every listed replica for its health and its models
    #[arg(long)]
    probe: bool,
}

/// Prints "ok" and a summary, or every problem.
pub(crate) fn run(args: &CheckConfig) -> ExitCode {
    // A reader that has seen enough closes the pipe; that is no failure of the check.
    if args.print_schema {
        _ = std::io::stdout().write_all(config::schema().as_bytes());
        return ExitCode::SUCCESS;
    }
    match config::load(args.config.as_deref(), config::environment(), Flags::default()) {
        Ok(config) => {
            _ = std::io::stdout().write_all(summary(&config).as_bytes());
            if args.probe { ask_replicas(&config) } else { ExitCode::SUCCESS }
        }
        Err(problems) => {
            _ = writeln!(std::io::stderr(), "{problems}");
            ExitCode::from(crate::EX_USAGE)
        }
    }
}

/// Writes what the configuration amounts to.
fn summary(config: &Config) -> String {
    let Config { proxy, pools, discover, tenants, admin, cluster, certificates, .. } = config;
    let scheme = if proxy.tls.is_some() { "https" } else { "http" };
    let guard = match admin.tokens.len() {
        0 => "without a token".to_owned(),
        1 => "with a token".to_owned(),
        count => format!("with {count} tokens"),
    };
    let admin_scheme = if admin.tls.is_some() { "https" } else { "http" };
    let mut text = format!(
        "ok\nclients: {scheme}://{}, {} threads\nadmin: {admin_scheme}://{}, {guard}\n",
        proxy.listen, proxy.threads, admin.listen
    );
    if let Some(cluster) = cluster {
        let peers: Vec<&str> = cluster.peers.iter().map(PeerAddress::as_str).collect();
        let peers = if peers.is_empty() { "those that join".to_owned() } else { peers.join(", ") };
        let guard = match (&cluster.tls, &cluster.secret) {
            (Some(_), Some(_)) => "by certificates and a secret",
            (Some(_), None) => "by certificates",
            (None, Some(_)) => "by a secret",
            (None, None) => "on this machine only",
        };
        writeln!(text, "other routers: on {}, with {peers}, {guard}", cluster.listen)
            .expect("text grows");
    }
    for pool in pools {
        let models = match pool.models.as_slice() {
            [] => "whatever its replicas serve".to_owned(),
            models => models.join(", "),
        };
        let name = &pool.name;
        writeln!(text, "pool {name}: {models}, by {}", pool.brain.policy).expect("text grows");
        for (alias, model) in &pool.aliases {
            writeln!(text, "  alias {alias} for {model}").expect("text grows");
        }
        for replica in &pool.replicas {
            let (origin, weight) = (&replica.origin, replica.weight);
            let class = &replica.hardware.class;
            writeln!(text, "  replica {origin}, weight {weight}, priced as {class}")
                .expect("text grows");
        }
        if let Some(source) = discover.get(&pool.name) {
            writeln!(text, "  and those found at {source}").expect("text grows");
        } else if let Some(warning) = tenants.overcommitment(pool) {
            writeln!(text, "warning: {warning}").expect("text grows");
        }
    }
    // All pools have the same classes.
    if let Some(classes) = pools.first().map(|it| &it.brain.line.classes) {
        for (_, class) in classes.iter() {
            writeln!(text, "{}", class_line(class)).expect("text grows");
        }
        for tenant in tenants {
            writeln!(text, "{}", tenant_line(tenant, classes)).expect("text grows");
        }
    }
    if admin.tokens.is_empty() && !admin.listen.ip().is_loopback() {
        let address = admin.listen;
        writeln!(
            text,
            "warning: the admin port {address} is open beyond this machine and asks for no token"
        )
        .expect("text grows");
    }
    let now = SystemTime::now();
    for certificate in certificates {
        let warning = if certificate.ending(now).is_some() { "warning: " } else { "" };
        writeln!(text, "{warning}{}", certificate.describe(now)).expect("text grows");
    }
    text
}

fn class_line(class: &Class) -> String {
    let Class { name, weight, promise, wait_max } = class;
    let weight = f64::from(weight.thousandths()) / 1000.0;
    let span = |what: &str, it: Option<Duration>| {
        it.map(|it| format!(", {what} within {}", format_duration(it))).unwrap_or_default()
    };
    let first = span("first token", promise.first_token);
    let gap = span("each next", promise.token_gap);
    format!(
        "class {name}: weight {weight}{first}{gap}, waits at most {}",
        format_duration(*wait_max)
    )
}

fn tenant_line(tenant: &TenantSettings, classes: &Classes) -> String {
    let names: Vec<&str> = tenant.classes.iter().map(|it| classes.get(*it).name.as_str()).collect();
    let names = if names.is_empty() { "all classes".to_owned() } else { names.join(", ") };
    let weight = f64::from(tenant.weight.thousandths()) / 1000.0;
    let mut line = format!(
        "tenant {}: {} keys, {names}, weight {weight}, {}",
        tenant.name,
        tenant.keys.len(),
        contract(&tenant.limits)
    );
    for (pool, limits) in &tenant.pool_limits {
        write!(line, "; in {pool} {}", contract(limits)).expect("text grows");
    }
    line
}

fn contract(limits: &Limits) -> String {
    let Limits { work_per_min, tokens_per_min, requests_per_min, burst, is_hard } = limits;
    let parts = [
        work_per_min.map(|it| format!("{} MU", it.as_mu())),
        tokens_per_min.map(|it| format!("{it} tokens")),
        requests_per_min.map(|it| format!("{it} requests")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "no contract".to_owned();
    }
    let hard = if *is_hard { ", hard" } else { "" };
    format!("{} a minute, burst {}{hard}", parts.join(", "), format_duration(*burst))
}

/// Asks every listed replica as the router would, and says what it found.
fn ask_replicas(config: &Config) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return ExitCode::FAILURE };
    let mut all_well = true;
    for pool in &config.pools {
        for ReplicaSettings { origin, access, .. } in &pool.replicas {
            let found = runtime.block_on(ask(Target { origin, access }, &pool.probe));
            all_well &= found.is_ok();
            let found = found.unwrap_or_else(|it| format!("{}: {}", it.word, it.detail));
            _ = writeln!(std::io::stdout(), "probe {origin}: {found}");
        }
    }
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn ask(at: Target<'_>, settings: &ProbeSettings) -> Result<String, Trouble> {
    if let (_, Some(trouble)) = probe(at, settings).await {
        return Err(trouble);
    }
    match ask_models(at, settings.timeout).await {
        Listed::Models(models) => {
            let names: Vec<&str> = models.iter().map(|it| it.id.as_str()).collect();
            Ok(format!("up, serves {}", names.join(", ")))
        }
        Listed::Silent => Ok("up, lists no models".to_owned()),
        Listed::Unauthorized => {
            let detail =
                "it does not list its models for the key that is configured, or without one";
            Err(Trouble::new("unauthorized", detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_shows_what_will_be_served_where_and_no_secret() {
        let variables = [
            ("CLEAVE__THREADS", "2"),
            ("CLEAVE__ADMIN__TOKEN", "hunter2"),
            ("CLEAVE__POOLS__0__NAME", "chat"),
            ("CLEAVE__POOLS__0__MODELS", "[\"m\", \"n\"]"),
            ("CLEAVE__POOLS__0__ALIASES__X", "m"),
            ("CLEAVE__POOLS__0__REPLICAS", "[{ url = \"http://a:1\", weight = 0.5 }]"),
            ("CLEAVE__POOLS__1__NAME", "later"),
            ("CLEAVE__POOLS__1__POLICY", "random"),
            ("CLEAVE__API_KEY", "hunter2"),
            (
                "CLEAVE__TENANTS",
                "[{ name = \"acme\", classes = [\"batch\"], contract = { tokens_per_min = 5 }, key_sha256 = \
                 [\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"] }]",
            ),
        ];
        let variables = variables.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let config = config::load(None, variables.into_iter(), Flags::default()).unwrap();
        let want = "ok\n\
                    clients: http://127.0.0.1:8080, 2 threads\n\
                    admin: http://127.0.0.1:9090, with a token\n\
                    pool chat: m, n, by priced\n  \
                      alias x for m\n  \
                      replica http://a:1, weight 0.5, priced as h200\n\
                    pool later: whatever its replicas serve, by random\n";
        let text = summary(&config);
        assert!(text.starts_with(want) && !text.contains("hunter2"), "{text}");
        assert!(text.contains("class interactive: weight 16"), "{text}");
        let tenant = "tenant acme: 1 keys, batch, weight 1, 5 tokens a minute";
        assert!(text.contains(tenant), "{text}");
    }

    #[test]
    fn contracts_that_cannot_all_be_kept_are_warned_of() {
        let warned = |mu_per_min: &str| {
            let variables = [
                ("CLEAVE__REPLICAS", "[\"http://a:1\", \"http://b:1\"]".to_owned()),
                (
                    "CLEAVE__TENANTS",
                    format!(
                        "[{{ name = \"t\", key_sha256 = [\"{}\"], contract = {{ mu_per_min = {mu_per_min} }} }}]",
                        "0".repeat(64)
                    ),
                ),
            ];
            let variables = variables.map(|(name, text)| (name.to_owned(), text));
            let config = config::load(None, variables.into_iter(), Flags::default()).unwrap();
            summary(&config).contains("warning: contracts for pool default add up to")
        };
        assert!(!warned("10.0"));
        assert!(warned("100000.0"));
    }
}
