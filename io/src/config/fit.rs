//! Whether what was written fits the schema: every key known, every value of its kind and in its
//! range. What does not fit is reported and taken out, so that the rest can still be read and
//! everything that is wrong is told at once. List elements are left in place for their index.

use toml::Value;

use super::problem::{Findings, Wrong, join};
use super::raw;
use super::shape::{Shape, ValueKind};

/// Reports what does not fit and takes it out; says whether the value itself may stay.
pub(super) fn fit(shape: &Shape, value: &mut Value, path: &str, findings: &mut Findings) -> bool {
    let kind = kind_of(value);
    let shape = kind.map_or(shape, |kind| shape.of_kind(kind));
    let wrong = match (shape.kind, value) {
        (Some(ValueKind::Object), Value::Table(table)) => {
            return fit_table(shape, table, path, findings);
        }
        (Some(ValueKind::Array), Value::Array(list)) => {
            fit_list(shape, list, path, findings);
            return true;
        }
        (Some(ValueKind::String), Value::String(text)) => wrong_text(shape, text),
        (Some(ValueKind::Integer | ValueKind::Number), Value::Integer(number)) => {
            wrong_integer(shape, *number)
        }
        (Some(ValueKind::Number), Value::Float(number)) => wrong_number(shape, *number),
        (Some(ValueKind::Boolean), Value::Boolean(_)) => None,
        (_, value) => {
            let what = format!("is {}", name_of(value));
            Some(Wrong::new(what, format!("give {}", shape.describe())))
        }
    };
    let fits = wrong.is_none();
    if let Some(wrong) = wrong {
        findings.report(path, wrong);
    }
    fits
}

fn fit_table(shape: &Shape, table: &mut toml::Table, path: &str, findings: &mut Findings) -> bool {
    for key in &shape.required {
        if !table.contains_key(key) {
            let remedy = match shape.of_key(key) {
                Some(missing) => format!("add `{key}`: give {}", missing.describe()),
                None => format!("add `{key}`"),
            };
            findings.report(path, Wrong::new(format!("has no `{key}`"), remedy));
        }
    }
    table.retain(|key, value| {
        let path = join(path, key);
        if let Some(shape) = shape.of_key(key) {
            fit(shape, value, &path, findings)
        } else {
            findings.report(&path, shape.unknown_key(key));
            false
        }
    });
    shape.required.iter().all(|key| table.contains_key(key))
}

fn fit_list(shape: &Shape, list: &mut [Value], path: &str, findings: &mut Findings) {
    let Some(items) = &shape.items else { return };
    for (index, value) in list.iter_mut().enumerate() {
        fit(items, value, &format!("{path}[{index}]"), findings);
    }
}

fn wrong_text(shape: &Shape, text: &str) -> Option<Wrong> {
    if !shape.choices.is_empty() && !shape.choices.iter().any(|it| it == text) {
        return Some(shape.unknown_choice(text));
    }
    if text.chars().count() < shape.min_length.unwrap_or(0) {
        return Some(Wrong::new("is empty", format!("give {}", shape.describe())));
    }
    if let Some(max) = shape.max_length
        && max < text.chars().count()
    {
        return Some(Wrong::new("is too long", format!("give at most {max} characters")));
    }
    raw::check(&shape.format, text).err()
}

fn wrong_integer(shape: &Shape, number: i64) -> Option<Wrong> {
    #[expect(
        clippy::as_conversions,
        clippy::cast_precision_loss,
        reason = "bounds are far below 2^53"
    )]
    let close = number as f64;
    wrong_number(shape, close).map(|wrong| Wrong { what: format!("is {number}"), ..wrong })
}

fn wrong_number(shape: &Shape, number: f64) -> Option<Wrong> {
    let min = shape.minimum.unwrap_or(f64::NEG_INFINITY);
    let max = shape.maximum.unwrap_or(f64::INFINITY);
    // `contains` is false for NaN, which therefore never fits.
    (!(min..=max).contains(&number))
        .then(|| Wrong::new(format!("is {number}"), format!("give {}", shape.describe())))
}

pub(super) fn kind_of(value: &Value) -> Option<ValueKind> {
    match value {
        Value::String(_) => Some(ValueKind::String),
        Value::Integer(_) => Some(ValueKind::Integer),
        Value::Float(_) => Some(ValueKind::Number),
        Value::Boolean(_) => Some(ValueKind::Boolean),
        Value::Datetime(_) => None,
        Value::Array(_) => Some(ValueKind::Array),
        Value::Table(_) => Some(ValueKind::Object),
    }
}

pub(super) fn name_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}
