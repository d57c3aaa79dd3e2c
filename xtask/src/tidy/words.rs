//! One word for one thing, in identifiers and comments of the product. Only words that can mean
//! nothing else here are on the list. Left out on purpose, because they have honest other meanings:
//! endpoint (of a URL), cluster and group (of Kubernetes, of items), thread, conversation (in prose),
//! scheduler (the engine has one), epoch (Unix), score, weight, token, overflow, drop and kill.
//! String literals are free: they hold what other programs call things.

use crate::finding::Finding;
use crate::source::{Source, identifiers};

struct Word {
    ours: &'static str,
    foreign: &'static [&'static str],
    /// Paths where the word means something else.
    fine_in: &'static [&'static str],
    /// Neighbours inside one identifier that make it another word.
    fine_before: &'static [&'static str],
    fine_after: &'static [&'static str],
}

const WORDS: [Word; 7] = [
    Word {
        ours: "replica",
        foreign: &["backend", "backends", "upstream", "upstreams"],
        ..ANYWHERE
    },
    // Threads of the router are workers; core and sim have no threads, so there it is a replica.
    Word {
        ours: "replica",
        foreign: &["worker", "workers"],
        fine_in: &["io/", "cleave/"],
        ..ANYWHERE
    },
    Word {
        ours: "replica",
        foreign: &["pod", "pods"],
        fine_in: &[
            "io/src/discovery/",
            "io/src/config/",
            "core/src/protocol/inference_pool.rs",
            "core/src/protocol/kubernetes.rs",
            "core/src/protocol/mod.rs",
            "core/src/protocol/kubernetes_scale.rs",
            "io/src/scaling/kubernetes.rs",
            "cleave/tests/it/kubernetes.rs",
            "cleave/tests/it/scaling.rs",
            "cleave/tests/it/store_kubernetes.rs",
            "cleave/tests/it/support/",
        ],
        ..ANYWHERE
    },
    // HTTP has its own gateways: 502 Bad Gateway and 504 Gateway Timeout. What asks the picker is one too.
    Word {
        ours: "router",
        foreign: &["gateway", "gateways"],
        fine_in: &[
            "io/src/picker/",
            "io/src/config/raw/kubernetes.rs",
            "core/src/protocol/inference_pool.rs",
            "cleave/src/epp.rs",
        ],
        fine_before: &["bad"],
        fine_after: &["timeout"],
    },
    Word { ours: "workload", foreign: &["customer", "customers"], ..ANYWHERE },
    Word { ours: "contract", foreign: &["quota", "quotas"], ..ANYWHERE },
    Word { ours: "brain", foreign: &["dispatcher"], ..ANYWHERE },
];

const ANYWHERE: Word =
    Word { ours: "", foreign: &[], fine_in: &[], fine_before: &[], fine_after: &[] };

/// Finds words of other houses in the crates that have a vocabulary. The automation is not one of
/// them: it configures other people's programs in their words.
pub(super) fn foreign(source: &Source) -> Vec<Finding> {
    if source.path.starts_with("xtask/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, (code, comment)) in source.code.lines().zip(source.comments.lines()).enumerate() {
        let words: Vec<String> =
            identifiers(code).chain(identifiers(comment)).flat_map(parts).collect();
        for (nth, word) in words.iter().enumerate() {
            let before = nth.checked_sub(1).map_or("", |it| &words[it]);
            let after = words.get(nth + 1).map_or("", |it| it);
            if let Some(ours) = ours_for(&source.path, before, word, after) {
                let message = format!("`{word}`: here it is called {ours}");
                findings.push(Finding::new(&source.path, at + 1, message));
            }
        }
    }
    findings
}

fn ours_for(path: &str, before: &str, word: &str, after: &str) -> Option<&'static str> {
    let rule = WORDS.iter().find(|it| it.foreign.contains(&word))?;
    let fine = rule.fine_in.iter().any(|it| path.starts_with(it))
        || rule.fine_before.contains(&before)
        || rule.fine_after.contains(&after);
    (!fine).then_some(rule.ours)
}

/// Splits an identifier where its writer did: `BadGateway`, `bad_gateway` and `BAD_GATEWAY` alike.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for letter in identifier.chars() {
        if letter == '_' || (was_lower && letter.is_uppercase()) {
            parts.push(String::new());
        }
        was_lower = letter.is_lowercase() || letter.is_numeric();
        if letter != '_' {
            parts.last_mut().expect("starts with one part").extend(letter.to_lowercase());
        }
    }
    parts.retain(|it| !it.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        foreign(&Source::new(path, text)).len()
    }

    #[test]
    fn identifiers_are_split_where_their_writer_did() {
        assert_eq!(parts("BAD_GATEWAY"), ["bad", "gateway"]);
        assert_eq!(parts("UpstreamPool2Id"), ["upstream", "pool2", "id"]);
        assert_eq!(parts("__x"), ["x"]);
    }

    #[test]
    fn foreign_words_are_found_in_code_and_comments() {
        assert_eq!(found("core/src/a.rs", "let backend = 1;\n"), 1);
        assert_eq!(found("io/src/a.rs", "// asks the upstream\n"), 1);
        assert_eq!(found("io/src/a.rs", "struct UpstreamPool;\n"), 1);
        assert_eq!(found("core/src/a.rs", "struct Quota; struct Dispatcher;\n"), 2);
        assert_eq!(found("io/src/a.rs", "let url = \"http://backend/\";\n"), 0);
        assert_eq!(found("io/src/a.rs", "// the back end of the line\n"), 0);
    }

    #[test]
    fn workers_are_threads_of_the_router_only() {
        assert_eq!(found("core/src/policy/a.rs", "fn pick(workers: &[u8]) {}\n"), 1);
        assert_eq!(found("sim/src/world/a.rs", "// the worker\n"), 1);
        assert_eq!(found("cleave/src/serve.rs", "let worker_threads = 2;\n"), 0);
    }

    #[test]
    fn http_keeps_its_gateways() {
        assert_eq!(found("io/src/a.rs", "StatusCode::BAD_GATEWAY; // 504 Gateway Timeout\n"), 0);
        assert_eq!(found("io/src/a.rs", "Error::GatewayTimeout\n"), 0);
        assert_eq!(found("io/src/a.rs", "struct Gateway;\n"), 1);
    }

    #[test]
    fn the_automation_speaks_to_other_programs_in_their_words() {
        assert_eq!(found("xtask/src/bench/a.rs", "let upstream = 1;\n"), 0);
    }
}
