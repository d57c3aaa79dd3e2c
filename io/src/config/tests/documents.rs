//! The documents that speak of settings say what the program does.

use std::path::{Path, PathBuf};

use super::*;
use crate::config::shape::Shape;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Compares a generated page with what is checked in, or renews it when told to.
fn check(path: &str, want: &str) {
    let path = in_repository(path);
    if std::env::var_os("CLEAVE_UPDATE_DOCS").is_some() {
        std::fs::write(&path, want).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == want, "{} is out of date: run with CLEAVE_UPDATE_DOCS=1", path.display());
}

#[test]
fn the_reference_page_is_what_the_schema_says() {
    check("docs/reference/config.md", &reference());
}

#[test]
fn the_published_schema_is_what_the_program_prints() {
    check("docs/reference/config.schema.json", &schema());
}

fn example() -> String {
    std::fs::read_to_string(in_repository("cleave.example.toml")).unwrap()
}

/// Turns `#key = value` and `#[section]` into settings; prose has a space after its mark.
fn uncommented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|it: char| it.is_ascii_alphabetic() || it == '[') => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_loads_as_it_is() {
    assert_eq!(lines(load_text(&example())), [""; 0]);
}

#[test]
fn the_example_sets_every_key_to_a_valid_value() {
    let mut findings = Findings::new(None);
    let table = tree::read("example", &uncommented(&example()), &mut findings).unwrap();
    let mut tree = Value::Table(table);
    fit::fit(&Shape::of_file(), &mut tree, "", &mut findings);
    assert_eq!(findings.refuse().to_string(), "");
    for (path, _) in leaves(&Shape::of_file()) {
        assert!(is_set(&tree, &path), "{path} is not in the example");
    }
}

/// Looks for a dotted path, in any element where there are lists.
fn is_set(value: &Value, path: &str) -> bool {
    if path.is_empty() {
        return true;
    }
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    let in_table = value.get(key).is_some_and(|it| is_set(it, rest));
    let in_list = |list: &Vec<Value>| list.iter().any(|it| is_set(it, path));
    in_table || value.as_array().is_some_and(in_list)
}
