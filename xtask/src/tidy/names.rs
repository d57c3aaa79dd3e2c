//! One type name, one type: a struct, enum, trait or alias has a name that no other type of its
//! crate has, so that a reader knows which type is meant, whatever the imports say. Tests may use
//! names of their own.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::source::{Source, identifiers};

/// Names that several types of one crate may share, with the folders or files where they may.
const SHARED: [(&str, &[&str]); 4] = [
    // Each command has its own, named by its module: `top::Args`.
    ("Args", &["cleave/src/", "xtask/src/"]),
    // The subcommands of one command.
    ("Command", &["cleave/src/", "xtask/src/"]),
    // One type, with and without the feature `kubernetes`, and so with `tokenizer`.
    ("KubernetesObjects", &["io/src/discovery/kubernetes/"]),
    ("Tokenizer", &["io/src/tokenizer/"]),
];

/// Types by crate and name, each with the places where it is defined.
#[derive(Default)]
pub(super) struct TypeNames {
    defined: BTreeMap<(String, String), Vec<(String, usize)>>,
    /// Files that only tests include, without `.rs` or `/mod.rs`.
    test_modules: BTreeSet<String>,
}

impl TypeNames {
    pub(super) fn note(&mut self, source: &Source) {
        if !source.path.contains("/src/") {
            return;
        }
        let lines: Vec<&str> = source.code.lines().collect();
        let folder = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
        for pair in lines.windows(2).filter(|it| it[0].trim() == "#[cfg(test)]") {
            if let Some(module) = pair[1].trim().strip_prefix("mod ") {
                self.test_modules.insert(format!("{folder}/{}", module.trim_end_matches(';')));
            }
        }
        let crate_name = source.path.split('/').next().unwrap_or_default();
        for (at, line) in lines.iter().enumerate().take(source.lines_before_tests()) {
            if let Some(name) = defined_in(line) {
                let key = (crate_name.to_owned(), name.to_owned());
                self.defined.entry(key).or_default().push((source.path.clone(), at + 1));
            }
        }
    }

    /// Finds names that are defined more than once, at each place after the first.
    pub(super) fn doubled(self) -> Vec<Finding> {
        let is_test = |path: &str| {
            let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
            self.test_modules.iter().any(|it| {
                module
                    .strip_prefix(it.as_str())
                    .is_some_and(|it| it.is_empty() || it.starts_with('/'))
            })
        };
        let mut findings = Vec::new();
        for ((_, name), mut places) in self.defined {
            places.retain(|(path, _)| !is_test(path) && !may_share(&name, path));
            for (path, line) in places.iter().skip(1) {
                let (first, at) = &places[0];
                let message = format!("type `{name}` is also defined in {first}:{at}");
                findings.push(Finding::new(path, *line, message));
            }
        }
        findings
    }
}

fn may_share(name: &str, path: &str) -> bool {
    let mut shared = SHARED.iter().filter(|it| it.0 == name);
    shared.any(|it| it.1.iter().any(|it| path.starts_with(it)))
}

/// Reads the name of the type that a line defines. An alias counts only at the margin: further in, it
/// belongs to a trait.
fn defined_in(line: &str) -> Option<&str> {
    let bare = line.trim_start();
    let bare = match bare.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or("", |it| it.1),
        Some(rest) => rest,
        None => bare,
    };
    let mut words = identifiers(bare);
    let word = words.next()?;
    let is_type = ["struct", "enum", "trait"].contains(&word)
        || (word == "type" && !line.starts_with(char::is_whitespace));
    words.next().filter(|_| is_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubled(files: &[(&str, &str)]) -> usize {
        let mut names = TypeNames::default();
        for (path, text) in files {
            names.note(&Source::new(path, text));
        }
        names.doubled().len()
    }

    #[test]
    fn a_name_belongs_to_one_type_of_a_crate() {
        let one = ("core/src/a.rs", "pub struct Entry;\n");
        assert_eq!(doubled(&[one, ("core/src/b.rs", "pub(crate) enum Entry {}\n")]), 1);
        assert_eq!(doubled(&[one, ("core/src/b.rs", "pub(in crate::a) trait Entry {}\n")]), 1);
        assert_eq!(doubled(&[one, ("core/src/b.rs", "type Entry = u8;\n")]), 1);
        assert_eq!(doubled(&[one, ("io/src/b.rs", "struct Entry;\n")]), 0);
        assert_eq!(
            doubled(&[one, ("core/src/b.rs", "    type Entry = u8;\n// struct Entry\n")]),
            0
        );
    }

    #[test]
    fn tests_have_names_of_their_own() {
        let one = ("core/src/a.rs", "struct Entry;\n#[cfg(test)]\nmod tests { struct Entry; }\n");
        let module = ("core/src/q/mod.rs", "#[cfg(test)]\nmod properties;\n");
        let property = ("core/src/q/properties.rs", "struct Entry;\n");
        let deeper = ("core/src/q/properties/model.rs", "struct Entry;\n");
        assert_eq!(doubled(&[one, module, property, deeper]), 0);
        assert_eq!(doubled(&[one, property]), 1);
    }

    #[test]
    fn a_shared_name_is_shared_in_its_folder_only() {
        let commands =
            [("cleave/src/a.rs", "struct Args;\n"), ("cleave/src/b.rs", "struct Args;\n")];
        assert_eq!(doubled(&commands), 0);
        assert_eq!(
            doubled(&[("io/src/a.rs", "struct Args;\n"), ("io/src/b.rs", "struct Args;\n")]),
            1
        );
    }
}
