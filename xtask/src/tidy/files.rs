//! Rules on whole files: length, header, leftovers, metric names, paths of one machine, and the
//! code map. Names and vocabulary have files of their own.

use crate::finding::Finding;
use crate::source::{Source, identifiers};

const FILE_LINES_MAX: usize = 400;
const METRICS_FOLDER: &str = "io/src/telemetry/metrics/";
const MARKERS: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// First folders of paths that exist on one machine only. A container's own paths (`/etc`, `/tmp`,
/// `/var`) are fine: they mean the same everywhere.
const PERSONAL_FOLDERS: [&str; 4] = ["home", "root", "Users", "work"];

/// Prefixes in string literals that look like metrics and are crates.
const CRATES: [&str; 3] = ["cleave_core", "cleave_io", "cleave_sim"];

pub(super) fn too_long(source: &Source) -> Option<Finding> {
    let lines = source.text.lines().count();
    (FILE_LINES_MAX < lines).then(|| {
        Finding::new(&source.path, lines, format!("{lines} lines, at most {FILE_LINES_MAX}"))
    })
}

/// Wants `//!` first, so that a reader learns what a file is for before anything else.
pub(super) fn without_header(source: &Source) -> Option<Finding> {
    let first = source.text.lines().find(|it| !it.trim().is_empty()).unwrap_or_default();
    (!source.is_test_file() && !first.starts_with("//!"))
        .then(|| Finding::new(&source.path, 1, "no `//!` header that says what the file is for"))
}

pub(super) fn leftover_in_rust(source: &Source) -> Vec<Finding> {
    leftover_in_text(&source.path, &source.comments)
}

pub(super) fn leftover_in_text(path: &str, text: &str) -> Vec<Finding> {
    let marked = text.lines().enumerate().flat_map(|(at, line)| {
        identifiers(line).filter(|it| MARKERS.contains(it)).map(move |it| (at, it))
    });
    marked.map(|(at, it)| leftover(path, at, it)).collect()
}

fn leftover(path: &str, at: usize, marker: &str) -> Finding {
    Finding::new(path, at + 1, format!("leftover `{marker}`: do it, or write an issue"))
}

/// Keeps every metric in one file, so that the page that documents them can be checked against it.
/// Tests may name what they scrape.
pub(super) fn metric_names(source: &Source) -> Vec<Finding> {
    if source.path.starts_with(METRICS_FOLDER) || source.path.starts_with("xtask/") {
        return Vec::new();
    }
    let lines = source.strings.lines().take(source.lines_before_tests()).enumerate();
    let names = lines.flat_map(|(at, line)| {
        let names = identifiers(line).filter(|it| is_metric(it));
        names.map(move |it| (at, it))
    });
    names
        .map(|(at, it)| {
            let message = format!("metric name `{it}` belongs into {METRICS_FOLDER}");
            Finding::new(&source.path, at + 1, message)
        })
        .collect()
}

/// Tells metrics from crates and from the prefix of environment variables, `cleave__`.
fn is_metric(word: &str) -> bool {
    let named = word
        .strip_prefix("cleave_")
        .is_some_and(|it| it.starts_with(|it: char| it.is_ascii_lowercase()));
    named && !CRATES.contains(&word)
}

pub(super) fn machine_paths(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let hits = lines.filter_map(|(at, line)| personal_folder(line).map(|it| (at, it)));
    hits.map(|(at, it)| Finding::new(path, at + 1, format!("path of one machine (`/{it}/…`)")))
        .collect()
}

fn personal_folder(line: &str) -> Option<&'static str> {
    PERSONAL_FOLDERS.into_iter().find(|folder| {
        let path = format!("/{folder}/");
        line.match_indices(&path).any(|(at, _)| {
            // `example.com/home/` and `${DIR}/home/` are parts of longer paths.
            !line[..at].ends_with(|it: char| it.is_alphanumeric() || "._-*}])>~/".contains(it))
        })
    })
}

/// Wants every crate in the code map, written as its folder: `core/`.
pub(super) fn missing_from_map(map: &str, crates: &[String]) -> Vec<Finding> {
    let missing = crates.iter().filter(|it| !map.contains(&format!("`{it}/")));
    missing
        .map(|it| {
            Finding::new("ARCHITECTURE.md", 1, format!("crate `{it}/` is not in the code map"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(path: &str, text: &str) -> Source {
        Source::new(path, text)
    }

    #[test]
    fn a_file_may_have_400_lines_and_no_more() {
        assert_eq!(too_long(&rust("a.rs", &"\n".repeat(400))), None);
        assert!(too_long(&rust("a.rs", &"\n".repeat(401))).is_some());
    }

    #[test]
    fn a_file_begins_with_its_header() {
        assert_eq!(without_header(&rust("core/src/a.rs", "//! Says.\n")), None);
        assert!(without_header(&rust("core/src/a.rs", "use a;\n//! Says.\n")).is_some());
        assert!(without_header(&rust("core/src/a.rs", "")).is_some());
        assert_eq!(without_header(&rust("core/src/a/tests.rs", "use a;\n")), None);
        assert_eq!(without_header(&rust("cleave/build.rs", "fn main() {}\n")), None);
    }

    #[test]
    fn leftovers_are_found_in_comments_and_not_in_strings() {
        let found = |text| leftover_in_rust(&rust("a.rs", text)).len();
        assert_eq!(found("// TODO: later\n"), 1);
        assert_eq!(found("/* FIXME */ let a = 1;\n"), 1);
        assert_eq!(found("let a = \"TODO todo!()\"; let todos = 1; // the todo list\n"), 0);
        assert_eq!(leftover_in_text("a.py", "x = 1\n# XXX\n"), [leftover("a.py", 1, "XXX")]);
    }

    #[test]
    fn metrics_are_named_in_one_file() {
        let found = |path, text| metric_names(&rust(path, text)).len();
        assert_eq!(found("io/src/admin/a.rs", "f(\"cleave_requests_total\")\n"), 1);
        assert_eq!(
            found("io/src/telemetry/metrics/requests.rs", "f(\"cleave_requests_total\")\n"),
            0
        );
        assert_eq!(found("io/src/a.rs", "f(\"cleave_core=info\"); cleave_io::x()\n"), 0);
        assert_eq!(found("io/src/config/a.rs", "f(\"cleave__\")\n"), 0);
        let tested =
            "fn a() {}\n#[cfg(test)]\nmod tests { const A: &str = \"cleave_requests\"; }\n";
        assert_eq!(found("io/src/a.rs", tested), 0);
        assert_eq!(found("cleave/tests/a.rs", "f(\"cleave_requests_total\")\n"), 0);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let personal = |folder: &str| format!("see /{folder}/someone/file");
        for folder in PERSONAL_FOLDERS {
            assert_eq!(machine_paths("a.md", &personal(folder)).len(), 1, "{folder}");
        }
        for fine in ["/etc/cleave/cleave.toml", "https://example.com/home/x", "\"${TOP}/home/x\""] {
            assert_eq!(machine_paths("a.md", fine), [], "{fine}");
        }
    }

    #[test]
    fn the_code_map_names_every_crate() {
        let crates = ["core".to_owned(), "io".to_owned()];
        assert_eq!(missing_from_map("- `core/` decides\n- `io/src/proxy` acts", &crates), []);
        assert_eq!(missing_from_map("- `core/` decides; io acts", &crates).len(), 1);
    }
}
