//! `cleave check-config`: says everything that is wrong with a configuration, or in a few lines
//! what it amounts to. It starts nothing and contacts nothing, so it can run anywhere.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use cleave_io::config::{self, Config, Flags};
use cleave_io::coordination::PeerAddress;

/// Check a configuration and say all that is wrong with it
#[derive(Debug, clap::Args)]
pub(crate) struct CheckConfig {
    /// The file to check; without it, the environment alone
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the JSON schema of the file instead
    #[arg(long)]
    print_schema: bool,
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
            ExitCode::SUCCESS
        }
        Err(problems) => {
            _ = writeln!(std::io::stderr(), "{problems}");
            ExitCode::from(crate::EX_USAGE)
        }
    }
}

/// Writes what the configuration amounts to.
fn summary(config: &Config) -> String {
    let Config { proxy, pools, discover, tenants: _, admin, cluster, telemetry: _ } = config;
    let scheme = if proxy.tls.is_some() { "https" } else { "http" };
    let guard = if admin.token.is_some() { "with a token" } else { "without a token" };
    let mut text = format!(
        "ok\nclients: {scheme}://{}, {} threads\nadmin: http://{}, {guard}\n",
        proxy.listen, proxy.threads, admin.listen
    );
    if let Some(cluster) = cluster {
        let peers: Vec<&str> = cluster.peers.iter().map(PeerAddress::as_str).collect();
        let peers = if peers.is_empty() { "those that join".to_owned() } else { peers.join(", ") };
        writeln!(text, "other routers: on {}, with {peers}", cluster.listen).expect("text grows");
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
        }
    }
    text
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
        assert_eq!(summary(&config), want);
    }
}
