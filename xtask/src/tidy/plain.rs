//! Plain technical English in comments and in text for users: a request, a replica or a client is *it*,
//! and a parameter is called by its name. The refused words stand where a noun belongs, so that a
//! reader must guess which one. Names and tests' own data are free.

use crate::finding::Finding;
use crate::source::Source;

const REFUSED: [&str; 11] = [
    "who",
    "whoever",
    "whom",
    "nobody",
    "somebody",
    "everybody",
    "anybody",
    "so many",
    "so much",
    "so long",
    "so few",
];

const UNREAD_PAGES: [&str; 1] = ["CHANGELOG.md"];

/// Finds refused words in comments, and in literals outside of tests.
pub(super) fn unclear(source: &Source) -> Vec<Finding> {
    if source.path == "xtask/src/tidy/plain.rs" {
        return Vec::new();
    }
    let literals = source.strings.lines().take(source.lines_before_tests()).enumerate();
    // Bytes are data, not prose.
    let literals = literals.filter(|it| !it.1.contains("b\""));
    let lines = source.comments.lines().enumerate().chain(literals);
    findings(&source.path, lines)
}

/// Finds them in a page for users; what was decided and measured long ago is left as it was written.
pub(super) fn unclear_page(path: &str, text: &str) -> Vec<Finding> {
    let is_read = path.starts_with("docs/guide/") || !path.contains('/');
    if !is_read || UNREAD_PAGES.contains(&path) {
        return Vec::new();
    }
    findings(path, text.lines().enumerate())
}

fn findings<'a>(path: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Finding> {
    lines
        .flat_map(|(at, line)| refused_in(line).map(move |word| (at, word)))
        .map(|(at, word)| Finding::new(path, at + 1, format!("`{word}`: name what is meant")))
        .collect()
}

fn refused_in(line: &str) -> impl Iterator<Item = &'static str> {
    // What stands in backticks is a name.
    let prose = line.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    let words = prose.split(|it: char| !it.is_alphabetic()).filter(|it| !it.is_empty());
    let text = format!(" {} ", words.collect::<Vec<_>>().join(" "));
    REFUSED.into_iter().filter(move |it| text.contains(&format!(" {it} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        unclear(&Source::new(path, text)).len()
    }

    #[test]
    fn words_in_place_of_a_noun_are_found() {
        assert_eq!(found("io/src/a.rs", "/// Whoever waits goes.\n"), 1);
        assert_eq!(found("io/src/a.rs", "// Takes so  many blocks.\n"), 1);
        assert_eq!(found("io/src/a.rs", "f(\"nobody answers\");\n"), 1);
        assert_eq!(found("io/src/a.rs", "/// The whole of it, as far as `who` knows.\n"), 0);
    }

    #[test]
    fn pages_for_users_are_read_too() {
        assert_eq!(unclear_page("docs/guide/a.md", "Nobody waits.\n").len(), 1);
        assert_eq!(unclear_page("docs/decisions/a.md", "Nobody waits.\n").len(), 0);
        assert_eq!(unclear_page("CHANGELOG.md", "Nobody waits.\n").len(), 0);
    }

    #[test]
    fn tests_say_what_they_like_in_literals() {
        assert_eq!(found("cleave/tests/it/a.rs", "f(\"nobody\"); // fine\n"), 0);
        assert_eq!(found("cleave/tests/it/a.rs", "f(); // nobody\n"), 1);
    }
}
