//! Laws between the modules of one crate. A room is a folder or file directly under `src`; its
//! files may name only the rooms that the table grants them. A new room must be put into the table,
//! and a new edge is a decision that is written down.

use crate::finding::Finding;
use crate::source::{Source, identifiers};

/// Crate folder, room, and the rooms of the same crate that it may name.
type Grant = (&'static str, &'static str, &'static [&'static str]);

const GRANTS: &[Grant] = &[
    ("core", "domain", &[]),
    ("core", "protocol", &["domain"]),
    ("core", "cost", &["domain"]),
    ("core", "fleet", &["domain", "cost"]),
    ("core", "kept", &["domain"]),
    ("core", "prefix", &["domain"]),
    ("core", "sharding", &["domain"]),
    ("core", "recording", &["cost"]),
    ("core", "tokens", &["domain"]),
    ("core", "queue", &["domain"]),
    ("core", "scaling", &["domain"]),
    ("core", "policy", &["domain", "cost", "prefix"]),
    ("core", "cluster", &["domain", "cost", "fleet", "kept", "scaling", "sharding", "tokens"]),
    (
        "core",
        "brain",
        &[
            "cluster", "domain", "protocol", "cost", "fleet", "policy", "prefix", "queue",
            "scaling", "sharding", "tokens",
        ],
    ),
    // Traces go to a collector that may be behind TLS.
    ("io", "telemetry", &["tls"]),
    ("io", "tls", &[]),
    ("io", "replicas", &["telemetry", "tls"]),
    ("io", "tokenizer", &[]),
    ("io", "discovery", &["replicas"]),
    ("io", "proxy", &["replicas", "telemetry", "tls", "tokenizer"]),
    // The picker translates between gateways and the data plane.
    ("io", "picker", &["proxy"]),
    ("io", "admin", &["proxy", "replicas", "telemetry", "tls"]),
    // Other routers are found as replicas are, and a store may be behind TLS.
    ("io", "coordination", &["discovery", "proxy", "telemetry", "tls"]),
    ("io", "scaling", &["discovery", "proxy", "telemetry"]),
    // Config turns the file into the Settings of every room; no room knows where they came from.
    (
        "io",
        "config",
        &[
            "admin",
            "coordination",
            "discovery",
            "proxy",
            "replicas",
            "telemetry",
            "tls",
            "tokenizer",
        ],
    ),
    ("sim", "engine", &[]),
    ("sim", "policies", &[]),
    ("sim", "scalers", &[]),
    ("sim", "traces", &[]),
    ("sim", "work", &[]),
    ("sim", "measure", &["traces"]),
    ("sim", "world", &["engine", "measure", "scalers", "traces", "work"]),
    ("sim", "results", &["measure", "world"]),
    ("sim", "bounds", &["results", "traces", "world"]),
    ("sim", "swarm", &["engine", "policies", "traces", "world"]),
    ("sim", "report", &["bounds", "measure", "results"]),
];

/// The machines of the brain. Each sees its own state and what it is handed: none names another, nor the brain
/// that carries values between them.
const MACHINES: &[&str] =
    &["placement", "admission", "books", "health", "learning", "poison", "peers"];

/// Where a file stands: its crate and its modules, outermost first.
struct Place<'a> {
    zone: &'a str,
    modules: Vec<&'a str>,
}

impl<'a> Place<'a> {
    fn of(source: &'a Source) -> Option<Self> {
        let (zone, rest) = source.path.strip_suffix(".rs")?.split_once("/src/")?;
        let mut modules: Vec<&str> = rest.split('/').collect();
        modules.pop_if(|it| ["mod", "lib", "main"].contains(it));
        Some(Self { zone, modules })
    }

    /// The room, when the file is in one and its crate has laws.
    fn room(&self) -> Option<&'a str> {
        let lawful = GRANTS.iter().any(|it| it.0 == self.zone);
        self.modules.first().copied().filter(|_| lawful)
    }
}

/// Finds files of rooms that are not in the table.
pub(super) fn unlisted(source: &Source) -> Option<Finding> {
    let place = Place::of(source)?;
    let room = place.room()?;
    let listed = GRANTS.iter().any(|it| (it.0, it.1) == (place.zone, room));
    (!listed).then(|| {
        let message = format!("room `{room}` has no row in GRANTS (xtask/src/layers/rooms.rs)");
        Finding::new(&source.path, 1, message)
    })
}

/// Finds paths into rooms that this room may not know.
pub(super) fn forbidden_edges(source: &Source) -> Vec<Finding> {
    let Some(place) = Place::of(source) else { return Vec::new() };
    let Some(room) = place.room() else { return Vec::new() };
    let granted = GRANTS
        .iter()
        .find(|it| (it.0, it.1) == (place.zone, room))
        .map_or::<&[&str], _>(&[], |it| it.2);
    let rooms: Vec<&str> = GRANTS.iter().filter(|it| it.0 == place.zone).map(|it| it.1).collect();
    let tests_from = source.lines_before_tests();
    named_from(&source.code, "crate::", |line| place.modules.len() + usize::from(tests_from < line))
        .into_iter()
        .filter(|(_, named)| *named != room && rooms.contains(named) && !granted.contains(named))
        .map(|(line, named)| {
            Finding::new(&source.path, line, format!("`{room}` may not know `{named}`"))
        })
        .collect()
}

/// Finds machines of the brain that name another machine, or the brain.
pub(super) fn machines_that_meet(source: &Source) -> Vec<Finding> {
    let Some(place) = Place::of(source) else { return Vec::new() };
    let ("core", ["brain", machine, ..]) = (place.zone, &place.modules[..]) else {
        return Vec::new();
    };
    if !MACHINES.contains(machine) {
        return Vec::new();
    }
    let tests_from = source.lines_before_tests();
    let depth = place.modules.len() - 1;
    named_from(&source.code, "crate::brain::", |line| depth + usize::from(tests_from < line))
        .into_iter()
        .filter(|(_, named)| named != machine && (MACHINES.contains(named) || *named == "Brain"))
        .map(|(line, named)| {
            Finding::new(&source.path, line, format!("`brain/{machine}` may not know `{named}`"))
        })
        .collect()
}

/// Only `protocol` knows how JSON names its fields.
pub(super) fn json_outside_protocol(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("core/src/") || source.path.starts_with("core/src/protocol") {
        return Vec::new();
    }
    lines_with(source, usize::MAX, "serde_json")
        .map(|line| Finding::new(&source.path, line, "in core, only `protocol` reads JSON"))
        .collect()
}

/// Only `config` asks the environment; tests may, to find the binary under test.
pub(super) fn environment_outside_config(source: &Source) -> Vec<Finding> {
    let product = ["core/src/", "io/src/", "sim/src/", "cleave/src/"];
    let lawful = product.iter().any(|it| source.path.starts_with(it));
    if !lawful || source.path.starts_with("io/src/config") {
        return Vec::new();
    }
    lines_with(source, source.lines_before_tests(), "env::var")
        .map(|line| Finding::new(&source.path, line, "only io/src/config asks the environment"))
        .collect()
}

fn lines_with<'a>(
    source: &'a Source,
    lines_max: usize,
    text: &'a str,
) -> impl Iterator<Item = usize> + 'a {
    let lines = source.code.lines().take(lines_max).enumerate();
    lines.filter(move |(_, line)| line.contains(text)).map(|(at, _)| at + 1)
}

/// Lists the first name of every path from a root, with its line: `crate::a`, each name of `crate::{a, b::c}`,
/// and `super::super::a` where that many steps lead there.
fn named_from<'a>(
    code: &'a str,
    root: &str,
    depth_at: impl Fn(usize) -> usize,
) -> Vec<(usize, &'a str)> {
    let mut named = Vec::new();
    for (at, _) in code.match_indices(root) {
        if !code[..at].ends_with(is_name) && !code[..at].ends_with('$') {
            let line = code[..at].matches('\n').count() + 1;
            let rest = &code[at + root.len()..];
            named.extend(first_names(rest).into_iter().map(|it| (line, it)));
        }
    }
    for (at, _) in code.match_indices("super::") {
        if code[..at].ends_with(is_name) || code[..at].ends_with("super::") {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let mut rest = &code[at..];
        let mut steps = 0;
        while let Some(tail) = rest.strip_prefix("super::") {
            (rest, steps) = (tail, steps + 1);
        }
        if depth_at(line) <= steps {
            named.extend(first_names(rest).into_iter().map(|it| (line, it)));
        }
    }
    named
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Reads the name that a path begins with, or every such name of a group in braces.
fn first_names(path: &str) -> Vec<&str> {
    let Some(group) = path.trim_start().strip_prefix('{') else {
        return identifiers(path).take(1).collect();
    };
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut begins = 0;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.extend(identifiers(&group[begins..at]).next());
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.extend(identifiers(&group[begins..at]).next());
                begins = at + 1;
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(path: &str, text: &str) -> Vec<String> {
        let findings = forbidden_edges(&Source::new(path, text));
        findings.into_iter().map(|it| format!("{} {}", it.line, it.message)).collect()
    }

    #[test]
    fn a_granted_edge_is_fine() {
        let none: [&str; 0] = [];
        assert_eq!(edges("core/src/fleet/mod.rs", "use crate::domain::Moment;\n"), none);
        assert_eq!(edges("core/src/fleet/a.rs", "use crate::{domain::{A, B}, cost};\n"), none);
        assert_eq!(edges("core/src/fleet/a.rs", "use crate::fleet::ledger::Ledger;\n"), none);
        assert_eq!(edges("core/src/lib.rs", "pub use crate::policy::Policy;\n"), none);
        assert_eq!(edges("cleave/src/serve.rs", "use crate::config;\n"), none);
    }

    #[test]
    fn a_forbidden_edge_is_found_however_it_is_written() {
        let found = ["1 `policy` may not know `fleet`"];
        assert_eq!(edges("core/src/policy/mod.rs", "use crate::fleet::Ledger;\n"), found);
        assert_eq!(
            edges("core/src/policy/a.rs", "use crate::{domain::{A, B}, fleet::C};\n"),
            found
        );
        assert_eq!(edges("core/src/policy/a.rs", "fn a(b: &crate::fleet::C) {}\n"), found);
        assert_eq!(edges("core/src/policy/a.rs", "use super::super::fleet::C;\n"), found);
        assert_eq!(edges("core/src/policy.rs", "use super::fleet::C;\n"), found);
        assert_eq!(
            edges("core/src/policy/a.rs", "pub(crate) use crate::{\n    fleet,\n};\n"),
            found
        );
    }

    #[test]
    fn machines_of_the_brain_do_not_know_each_other() {
        let meets = |path: &str, text: &str| {
            let found = machines_that_meet(&Source::new(path, text));
            found.into_iter().map(|it| it.message).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        let found = ["`brain/health` may not know `poison`"];
        assert_eq!(meets("core/src/brain/health/mod.rs", "use super::poison::Poison;\n"), found);
        assert_eq!(meets("core/src/brain/health/a.rs", "use super::super::poison::A;\n"), found);
        assert_eq!(
            meets("core/src/brain/health/a.rs", "use crate::brain::{poison::A, b};\n"),
            found
        );
        assert_eq!(meets("core/src/brain/health/a.rs", "use super::poison;\n"), none);
        assert_eq!(meets("core/src/brain/health/a.rs", "use super::super::request::A;\n"), none);
        assert_eq!(meets("core/src/brain/retry.rs", "use super::poison::A;\n"), none);
        let brain = ["`brain/books` may not know `Brain`"];
        assert_eq!(meets("core/src/brain/books/mod.rs", "use super::{Brain, event::A};\n"), brain);
    }

    #[test]
    fn comments_and_strings_name_whom_they_like() {
        let text = "// See crate::fleet::Ledger.\nconst A: &str = \"crate::fleet\";\n";
        assert!(edges("core/src/policy/mod.rs", text).is_empty());
    }

    #[test]
    fn steps_inside_the_room_are_not_steps_out_of_it() {
        let text =
            "use super::fleet;\n#[cfg(test)]\nmod tests {\n    use super::super::fleet;\n}\n";
        assert!(edges("core/src/policy/a.rs", text).is_empty());
    }

    #[test]
    fn nobody_knows_config() {
        for room in ["telemetry", "replicas", "proxy", "admin"] {
            let path = format!("io/src/{room}/mod.rs");
            assert_eq!(edges(&path, "use crate::config::Raw;\n").len(), 1, "{room}");
        }
    }

    #[test]
    fn a_room_without_a_row_is_found() {
        assert!(unlisted(&Source::new("core/src/attic/mod.rs", "")).is_some());
        assert!(unlisted(&Source::new("core/src/attic.rs", "")).is_some());
        assert_eq!(unlisted(&Source::new("core/src/policy/mod.rs", "")), None);
        assert_eq!(unlisted(&Source::new("core/src/lib.rs", "")), None);
        assert_eq!(unlisted(&Source::new("xtask/src/repo.rs", "")), None);
    }

    #[test]
    fn json_is_read_in_protocol_only() {
        let found =
            |path| json_outside_protocol(&Source::new(path, "serde_json::from_str(a)")).len();
        assert_eq!(found("core/src/policy/mod.rs"), 1);
        assert_eq!(found("core/src/protocol/peek.rs"), 0);
        assert_eq!(found("io/src/admin/mod.rs"), 0);
    }

    #[test]
    fn the_environment_is_read_in_config_only() {
        let text = "std::env::var_os(a);\n";
        let found = |path, text| environment_outside_config(&Source::new(path, text)).len();
        assert_eq!(found("io/src/proxy/mod.rs", text), 1);
        assert_eq!(found("cleave/src/main.rs", text), 1);
        assert_eq!(found("io/src/config/mod.rs", text), 0);
        assert_eq!(found("cleave/src/main.rs", "std::env::args_os();\n"), 0);
        assert_eq!(found("cleave/tests/a.rs", text), 0);
    }

    #[test]
    fn every_room_in_the_table_may_name_only_rooms_in_the_table() {
        for &(zone, _, granted) in GRANTS {
            for room in granted {
                assert!(GRANTS.iter().any(|it| (it.0, it.1) == (zone, *room)), "{zone}/{room}");
            }
        }
    }
}
