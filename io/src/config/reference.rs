//! The reference page, generated from the schema, so that it cannot lag behind the program.

use std::fmt::Write;

use super::shape::{Applies, Shape, ValueKind};

const HEAD: &str = "\
# Configuration reference

<!-- Generated from io/src/config/raw; a test compares it. To renew it:
     CLEAVE_UPDATE_DOCS=1 cargo test -p cleave-io config -->

";

/// Writes the reference page: one table per section.
pub fn reference() -> String {
    let shape = Shape::of_file();
    let mut page = HEAD.to_owned();
    section(&mut page, "Top level", &shape, Applies::Restart, "");
    page
}

/// Writes one section, then those inside it.
fn section(page: &mut String, title: &str, shape: &Shape, around: Applies, path: &str) {
    let mut inner = Vec::new();
    let mut rows = String::new();
    for (key, value) in &shape.properties {
        let applies = value.applies.unwrap_or(around);
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match table_in(value) {
            Some(table) if value.kind == Some(ValueKind::Array) => {
                inner.push((format!("`[[{path}]]`"), table, applies, path));
            }
            Some(table) => {
                inner.push((format!("`[{path}]`"), table, applies, path));
                continue;
            }
            None => {}
        }
        row(&mut rows, key, value, applies);
    }
    let put = write!(
        page,
        "## {title}\n\n{}\n\n| key | value | default | change needs | meaning |\n\
         | --- | --- | --- | --- | --- |\n{rows}\n",
        shape.description
    );
    put.expect("text takes any text");
    for (title, shape, applies, path) in inner {
        section(page, &title, shape, applies, &path);
    }
}

fn row(rows: &mut String, key: &str, value: &Shape, applies: Applies) {
    let default = match (&value.default_text, &value.default) {
        (Some(text), _) => text.clone(),
        (None, Some(default)) => format!("`{default}`"),
        (None, None) => "–".to_owned(),
    };
    let applies = match applies {
        Applies::Reload => "reload",
        Applies::Restart => "restart",
    };
    let meaning = value.description.replace('\n', " ");
    let what = value.describe();
    writeln!(rows, "| `{key}` | {what} | {default} | {applies} | {meaning} |")
        .expect("text takes any text");
}

/// Finds the table with keys of its own that a value is, or is a list of.
fn table_in(shape: &Shape) -> Option<&Shape> {
    let shape = shape.items.as_deref().unwrap_or(shape).of_kind(ValueKind::Object);
    (!shape.properties.is_empty()).then_some(shape)
}
