//! SECURITY.md promises, and says which test or attack shows each promise. A promise whose proof was
//! renamed or deleted is found here: every name in a column `shown by` must be a test or an attack.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::source::Source;

const PAGE: &str = "SECURITY.md";
const COLUMN: &str = "shown by";
const ATTACKS: &str = "xtask/src/attack/list/";

/// Collects what a promise may be shown by: the functions under `#[test]` and its like, and attacks.
pub(super) fn proofs(source: &Source) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_test = false;
    for line in source.code.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(name) = function(line).filter(|_| is_test) {
            found.insert(name.to_owned());
            is_test = false;
        }
    }
    if source.path.starts_with(ATTACKS) {
        let names = source.strings.split('"').skip(1).step_by(2);
        found.extend(names.filter(|it| is_name(it)).map(str::to_owned));
    }
    found
}

fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    rest.split(|it: char| !(it.is_alphanumeric() || it == '_')).next()
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

/// Finds rows without a proof, and proofs that do not exist.
pub(super) fn unproven(page: &str, proofs: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_table = false;
    for (at, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let last = cells.last().copied().unwrap_or_default();
        if !line.starts_with('|') {
            in_table = false;
        } else if last == COLUMN {
            in_table = true;
        } else if in_table && !last.starts_with("---") {
            let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
            if names.is_empty() {
                findings.push(Finding::new(PAGE, at + 1, "a promise that nothing shows"));
            }
            let missing = names.into_iter().filter(|it| !proofs.contains(*it));
            findings.extend(missing.map(|it| {
                Finding::new(PAGE, at + 1, format!("`{it}` is neither a test nor an attack"))
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_needs_a_test_or_an_attack_that_exists() {
        let tests =
            "#[test]\nfn it_holds() {}\n#[tokio::test]\nasync fn it_waits() {}\nfn helper() {}\n";
        let mut known = proofs(&Source::new("io/src/a.rs", tests));
        let attack = "const A: Attack = Attack { name: \"a_flood\", tries: \"many frames\" };\n";
        known.extend(proofs(&Source::new("xtask/src/attack/list/a.rs", attack)));
        let table = |rows: &str| format!("| promise | shown by |\n| --- | --- |\n{rows}");
        let found = |rows: &str| unproven(&table(rows), &known).len();
        assert_eq!(found("| a | `it_holds`, attack `a_flood` |\n| b | `it_waits` |\n"), 0);
        assert_eq!(found("| a | `it_held` |\n| b | `helper`, `it_holds` |\n"), 2);
        assert_eq!(found("| a | by inspection |\n"), 1);
        assert_eq!(unproven("| not promised | why |\n| --- | --- |\n| a | `x` |\n", &known), []);
    }
}
