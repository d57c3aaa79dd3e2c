//! The dashboards: every query of every panel, with its variables meaning everything.

use std::fs;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::prometheus::Prometheus;
use crate::repo;

#[derive(Deserialize)]
struct Board {
    #[serde(default)]
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
struct Panel {
    #[serde(default)]
    title: String,
    #[serde(default)]
    targets: Vec<Target>,
    /// Of a row that is folded.
    #[serde(default)]
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
struct Target {
    expr: String,
}

/// Asks every query; returns how many there are, and those without data.
pub(super) fn check(prometheus: &Prometheus) -> Result<(usize, Vec<String>)> {
    let (mut count, mut empty) = (0, Vec::new());
    let mut files: Vec<_> = fs::read_dir(repo::root().join("deploy/grafana"))?
        .filter_map(|it| Some(it.ok()?.path()))
        .filter(|it| it.extension().is_some_and(|it| it == "json"))
        .collect();
    files.sort();
    for file in files {
        let shown = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let board: Board = serde_json::from_slice(&fs::read(&file)?)
            .with_context(|| format!("read {}", file.display()))?;
        for (title, query) in queries(board.panels) {
            count += 1;
            if !prometheus.has_data(&query)? {
                empty.push(format!("{shown}, panel {title}: {query}"));
            }
        }
    }
    Ok((count, empty))
}

/// Lists the queries of panels, each with the title of its panel.
fn queries(panels: Vec<Panel>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for Panel { title, targets, panels } in panels {
        found.extend(targets.into_iter().map(|it| (title.clone(), settled(&it.expr))));
        found.extend(queries(panels));
    }
    found
}

/// Puts values in place of Grafana's variables.
fn settled(query: &str) -> String {
    let query = query.replace("$__rate_interval", "20s").replace("$__range", "60s");
    ["$pool", "$replica", "$tenant"].iter().fold(query, |query, it| query.replace(it, ".*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_mean_everything_and_folded_panels_count() {
        let text = r#"{"panels":[{"title":"row","panels":[{"title":"a","targets":[
            {"expr":"rate(x{pool=~\"$pool\"}[$__rate_interval])"}]}]},{"type":"text"}]}"#;
        let board: Board = serde_json::from_str(text).unwrap();
        let want = ("a".to_owned(), "rate(x{pool=~\".*\"}[20s])".to_owned());
        assert_eq!(queries(board.panels), [want]);
    }
}
