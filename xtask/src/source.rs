//! One Rust file as the checks see it: code, comments and string literals held apart, line by line.
//! A scanner of one page instead of a parser crate, because the laws ask about words and paths, and
//! because `cargo xtask` must itself compile in seconds.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A Rust file split into three texts of equal line structure; what belongs to another one is blank.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) code: String,
    pub(crate) comments: String,
    pub(crate) strings: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Code,
    Comment,
    Text,
}

impl Source {
    pub(crate) fn read(root: &Path, path: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(path))
            .with_context(|| format!("read {}", path.display()))?;
        Ok(Self::new(&path.to_string_lossy().replace('\\', "/"), &text))
    }

    pub(crate) fn new(path: &str, text: &str) -> Self {
        let mut source = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: String::with_capacity(text.len()),
            comments: String::new(),
            strings: String::new(),
        };
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            let (kind, length) = next_piece(&chars[at..], at.checked_sub(1).map(|it| chars[it]));
            // What the file leaves open ends with the file.
            let end = chars.len().min(at + length);
            for &letter in &chars[at..end] {
                source.push(kind, letter);
            }
            at = end;
        }
        source
    }

    /// Says whether the file holds only tests or glue for the build.
    pub(crate) fn is_test_file(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.contains("/benches/")
            || self.path.contains("/fuzz/")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("build.rs")
    }

    /// Counts the lines before the tests at the foot of the file.
    pub(crate) fn lines_before_tests(&self) -> usize {
        if self.is_test_file() {
            return 0;
        }
        let lines: Vec<&str> = self.code.lines().collect();
        lines
            .windows(2)
            .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests"))
            .unwrap_or(lines.len())
    }

    fn push(&mut self, kind: TextKind, letter: char) {
        for (own, out) in [
            (TextKind::Code, &mut self.code),
            (TextKind::Comment, &mut self.comments),
            (TextKind::Text, &mut self.strings),
        ] {
            let blank = if letter == '\n' { '\n' } else { ' ' };
            out.push(if own == kind { letter } else { blank });
        }
    }
}

/// Splits `line` into identifiers, in order.
pub(crate) fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|it: char| !(it.is_alphanumeric() || it == '_')).filter(|it| !it.is_empty())
}

/// Tells what begins here and how many characters it takes.
fn next_piece(rest: &[char], before: Option<char>) -> (TextKind, usize) {
    let follows_name = before.is_some_and(|it| it.is_alphanumeric() || it == '_');
    match rest {
        ['/', '/', ..] => (TextKind::Comment, until(rest, |it| it == '\n')),
        ['/', '*', ..] => (TextKind::Comment, block_comment(rest)),
        ['"', ..] => (TextKind::Text, quoted(rest)),
        ['r' | 'b', ..] if !follows_name => {
            raw_string(rest).map_or((TextKind::Code, 1), |it| (TextKind::Text, it))
        }
        ['\'', '\\', _, tail @ ..] => (TextKind::Text, 4 + until(tail, |it| it == '\'')),
        ['\'', _, '\'', ..] => (TextKind::Text, 3),
        _ => (TextKind::Code, 1),
    }
}

fn until(rest: &[char], stop: impl Fn(char) -> bool) -> usize {
    rest.iter().position(|&it| stop(it)).unwrap_or(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Measures `r"…"`, `r#"…"#`, `br"…"` and `b"…"`; none of them is `None`.
fn raw_string(rest: &[char]) -> Option<usize> {
    let prefix = until(rest, |it| it != 'r' && it != 'b');
    let hashes = until(&rest[prefix..], |it| it != '#');
    let open = prefix + hashes;
    if 2 < prefix || rest.get(open) != Some(&'"') {
        return None;
    }
    if !rest[..prefix].contains(&'r') {
        return (hashes == 0).then(|| open + quoted(&rest[open..]));
    }
    let mut close = vec!['"'];
    close.resize(1 + hashes, '#');
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|it| it == close).unwrap_or(body.len());
    Some(open + 1 + end + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, code: &str, comments: &str, strings: &str) {
        let source = Source::new("a.rs", text);
        let squeeze = |it: &str| it.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeeze(&source.code), code);
        assert_eq!(squeeze(&source.comments), comments);
        assert_eq!(squeeze(&source.strings), strings);
        assert_eq!(source.code.lines().count(), text.lines().count());
    }

    #[test]
    fn code_comments_and_strings_are_told_apart() {
        check("let a = 1; // why\nb", "let a = 1; b", "// why", "");
        check("a /* x /* y */ z */ b", "a b", "/* x /* y */ z */", "");
        check(r#"f("a // \" b", c)"#, "f( , c)", "", r#""a // \" b""#);
        check("r#\"a \"b\" \n//\"# + b\"x\"", "+", "", "r#\"a \"b\" //\"# b\"x\"");
        check(
            "fn f<'a>(x: &'a str) { '\"'; '\\''; bar }",
            "fn f<'a>(x: &'a str) { ; ; bar }",
            "",
            "'\"' '\\''",
        );
    }

    #[test]
    fn an_unfinished_string_ends_with_the_file() {
        check("a \"b", "a", "", "\"b");
        check("a r#\"b", "a", "", "r#\"b");
        check("a '\\", "a '\\", "", "");
    }

    #[test]
    fn tests_at_the_foot_are_found() {
        let source =
            Source::new("core/src/a.rs", "//! A.\nfn a() {}\n#[cfg(test)]\nmod tests {\n}\n");
        assert_eq!(source.lines_before_tests(), 2);
        assert_eq!(Source::new("core/src/a/tests.rs", "fn a() {}\n").lines_before_tests(), 0);
    }
}
