//! Classes: the promise to each kind of request, and the share of the fleet that stands behind it.
//! A weight is a share of the work that is done while several classes wait, so the least class
//! still gets its own. Strict priorities were not used because the lowest of them starves.

use std::time::Duration;

use thiserror::Error;

use crate::domain::{Promise, whole_u32};

/// More classes than this fit neither a dashboard nor a head.
pub const CLASSES_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;

/// A share relative to others, in thousandths: from 0.001 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u32);

impl Weight {
    pub const ONE: Self = Self(1_000);

    /// Takes a weight as people write it; `None` when it is not in the range.
    pub fn new(weight: f64) -> Option<Self> {
        (0.001..=1_000.0).contains(&weight).then(|| Self(whole_u32(weight * 1_000.0)))
    }

    pub const fn thousandths(self) -> u32 {
        self.0
    }
}

/// A class by its place in the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u8);

impl ClassId {
    pub const fn index(self) -> usize {
        // Widening, and `From` is not const.
        #[expect(clippy::as_conversions, reason = "u8 always fits usize")]
        let index = self.0 as usize;
        index
    }
}

/// One level of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    pub weight: Weight,
    pub promise: Promise,
    /// How long a request may wait in the line before it is refused.
    pub wait_max: Duration,
}

/// The classes there are, heaviest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    classes: Vec<Class>,
    default: ClassId,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ClassesError {
    #[error("there must be at least one class")]
    Empty,
    #[error("there may be at most {CLASSES_MAX} classes")]
    TooMany,
    #[error("a class's name has 1 to {NAME_BYTES_MAX} letters, digits, '-' or '_', unlike {0:?}")]
    BadName(String),
    #[error("class {0:?} is listed twice")]
    Twice(String),
    #[error("there is no class {0:?} to be the default")]
    NoDefault(String),
}

impl Classes {
    /// Puts the classes in order; requests that ask for nothing are in the one called `default`.
    pub fn new(mut classes: Vec<Class>, default: &str) -> Result<Self, ClassesError> {
        if classes.is_empty() {
            return Err(ClassesError::Empty);
        }
        if CLASSES_MAX < classes.len() {
            return Err(ClassesError::TooMany);
        }
        if let Some(bad) = classes.iter().find(|it| !is_name(&it.name)) {
            return Err(ClassesError::BadName(bad.name.clone()));
        }
        // Stable, so that equal weights stay as they were listed.
        classes.sort_by_key(|it| std::cmp::Reverse(it.weight));
        for (at, class) in classes.iter().enumerate() {
            if classes[..at].iter().any(|it| it.name == class.name) {
                return Err(ClassesError::Twice(class.name.clone()));
            }
        }
        let set = Self { classes, default: ClassId(0) };
        match set.find(default) {
            Some(id) => Ok(Self { default: id, ..set }),
            None => Err(ClassesError::NoDefault(default.to_owned())),
        }
    }

    pub fn find(&self, name: &str) -> Option<ClassId> {
        self.ids().find(|it| self.get(*it).name.eq_ignore_ascii_case(name))
    }

    pub fn get(&self, id: ClassId) -> &Class {
        // An id from a larger set, before a reload, is the least of this one.
        &self.classes[id.index().min(self.classes.len() - 1)]
    }

    pub const fn default_id(&self) -> ClassId {
        self.default
    }

    pub fn ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..u8::try_from(self.classes.len()).unwrap_or(u8::MAX)).map(ClassId)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        self.ids().zip(&self.classes)
    }

    /// What a class promises. Answers of all classes share the replicas, so that the shortest gap that any class
    /// promises is kept for all of them.
    pub fn promise(&self, id: ClassId) -> Promise {
        Promise { token_gap: self.token_gap(), ..self.get(id).promise }
    }

    /// The time between tokens that is kept for all.
    pub fn token_gap_ms(&self) -> f64 {
        Promise { token_gap: self.token_gap(), ..Promise::default() }.token_gap_ms()
    }

    fn token_gap(&self) -> Option<Duration> {
        self.classes.iter().filter_map(|it| it.promise.token_gap).min()
    }

    /// The same classes, but that the default one promises this.
    #[must_use]
    pub fn promising(mut self, promise: Promise) -> Self {
        let default = self.default.index().min(self.classes.len() - 1);
        self.classes[default].promise = promise;
        self
    }

    /// Finds the class that lies `steps` below the default; above it where `steps` is negative. It
    /// ends at the ends, however far the steps go.
    pub fn below_default(&self, steps: i64) -> ClassId {
        let last = i64::try_from(self.classes.len() - 1).unwrap_or(0);
        let place = i64::from(self.default.0).saturating_add(steps).clamp(0, last);
        ClassId(u8::try_from(place).unwrap_or(0))
    }
}

fn is_name(name: &str) -> bool {
    let letters = name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && letters
}

impl Default for Classes {
    /// `interactive` gets sixteen times the work of `batch` while both wait, and four times that of
    /// `standard`: enough that a person at a screen hardly notices the others.
    fn default() -> Self {
        let class = |name: &str, weight, first_token_ms, wait_s| Class {
            name: name.to_owned(),
            weight: Weight(weight),
            promise: Promise {
                first_token: Some(Duration::from_millis(first_token_ms)),
                token_gap: None,
            },
            wait_max: Duration::from_secs(wait_s),
        };
        let interactive = class("interactive", 16_000, 1_000, 30);
        let standard = class("standard", 4_000, 5_000, 120);
        let batch = Class { promise: Promise::default(), ..class("batch", 1_000, 0, 600) };
        Self { classes: vec![interactive, standard, batch], default: ClassId(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[(&str, f64)]) -> Vec<Class> {
        let class = |&(name, weight): &(&str, f64)| Class {
            name: name.to_owned(),
            weight: Weight::new(weight).unwrap(),
            promise: Promise::default(),
            wait_max: Duration::from_secs(1),
        };
        names.iter().map(class).collect()
    }

    #[test]
    fn the_shortest_gap_that_any_class_promises_holds_for_all() {
        let gap = Some(Duration::from_millis(30));
        let promise = Promise { token_gap: gap, ..Promise::default() };
        let classes = Classes::default().promising(promise);
        assert_eq!(classes.promise(classes.default_id()), promise);
        let first = classes.promise(ClassId(0));
        assert_eq!((first.first_token, first.token_gap), (Some(Duration::from_secs(1)), gap));
    }

    #[test]
    fn the_default_set_is_a_set() {
        let classes = Classes::default();
        let listed: Vec<Class> = classes.iter().map(|it| it.1.clone()).collect();
        assert_eq!(Classes::new(listed, "standard"), Ok(classes));
    }

    #[test]
    fn classes_are_found_by_name_and_by_steps_from_the_default() {
        let classes = Classes::new(named(&[("b", 1.0), ("a", 9.0), ("c", 0.5)]), "b").unwrap();
        assert_eq!(classes.find("A"), Some(ClassId(0)));
        assert_eq!(classes.find("d"), None);
        let steps = [i64::MIN, -1, 0, 1, i64::MAX].map(|it| classes.below_default(it).0);
        assert_eq!(steps, [0, 0, 1, 2, 2]);
        assert_eq!(classes.get(ClassId(200)).name, "c");
    }

    #[test]
    fn a_set_that_makes_no_sense_is_refused() {
        let refused = |names: &[(&str, f64)], default| Classes::new(named(names), default);
        assert_eq!(refused(&[], "a"), Err(ClassesError::Empty));
        assert_eq!(refused(&[("a", 1.0)], "b"), Err(ClassesError::NoDefault("b".to_owned())));
        let twice = refused(&[("a", 1.0), ("a", 2.0)], "a");
        assert_eq!(twice, Err(ClassesError::Twice("a".to_owned())));
        let bad = refused(&[("a b", 1.0)], "a b");
        assert_eq!(bad, Err(ClassesError::BadName("a b".to_owned())));
        assert_eq!(refused(&[("a", 1.0); 17], "a"), Err(ClassesError::TooMany));
    }

    #[test]
    fn a_weight_is_a_number_of_some_size() {
        for weight in [f64::NAN, -1.0, 0.0, 1e-9, 1e9, f64::INFINITY] {
            assert_eq!(Weight::new(weight), None, "{weight}");
        }
        assert_eq!(Weight::new(1.0), Some(Weight::ONE));
    }
}
