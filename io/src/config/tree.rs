//! The file as a tree of values, with the line of each. `toml` could deserialise the file in one
//! step, but it would stop at the first thing that does not fit and forget where the others stand.

use std::ops::Range;

use toml::Value;
use toml::de::{DeArray, DeTable, DeValue};

use super::problem::{Findings, Place, Wrong, join};

/// Reads the text of a file; what is not TOML is reported with line and column, and nothing is
/// returned then, because a guess at what was meant would cause misleading problems further on.
pub(super) fn read(file: &str, text: &str, findings: &mut Findings) -> Option<toml::Table> {
    let lines = Lines::new(file, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        // The error's own `Display` shows the line it is about, which may hold a secret.
        let place = lines.exact(error.span());
        let what = format!("not valid TOML: {}", error.message());
        findings.report_at(place, "", Wrong::new(what, "correct the syntax; see https://toml.io"));
    }
    errors.is_empty().then(|| TreeReader { lines, findings }.table(document.get_ref(), ""))
}

struct TreeReader<'a> {
    lines: Lines<'a>,
    findings: &'a mut Findings,
}

impl TreeReader<'_> {
    fn table(&mut self, from: &DeTable<'_>, path: &str) -> toml::Table {
        let mut table = toml::Table::new();
        for (key, value) in from {
            let path = join(path, key.get_ref());
            self.findings.note(&path, self.lines.line(key.span()));
            if let Some(value) = self.value(value.get_ref(), &path) {
                table.insert(key.get_ref().to_string(), value);
            }
        }
        table
    }

    fn list(&mut self, from: &DeArray<'_>, path: &str) -> Vec<Value> {
        let mut list = Vec::with_capacity(from.len());
        for (index, value) in from.iter().enumerate() {
            let path = format!("{path}[{index}]");
            self.findings.note(&path, self.lines.line(value.span()));
            // A number too large still takes its place, so that the others keep theirs.
            list.push(self.value(value.get_ref(), &path).unwrap_or(Value::Integer(i64::MAX)));
        }
        list
    }

    /// Converts a value; whole numbers are text to the parser, and may not fit.
    fn value(&mut self, from: &DeValue<'_>, path: &str) -> Option<Value> {
        let number = match from {
            DeValue::String(text) => return Some(Value::String(text.to_string())),
            DeValue::Boolean(flag) => return Some(Value::Boolean(*flag)),
            DeValue::Datetime(datetime) => return Some(Value::Datetime(*datetime)),
            DeValue::Array(list) => return Some(Value::Array(self.list(list, path))),
            DeValue::Table(table) => return Some(Value::Table(self.table(table, path))),
            DeValue::Float(number) => number.as_str().parse().ok().map(Value::Float),
            DeValue::Integer(number) => {
                i64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::Integer)
            }
        };
        if number.is_none() {
            self.findings.report(path, Wrong::new("is too large a number", "give a smaller one"));
        }
        number
    }
}

/// Turns positions in a text into places in a file.
struct Lines<'a> {
    file: &'a str,
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(file: &'a str, text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        Self { file, text, starts: std::iter::once(0).chain(ends).collect() }
    }

    fn line(&self, span: Range<usize>) -> Place {
        let line = self.starts.partition_point(|start| *start <= span.start);
        Place::File { file: self.file.to_owned(), line: Some(line), column: None }
    }

    fn exact(&self, span: Option<Range<usize>>) -> Place {
        let position = span.map_or(self.text.len(), |it| it.start).min(self.text.len());
        let line = self.starts.partition_point(|start| *start <= position);
        let start = line.checked_sub(1).map_or(0, |it| self.starts[it]);
        let before = self.text.get(start..position).unwrap_or_default();
        let column = before.chars().count() + 1;
        Place::File { file: self.file.to_owned(), line: Some(line), column: Some(column) }
    }
}
