//! Laws between crates, read off `cargo metadata`. A zone must not reach what it may not know, at
//! any depth: a helper crate that brings a runtime along breaks the law like the runtime itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::finding::Finding;

struct Law {
    zone: &'static str,
    manifest: &'static str,
    never: &'static [&'static str],
}

const LAWS: [Law; 3] = [
    Law {
        zone: "cleave-core",
        manifest: "core/Cargo.toml",
        never: &["tokio", "hyper", "tracing", "cleave-io", "cleave-sim"],
    },
    Law {
        zone: "cleave-sim",
        manifest: "sim/Cargo.toml",
        never: &["tokio", "hyper", "tracing", "cleave-io"],
    },
    Law { zone: "cleave-io", manifest: "io/Cargo.toml", never: &["cleave-sim"] },
];

/// What each package needs to be built or tested, by name.
#[derive(Debug, Default)]
pub(super) struct Graph(BTreeMap<String, BTreeSet<String>>);

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// Asks cargo what it resolved.
pub(super) fn read(root: &Path) -> Result<Graph> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parse(&output.stdout)
}

fn parse(json: &[u8]) -> Result<Graph> {
    let metadata: Metadata = serde_json::from_slice(json).context("read cargo's metadata")?;
    let names: BTreeMap<&str, &str> =
        metadata.packages.iter().map(|it| (it.id.as_str(), it.name.as_str())).collect();
    let mut graph = Graph::default();
    for node in &metadata.resolve.nodes {
        let needs = node.dependencies.iter().filter_map(|it| names.get(it.as_str()));
        let name = names.get(node.id.as_str()).copied().unwrap_or(&node.id);
        graph.0.entry(name.to_owned()).or_default().extend(needs.map(|it| (*it).to_owned()));
    }
    Ok(graph)
}

/// Finds every package that a zone reaches and may not, with the way to it.
pub(super) fn broken(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for law in &LAWS {
        for way in ways(graph, law.zone) {
            let last = way.last().copied().unwrap_or_default();
            if law.never.contains(&last) {
                let message = format!("{} may not know {last}: {}", law.zone, way.join(" → "));
                findings.push(Finding::new(law.manifest, 1, message));
            }
        }
    }
    findings
}

/// Lists the shortest way to each package that `from` reaches.
fn ways<'a>(graph: &'a Graph, from: &'a str) -> Vec<Vec<&'a str>> {
    let mut ways: Vec<Vec<&str>> = vec![vec![from]];
    let mut seen = BTreeSet::from([from]);
    let mut next = 0;
    while let Some(way) = ways.get(next).cloned() {
        let last = way.last().copied().unwrap_or_default();
        for need in graph.0.get(last).into_iter().flatten() {
            if seen.insert(need) {
                ways.push(way.iter().copied().chain([need.as_str()]).collect());
            }
        }
        next += 1;
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in edges {
            graph.0.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    }

    #[test]
    fn io_may_know_core_and_tokio() {
        let fine = [("cleave-io", "cleave-core"), ("cleave-io", "tokio"), ("cleave-core", "serde")];
        assert_eq!(broken(&graph(&fine)), []);
    }

    #[test]
    fn a_zone_that_knows_too_much_is_found() {
        for (zone, other) in [
            ("cleave-core", "tokio"),
            ("cleave-core", "cleave-sim"),
            ("cleave-sim", "cleave-io"),
            ("cleave-io", "cleave-sim"),
        ] {
            assert_eq!(broken(&graph(&[(zone, other)])).len(), 1, "{zone} knows {other}");
        }
    }

    #[test]
    fn a_helper_that_brings_a_runtime_along_is_found_with_the_way_to_it() {
        let found = broken(&graph(&[("cleave-core", "helper"), ("helper", "tokio")]));
        assert_eq!(
            found[0].message,
            "cleave-core may not know tokio: cleave-core → helper → tokio"
        );
    }

    #[test]
    fn metadata_is_read_by_name() {
        let json = r#"{"packages":[{"id":"a 1","name":"cleave-core"},{"id":"b 1","name":"tokio"}],
            "resolve":{"nodes":[{"id":"a 1","dependencies":["b 1"]},{"id":"b 1","dependencies":[]}]}}"#;
        assert_eq!(broken(&parse(json.as_bytes()).unwrap()).len(), 1);
    }
}
