//! Functions of at most 70 lines. Clippy says the same of what it compiles; this rule also sees
//! macros, tests and code behind a `cfg`. Blank lines and comments are free: nobody should delete an
//! explanation to satisfy a machine.

use crate::finding::Finding;
use crate::source::Source;

const BODY_LINES_MAX: usize = 70;

pub(super) fn too_long(source: &Source) -> Vec<Finding> {
    // Literals keep their lines, so that a page of text inside a function counts as lines of it.
    let counted: Vec<bool> = (source.code.lines())
        .zip(source.strings.lines())
        .map(|(code, text)| !code.trim().is_empty() || !text.trim().is_empty())
        .collect();
    let mut findings = Vec::new();
    for (name, at) in functions(&source.code) {
        let Some((open, close)) = body(&source.code[at..]) else { continue };
        let line = |offset: usize| source.code[..offset].matches('\n').count();
        let (first, last) = (line(at + open), line(at + close));
        let length = counted[first..=last].iter().filter(|it| **it).count().saturating_sub(2);
        if BODY_LINES_MAX < length {
            let message = format!("`{name}` has {length} lines, at most {BODY_LINES_MAX}");
            findings.push(Finding::new(&source.path, line(at) + 1, message));
        }
    }
    findings
}

/// Finds the name of every function and where it stands.
fn functions(code: &str) -> Vec<(&str, usize)> {
    let is_name = |it: char| it.is_alphanumeric() || it == '_';
    let named = code.match_indices("fn ").filter_map(|(at, _)| {
        let starts = !code[..at].ends_with(is_name);
        let name = code[at + 3..].split(|it| !is_name(it)).next().unwrap_or_default();
        (starts && !name.is_empty()).then_some((name, at))
    });
    named.collect()
}

/// Finds the braces around the body that follows a signature; a declaration has none.
fn body(signature: &str) -> Option<(usize, usize)> {
    let mut brackets = 0_i32;
    let mut braces = 0_i32;
    let mut open = None;
    for (at, letter) in signature.char_indices() {
        match letter {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if brackets == 0 && open.is_none() => return None,
            '{' => {
                braces += 1;
                open = open.or(Some(at));
            }
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return open.map(|it| (it, at));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_body(lines: usize, line: &str) -> Source {
        Source::new("a.rs", &format!("fn long(a: [u8; 2]) {{\n{}}}\n", line.repeat(lines)))
    }

    #[test]
    fn a_body_may_have_70_lines_and_no_more() {
        assert_eq!(too_long(&with_body(70, "    call();\n")), []);
        assert_eq!(
            too_long(&with_body(71, "    if a { call(); }\n")),
            [Finding::new("a.rs", 1, "`long` has 71 lines, at most 70")]
        );
    }

    #[test]
    fn comments_and_blank_lines_are_free() {
        assert_eq!(too_long(&with_body(90, "    // Why.\n\n")), []);
    }

    #[test]
    fn braces_in_strings_do_not_end_a_body() {
        let text = format!("fn long() {{\n    f(\"}}\");\n{}}}\n", "    call();\n".repeat(70));
        assert_eq!(too_long(&Source::new("a.rs", &text)).len(), 1);
    }

    #[test]
    fn declarations_and_pointers_have_no_body() {
        let text = format!(
            "trait A {{ fn a(b: [u8; 2]); }}\nconst B: fn (u8) = c;\n{}",
            "d!();\n".repeat(80)
        );
        assert_eq!(too_long(&Source::new("a.rs", &text)), []);
    }

    #[test]
    fn short_functions_beside_each_other_are_not_added_up() {
        let text = format!("fn a() {{\n{0}}}\nfn b() {{\n{0}}}\n", "    call();\n".repeat(40));
        assert_eq!(too_long(&Source::new("a.rs", &text)), []);
    }
}
