//! Debian's Prometheus, unpacked and not installed, with a copy of the rules that does not wait.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::debian;
use crate::http1::{self, free_address};
use crate::server::Server;

const START_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Prometheus {
    address: SocketAddr,
    _server: Server,
}

#[derive(Deserialize)]
struct AlertsPage {
    data: AlertList,
}

#[derive(Deserialize)]
struct AlertList {
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    state: String,
    labels: AlertLabels,
}

#[derive(Deserialize)]
struct AlertLabels {
    alertname: String,
}

#[derive(Deserialize)]
struct QueryPage {
    error: Option<String>,
    data: Option<QueryData>,
}

#[derive(Deserialize)]
struct QueryData {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    value: (f64, String),
}

impl Prometheus {
    pub(super) fn start(folder: &Path, rules: &str, targets: &[SocketAddr]) -> Result<Self> {
        let address = free_address()?;
        fs::write(folder.join("alerts.yml"), hurried(rules))?;
        let targets: Vec<String> = targets.iter().map(|it| format!("\"{it}\"")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [alerts.yml]\n\
             scrape_configs:\n  - job_name: cleave\n    static_configs: [{{targets: [{}]}}]\n",
            targets.join(", ")
        );
        fs::write(folder.join("prometheus.yml"), config)?;
        let mut command = Command::new(debian::unpack("prometheus")?.join("usr/bin/prometheus"));
        command.arg("--config.file").arg(folder.join("prometheus.yml"));
        command.arg("--storage.tsdb.path").arg(folder.join("data"));
        command.arg(format!("--web.listen-address={address}"));
        let mut server = Server::start("prometheus", &mut command, folder)?;
        let is_up = || http1::is_up(address, "/-/ready");
        server.wait_for(START_LIMIT, |_| is_up().then_some(()))?;
        Ok(Self { address, _server: server })
    }

    /// Names the alerts that fire.
    pub(super) fn firing(&self) -> Result<Vec<String>> {
        let page: AlertsPage = serde_json::from_slice(&self.get("/api/v1/alerts")?)?;
        let firing = page.data.alerts.into_iter().filter(|it| it.state == "firing");
        Ok(firing.map(|it| it.labels.alertname).collect())
    }

    /// Asks a query; tells whether it gives a number at all.
    pub(super) fn has_data(&self, query: &str) -> Result<bool> {
        let path = format!("/api/v1/query?query={}", escaped(query));
        let page: QueryPage = serde_json::from_slice(&self.get(&path)?)?;
        ensure!(page.error.is_none(), "{query}: {}", page.error.unwrap_or_default());
        let result = page.data.context("an answer has data")?.result;
        Ok(result.iter().any(|it| it.value.1 != "NaN"))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>> {
        Ok(http1::get_as("none", self.address, path)?.1)
    }
}

/// Lists the alerts of a file of rules.
pub(super) fn alert_names(rules: &str) -> Vec<String> {
    let names = rules.lines().filter_map(|it| it.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

/// Makes every waiting time a second and every range twenty.
fn hurried(rules: &str) -> String {
    let line = |line: &str| {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim_start().starts_with("for: ") {
            return format!("{indent}for: 1s\n");
        }
        let mut pieces = line.split('[');
        let mut written = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let range = piece.split(']').next().unwrap_or_default();
            let is_range = range.ends_with(['s', 'm', 'h'])
                && range.starts_with(|it: char| it.is_ascii_digit());
            let rest =
                if is_range { format!("20s{}", &piece[range.len()..]) } else { piece.to_owned() };
            written = format!("{written}[{rest}");
        }
        written + "\n"
    };
    rules.lines().map(line).collect()
}

/// Escapes a query for a path.
fn escaped(text: &str) -> String {
    let byte = |it: u8| match it {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => char::from(it).to_string(),
        _ => format!("%{it:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_hurried_and_nothing_else_of_them_changes() {
        let rules = "      - alert: A\n        expr: rate(a{b=\"[1]\"}[5m]) / rate(b[1h]) > 0.02\n        for: 10m\n";
        let want = "      - alert: A\n        expr: rate(a{b=\"[1]\"}[20s]) / rate(b[20s]) > 0.02\n        for: 1s\n";
        assert_eq!(hurried(rules), want);
        assert_eq!(alert_names(rules), ["A"]);
    }

    #[test]
    fn a_query_fits_into_a_path() {
        assert_eq!(
            escaped("a{b=~\".*\"} > 1"),
            "a%7Bb%3D~%22.%2A%22%7D%20%3E%201".replace('~', "%7E")
        );
    }
}
