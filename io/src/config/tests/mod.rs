//! Configurations and what is said about them.

mod cluster;
mod costs;
mod documents;
mod kubernetes;
mod problems;
mod properties;
mod scaling;
mod sources;

use super::shape::{Applies, ValueKind};
use super::*;

/// Loads a file's text alone.
fn load_text(text: &str) -> Result<Config, Problems> {
    load_all(text, &[], Flags::default())
}

fn load_all(text: &str, variables: &[(&str, &str)], flags: Flags) -> Result<Config, Problems> {
    let variables = variables.iter().map(|&(name, text)| (name.to_owned(), text.to_owned()));
    assemble(Some(("file".to_owned(), Ok(text.to_owned()))), variables, flags)
}

/// Puts each problem on one line.
fn lines(result: Result<Config, Problems>) -> Vec<String> {
    let problems = result.err().into_iter().flatten();
    problems.map(|it| it.to_string().replace("\n    remedy: ", "; ")).collect()
}

/// A file that lacks nothing, to add a line to.
const ENOUGH: &str = "replicas = [\"http://gpu-0:8000\"]\n";

/// Lists every setting of a shape with what its change needs.
fn leaves(shape: &Shape) -> Vec<(String, Applies)> {
    fn walk(shape: &Shape, path: &str, around: Applies, into: &mut Vec<(String, Applies)>) {
        let applies = shape.applies.unwrap_or(around);
        let table = shape.items.as_deref().unwrap_or(shape).of_kind(ValueKind::Object);
        if table.properties.is_empty() {
            into.push((path.to_owned(), applies));
        }
        for (key, inner) in &table.properties {
            walk(inner, &problem::join(path, key), applies, into);
        }
    }
    let mut leaves = Vec::new();
    walk(shape, "", Applies::Restart, &mut leaves);
    leaves
}
