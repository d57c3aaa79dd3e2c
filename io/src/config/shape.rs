//! The schema of the file, generated from `raw` and read back as plain structs. The check of the
//! file, the environment's paths and the reference page walk this one shape, so none of them can
//! know a knob that the others do not.

use indexmap::IndexMap;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Deserializer};

use super::problem::{Wrong, plain};
use super::raw::Raw;

/// What one value may be.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Shape {
    pub description: String,
    #[serde(rename = "type")]
    pub kind: Option<ValueKind>,
    /// Keys of a table, in the order they are explained.
    pub properties: IndexMap<String, Shape>,
    pub required: Vec<String>,
    /// What a table holds under keys of the user's choice; nothing when they are refused.
    #[serde(deserialize_with = "shape_or_false")]
    pub additional_properties: Option<Box<Shape>>,
    pub items: Option<Box<Shape>>,
    pub any_of: Vec<Shape>,
    #[serde(rename = "enum")]
    pub choices: Vec<String>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    pub format: String,
    pub examples: Vec<String>,
    pub default: Option<toml::Value>,
    #[serde(rename = "x-default")]
    pub default_text: Option<String>,
    #[serde(rename = "x-applies")]
    pub applies: Option<Applies>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum ValueKind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// When a changed setting takes effect.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Applies {
    Reload,
    Restart,
}

/// Generates the schema of the file.
pub(super) fn generate() -> Schema {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(without_null))
        .into_generator()
        .into_root_schema_for::<Raw>()
}

/// Takes `null` out of the schema: TOML has no such value, what is absent is left out.
fn without_null(schema: &mut Schema) {
    if schema.get("default").is_some_and(|it| it.as_null().is_some()) {
        schema.remove("default");
    }
    for key in ["type", "enum"] {
        if let Some(list) = schema.get_mut(key).and_then(|it| it.as_array_mut()) {
            list.retain(|it| !it.is_null() && it != "null");
        }
    }
    let kinds = schema.get_mut("type").and_then(|it| it.as_array_mut());
    if let Some(kind) = kinds.and_then(Vec::pop) {
        schema.insert("type".to_owned(), kind);
    }
}

fn shape_or_false<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<Shape>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ShapeOrFalse {
        Refused(#[expect(dead_code, reason = "only `false` occurs")] bool),
        Admitted(Box<Shape>),
    }
    Ok(match ShapeOrFalse::deserialize(from)? {
        ShapeOrFalse::Refused(_) => None,
        ShapeOrFalse::Admitted(shape) => Some(shape),
    })
}

impl Shape {
    /// Reads the schema of the whole file.
    pub(super) fn of_file() -> Self {
        let text = serde_json::to_string(&generate()).expect("a schema is JSON");
        serde_json::from_str(&text).expect("the schema of `Raw` uses only what `Shape` knows")
    }

    /// Finds the alternative that a kind of value can be, if there are alternatives.
    pub(super) fn of_kind(&self, kind: ValueKind) -> &Self {
        self.any_of.iter().find(|it| it.kind == Some(kind)).unwrap_or(self)
    }

    /// Finds what a table holds under a key.
    pub(super) fn of_key(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or(self.additional_properties.as_deref())
    }

    /// Says what may be written, so that it completes "give …".
    pub(super) fn describe(&self) -> String {
        if !self.any_of.is_empty() {
            let parts: Vec<String> = self.any_of.iter().map(Self::describe).collect();
            return parts.join(" or ");
        }
        if !self.choices.is_empty() {
            let quoted: Vec<String> = self.choices.iter().map(|it| format!("\"{it}\"")).collect();
            return format!("one of {}", quoted.join(", "));
        }
        let range = match (self.minimum, self.maximum) {
            (Some(min), Some(max)) => format!(" from {min} to {max}"),
            (Some(min), None) => format!(" of at least {min}"),
            (None, Some(max)) => format!(" of at most {max}"),
            (None, None) => String::new(),
        };
        match self.kind {
            Some(ValueKind::Object) if self.properties.is_empty() => "a table".to_owned(),
            Some(ValueKind::Object) => {
                let keys: Vec<&str> = self.properties.keys().map(String::as_str).collect();
                format!("a table of {}", keys.join(", "))
            }
            Some(ValueKind::Array) => match &self.items {
                Some(items) => format!("a list, each {}", items.describe()),
                None => "a list".to_owned(),
            },
            Some(ValueKind::String) => match self.examples.first() {
                Some(example) => {
                    format!("a {} such as \"{example}\"", self.format.replace('-', " "))
                }
                None => "text in quotes".to_owned(),
            },
            Some(ValueKind::Integer) => format!("a whole number{range}"),
            Some(ValueKind::Number) => format!("a number{range}"),
            Some(ValueKind::Boolean) => "true or false".to_owned(),
            None => "something else".to_owned(),
        }
    }

    /// Words the refusal of a key that a table does not have.
    pub(super) fn unknown_key(&self, key: &str) -> Wrong {
        let known = self.properties.keys().map(String::as_str);
        let remedy = match nearest(key, known.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                format!("remove it; the keys here are {}", known.collect::<Vec<_>>().join(", "))
            }
        };
        Wrong::new("unknown key", remedy)
    }

    /// Words the refusal of a word that is none of the choices.
    pub(super) fn unknown_choice(&self, word: &str) -> Wrong {
        let what = format!("{} is not a choice", plain(word));
        match nearest(word, self.choices.iter().map(String::as_str)) {
            Some(near) => {
                Wrong::new(what, format!("did you mean \"{near}\"? give {}", self.describe()))
            }
            None => Wrong::new(what, format!("give {}", self.describe())),
        }
    }
}

/// Finds the known word that a misspelt one most likely means.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const LIKENESS_MIN: f64 = 0.8;
    const CHARS_MAX: usize = 100;
    if CHARS_MAX < word.len() {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let scored = known.map(|it| (strsim::jaro_winkler(&word, it), it));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(likeness, _)| LIKENESS_MIN <= *likeness).map(|(_, it)| it)
}
