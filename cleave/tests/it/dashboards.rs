//! What dashboards and alert rules ask for exists: every metric, with every label that is named beside it. What
//! exists is what the guide lists, and another test holds that against what the router writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Labels that Prometheus adds, and that of buckets.
const COMMON: [&str; 3] = ["instance", "job", "le"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The labels of each metric, as the guide lists them.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let guide = fs::read_to_string(repository().join("docs/guide/metrics.md")).unwrap();
    let mut known = BTreeMap::new();
    for line in guide.lines() {
        let mut cells = line.trim_matches('|').split(" | ");
        let (Some(name), Some(labels)) = (cells.next(), cells.next()) else { continue };
        let Some(name) = name.trim().strip_prefix('`').and_then(|it| it.strip_suffix('`')) else {
            continue;
        };
        // What follows an equals sign are values.
        let labels = labels.split("`, `").filter_map(|it| it.split('`').find(|it| !it.is_empty()));
        let labels = labels.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
        known.insert(name.to_owned(), labels.collect());
    }
    known
}

/// The files that ask for metrics, with the expressions in them.
fn asked() -> Vec<(String, String)> {
    let deploy = repository().join("deploy");
    let boards = fs::read_dir(deploy.join("grafana")).unwrap().map(|it| it.unwrap().path());
    let files = boards.chain([deploy.join("alerts.yml")]);
    let asked = files.flat_map(|file| {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        // One line of a board is one expression; a rule may go on over lines.
        let is_board = file.extension().is_some_and(|it| it == "json");
        let lines: Vec<String> = if is_board {
            let asks = |it: &&str| it.contains("\"expr\"") || it.contains("\"definition\"");
            text.lines().filter(asks).map(|it| it.replace("\\\"", "\"")).collect()
        } else {
            text.split("- alert:")
                .skip(1)
                .map(|it| it.split("labels:").next().unwrap().to_owned())
                .collect()
        };
        lines.into_iter().map(move |it| (name.clone(), it))
    });
    asked.collect()
}

/// Finds names of metrics with the labels in braces after them.
fn named(expression: &str) -> Vec<(&str, Vec<&str>)> {
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let mut found = Vec::new();
    for prefix in ["cleave_", "process_"] {
        for (at, _) in expression.match_indices(prefix) {
            if expression[..at].ends_with(is_name) {
                continue;
            }
            let rest = &expression[at..];
            let end = rest.find(|it| !is_name(it)).unwrap_or(rest.len());
            let labels = rest[end..].strip_prefix('{').and_then(|it| it.split('}').next());
            let labels =
                labels.unwrap_or_default().split(',').filter_map(|it| it.split(['=', '!']).next());
            found.push((&rest[..end], labels.filter(|it| !it.is_empty()).collect()));
        }
    }
    found
}

#[test]
fn dashboards_and_rules_ask_only_for_what_exists() {
    let known = known();
    let (mut metrics, mut files) = (BTreeSet::new(), BTreeSet::new());
    for (file, expression) in asked() {
        let mut usable: BTreeSet<&str> = COMMON.into();
        for (name, labels) in named(&expression) {
            let plain = name.trim_end_matches("_bucket");
            let own = known.get(plain).unwrap_or_else(|| panic!("{file}: {name} does not exist"));
            for label in labels {
                assert!(own.contains(label), "{file}: {name} has no label {label}: {expression}");
            }
            usable.extend(own.iter().map(String::as_str));
            metrics.insert(plain.to_owned());
        }
        for group in expression.split("by (").skip(1) {
            for label in group.split(')').next().unwrap().split(',').map(str::trim) {
                assert!(usable.contains(label), "{file}: nothing has {label}: {expression}");
            }
        }
        files.insert(file);
    }
    assert_eq!(files.len(), 6, "{files:?}");
    assert!(40 < metrics.len(), "{}", metrics.len());
}

#[test]
fn dashboards_are_json_with_panels_of_their_own() {
    #[derive(serde::Deserialize)]
    struct Board {
        uid: String,
        title: String,
        panels: Vec<Panel>,
    }
    #[derive(serde::Deserialize)]
    struct Panel {
        id: u32,
        title: String,
        description: String,
    }
    for file in fs::read_dir(repository().join("deploy/grafana")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let board: Board = serde_json::from_str(&text).unwrap();
        assert!(board.uid.starts_with("cleave-") && board.title.starts_with("Cleave: "));
        let ids: BTreeSet<u32> = board.panels.iter().map(|it| it.id).collect();
        assert_eq!(ids.len(), board.panels.len(), "{}", board.title);
        assert!(board.panels.iter().all(|it| !it.title.is_empty() && !it.description.is_empty()));
    }
}

#[test]
#[ignore = "needs promtool, which `cargo xtask test --only promtool` brings"]
fn promtool_finds_the_rules_sound() {
    let rules = repository().join("deploy/alerts.yml");
    let checked = Command::new("promtool").args(["check", "rules"]).arg(rules).output();
    let checked = checked.expect("promtool is on the path");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
