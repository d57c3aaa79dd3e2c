//! What the environment and the command line say on top of the file. One mechanical rule finds the
//! place of a variable: `CLEAVE__LIMITS__BODY_MIB_MAX` is `limits.body_mib_max`, and
//! `CLEAVE__POOLS__0__POLICY` is `pools[0].policy`. No knob has a variable of its own invention.

use toml::Value;

use super::Flags;
use super::fit::{kind_of, name_of};
use super::problem::{Findings, Place, Wrong, join};
use super::shape::{Shape, ValueKind};

const PREFIX: &str = "cleave__";

/// The tree that grows from file, environment and flags, in that order.
pub(super) struct Overlay<'a> {
    pub shape: &'a Shape,
    pub tree: &'a mut Value,
    pub findings: &'a mut Findings,
}

impl Overlay<'_> {
    /// Puts every variable that begins with `CLEAVE__` into the tree.
    pub(super) fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        let ours = variables.filter_map(|(name, text)| Variable::new(name, text));
        let mut ours: Vec<Variable> = ours.collect();
        ours.sort_by(|a, b| a.order().cmp(&b.order()));
        for pair in ours.windows(2) {
            if let [one, other] = pair
                && one.steps == other.steps
            {
                let what = format!("says the same as {}", one.name);
                let place = Place::Variable(other.name.clone());
                self.findings.report_at(place, "", Wrong::new(what, "unset one of the two"));
            }
        }
        for Variable { name, steps, text } in &ours {
            self.put(&Place::Variable(name.clone()), steps, |shape| meaning(text, shape));
        }
    }

    /// Puts the flags of the command line into the tree.
    pub(super) fn flags(&mut self, flags: Flags) {
        let Flags { listen, admin, policy, replicas, join } = flags;
        let mut put = |flag, steps: &[&str], text: Option<String>| {
            if let Some(text) = text {
                self.put(&Place::Flag(flag), steps, |_| Value::String(text));
            }
        };
        put("--listen", &["listen"], listen);
        put("--admin", &["admin", "listen"], admin);
        put("--policy", &["policy"], policy);
        if !replicas.is_empty() {
            let replicas = replicas.into_iter().map(Value::String).collect();
            self.put(&Place::Flag("--replica"), &["replicas"], |_| Value::Array(replicas));
        }
        if !join.is_empty() {
            let peers = join.into_iter().map(Value::String).collect();
            self.put(&Place::Flag("--join"), &["cluster", "peers"], |_| Value::Array(peers));
        }
    }

    /// Walks down the steps, making what is missing on the way, and puts a value at their end.
    /// Works on a copy, so that steps that lead nowhere leave nothing half made behind.
    fn put(
        &mut self,
        place: &Place,
        steps: &[impl AsRef<str>],
        value: impl FnOnce(&Shape) -> Value,
    ) {
        let mut tree = self.tree.clone();
        let (mut shape, mut spot, mut path) = (self.shape, &mut tree, String::new());
        for step in steps {
            match descend(shape, spot, step.as_ref(), &path) {
                Ok(Inside { shape: inner, spot: within, path: longer, is_new }) => {
                    (shape, spot, path) = (inner, within, longer);
                    if is_new {
                        self.findings.note(&path, place.clone());
                    }
                }
                Err((path, wrong)) => return self.findings.report_at(place.clone(), &path, wrong),
            }
        }
        *spot = value(shape);
        *self.tree = tree;
        self.findings.note(&path, place.clone());
    }
}

/// Where one step leads.
struct Inside<'s, 't> {
    shape: &'s Shape,
    spot: &'t mut Value,
    path: String,
    is_new: bool,
}

fn descend<'s, 't>(
    shape: &'s Shape,
    spot: &'t mut Value,
    step: &str,
    path: &str,
) -> Result<Inside<'s, 't>, (String, Wrong)> {
    match (spot, shape.of_kind(ValueKind::Object).kind) {
        (Value::Table(table), Some(ValueKind::Object)) => {
            let shape = shape.of_kind(ValueKind::Object);
            let known = table.keys().find(|it| it.to_lowercase() == step);
            let key = known.cloned().unwrap_or_else(|| step.to_owned());
            let path = join(path, &key);
            let Some(inner) = shape.of_key(&key) else {
                return Err((path, shape.unknown_key(&key)));
            };
            let is_new = !table.contains_key(&key);
            let spot = table.entry(key).or_insert_with(|| empty(inner));
            Ok(Inside { shape: inner, spot, path, is_new })
        }
        (Value::Array(list), Some(ValueKind::Array)) => {
            let length = list.len();
            let index = step.parse().ok().filter(|it: &usize| *it <= length);
            let (Some(index), Some(inner)) = (index, shape.items.as_deref()) else {
                let remedy = format!("the next free index is {length}");
                return Err((join(path, step), Wrong::new("is no index of the list", remedy)));
            };
            let is_new = index == length;
            if is_new {
                list.push(empty(inner));
            }
            Ok(Inside {
                shape: inner,
                spot: &mut list[index],
                path: format!("{path}[{index}]"),
                is_new,
            })
        }
        (spot, _) => {
            let what = format!("nothing can be set inside, because it is {}", name_of(spot));
            Err((path.to_owned(), Wrong::new(what, format!("give {}", shape.describe()))))
        }
    }
}

/// Makes room for what a variable will put inside.
fn empty(shape: &Shape) -> Value {
    match shape.of_kind(ValueKind::Object).kind {
        Some(ValueKind::Object) => Value::Table(toml::Table::new()),
        Some(ValueKind::Array) => Value::Array(Vec::new()),
        Some(ValueKind::String | ValueKind::Integer | ValueKind::Number | ValueKind::Boolean)
        | None => Value::String(String::new()),
    }
}

/// Reads a variable as TOML; where text is wanted, or TOML is not given, it is text as it stands.
fn meaning(text: &str, shape: &Shape) -> Value {
    let verbatim = || Value::String(text.to_owned());
    let wants_text = shape.of_kind(ValueKind::String).kind == Some(ValueKind::String);
    match text.parse::<Value>() {
        Err(_) => verbatim(),
        Ok(value) => {
            let kind = kind_of(&value);
            let fits = kind.is_some_and(|it| shape.of_kind(it).kind == kind);
            if fits || !wants_text { value } else { verbatim() }
        }
    }
}

/// One variable that is ours, and the steps from the root to its place.
struct Variable {
    name: String,
    steps: Vec<String>,
    text: String,
}

impl Variable {
    fn new(name: String, text: String) -> Option<Self> {
        let lower = name.to_lowercase();
        let steps = lower.strip_prefix(PREFIX)?.split("__").map(str::to_owned).collect();
        Some(Self { name, steps, text })
    }

    /// Orders whole tables before their keys, and index 9 before index 10.
    fn order(&self) -> Vec<(usize, &str)> {
        self.steps.iter().map(|it| (it.len(), it.as_str())).collect()
    }
}
