//! What is wrong with a configuration, where it was said and what to do about it. Problems are
//! collected, not returned at the first: a file should need one round of fixing. They never repeat
//! a value that could be a secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::tls::{OwnCertificate, ShownTo};

/// Where a setting was given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    File {
        file: String,
        line: Option<usize>,
        column: Option<usize>,
    },
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
    /// It was not given, and is needed.
    Nowhere,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    pub place: Place,
    /// Dotted path of the setting, such as `pools[0].replicas[1].weight`; empty for the whole file.
    pub path: String,
    pub what: String,
    pub remedy: String,
}

/// Everything that is wrong, in the order of the file; then environment, then flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Problems(Vec<Problem>);

/// What is wrong with a value and how to put it right, before its place is known.
#[derive(Debug)]
pub(super) struct Wrong {
    pub what: String,
    pub remedy: String,
}

/// Problems in the making, and where each setting came from.
pub(super) struct Findings {
    places: BTreeMap<String, Place>,
    /// Where to point when a path and all its parents were given nowhere.
    whole: Place,
    problems: Vec<Problem>,
    /// Files that were read, and matter when they change.
    files: BTreeSet<PathBuf>,
    /// Those of them that hold certificates of the router's own.
    shown: BTreeSet<(ShownTo, PathBuf)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, column } => {
                f.write_str(file)?;
                line.iter().chain(column).try_for_each(|number| write!(f, ":{number}"))
            }
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
            Self::Nowhere => f.write_str("configuration"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}\n    remedy: {}", self.what, self.remedy)
    }
}

impl Problems {
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    fn text(&self) -> String {
        let blocks: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        blocks.join("\n")
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Wrong {
    pub(super) fn new(what: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self { what: what.to_string(), remedy: remedy.to_string() }
    }
}

impl Findings {
    pub(super) fn new(file: Option<String>) -> Self {
        let whole =
            file.map_or(Place::Nowhere, |file| Place::File { file, line: None, column: None });
        Self {
            places: BTreeMap::new(),
            whole,
            problems: Vec::new(),
            files: BTreeSet::new(),
            shown: BTreeSet::new(),
        }
    }

    /// Remembers where a setting was given; what was known of it and its inside is superseded.
    pub(super) fn note(&mut self, path: &str, place: Place) {
        let is_inside =
            |it: &str| it.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']));
        let stale: Vec<String> = self
            .places
            .range(path.to_owned()..)
            .take_while(|(it, _)| it.starts_with(path))
            .filter(|(it, _)| is_inside(it))
            .map(|(it, _)| it.clone())
            .collect();
        for it in stale {
            self.places.remove(&it);
        }
        self.places.insert(path.to_owned(), place);
    }

    /// Says where a setting was given, or else the nearest thing around it.
    pub(super) fn place(&self, path: &str) -> Place {
        let mut around = path;
        loop {
            if let Some(place) = self.places.get(around) {
                return place.clone();
            }
            match around.rfind(['.', '[']) {
                Some(end) => around = &around[..end],
                None => return self.whole.clone(),
            }
        }
    }

    pub(super) fn report(&mut self, path: &str, wrong: Wrong) {
        self.report_at(self.place(path), path, wrong);
    }

    pub(super) fn report_at(&mut self, place: Place, path: &str, wrong: Wrong) {
        let Wrong { what, remedy } = wrong;
        self.problems.push(Problem { place, path: path.to_owned(), what, remedy });
    }

    /// Remembers a file that was read beside the configuration.
    pub(super) fn watch(&mut self, file: &Path) {
        self.files.insert(file.to_owned());
    }

    pub(super) fn watched(&self) -> Vec<PathBuf> {
        self.files.iter().cloned().collect()
    }

    /// Remembers the file of a certificate of the router's own; a change of it is a reload.
    pub(super) fn show(&mut self, shown_to: ShownTo, file: &Path) {
        self.watch(file);
        self.shown.insert((shown_to, file.to_owned()));
    }

    /// Reads until when the router's own certificates hold.
    pub(super) fn certificates(&self) -> Vec<OwnCertificate> {
        self.shown.iter().filter_map(|(to, file)| OwnCertificate::read(*to, file)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Tells whether something is already wrong with this very setting.
    pub(super) fn is_refused(&self, path: &str) -> bool {
        self.problems.iter().any(|it| it.path == path)
    }

    /// Hands over what was found, in order, each once.
    pub(super) fn refuse(mut self) -> Problems {
        self.problems.sort();
        self.problems.dedup();
        Problems(self.problems)
    }
}

/// Appends a key to a path, quoted if it is not a plain word.
pub(super) fn join(path: &str, key: &str) -> String {
    let key = plain(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// Shows a name that users made up: bounded, and quoted unless it is a plain word.
pub(super) fn plain(name: &str) -> String {
    const CHARS_MAX: usize = 60;
    let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    if !name.is_empty() && name.len() <= CHARS_MAX && name.chars().all(is_word) {
        return name.to_owned();
    }
    let short: String = name.chars().take(CHARS_MAX).collect();
    let mark = if short.len() < name.len() { "…" } else { "" };
    format!("{short:?}{mark}")
}
