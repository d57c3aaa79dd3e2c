//! Fields of a body that steer an engine: where they stand, and what goes out in their place. A body is
//! never written anew: parts of it are left out or replaced, and what is left is JSON again.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::field::Field;
use super::span_of;
use crate::protocol::opening::accept_anything_else;
use crate::protocol::steering::{Allowed, Care, ENGINE_FIELDS, EngineField};

/// More of them in one body are no mistake but an attempt to make it costly.
const HITS_MAX: usize = 64;

/// A part of a body, and what stands in its place.
pub type Edit = (Range<usize>, String);

/// A field that steers an engine is in the body, and may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{field}` steers the engine behind the router and is not passed on; an operator can allow it \
     (engine_fields.allow)"
)]
pub struct Steered {
    pub field: &'static str,
}

/// Whether the body that goes out has a salt of the router's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Salting<'s> {
    /// It has the client's, if any.
    Never,
    /// In place of the client's.
    Chosen(&'s str),
    /// Also where the client has none.
    Always(&'s str),
}

/// One such field.
#[derive(Clone, Copy, Debug)]
struct Hit<'a> {
    place: usize,
    value: &'a RawValue,
    /// Whether it stands at the top.
    top: bool,
}

/// All of them, in the order in which they stand.
#[derive(Debug, Default)]
pub(super) struct Hits<'a> {
    hits: Vec<Hit<'a>>,
    /// Fields at the top, of any kind.
    pub(super) members: usize,
}

impl<'a> Hits<'a> {
    /// Notes a field; tells its name if it is one too many.
    pub(super) fn add(
        &mut self,
        place: usize,
        value: &'a RawValue,
        top: bool,
    ) -> Option<&'static str> {
        let known = top && self.hits.iter().any(|it| it.top && it.place == place);
        if known || HITS_MAX <= self.hits.len() {
            return Some(ENGINE_FIELDS[place].name);
        }
        self.hits.push(Hit { place, value, top });
        None
    }

    /// Lists what the client chose to keep its prompts apart by; nothing where all of it may pass.
    pub(super) fn chosen(&self, allowed: Allowed) -> impl Iterator<Item = (&'static str, &'a str)> {
        let salts = || {
            let care = |it: &&Hit<'_>| ENGINE_FIELDS[it.place].care;
            self.hits.iter().filter(move |it| it.top && care(it) == Care::Replace && !it.is_null())
        };
        let replaces = salts().any(|it| !allowed.has(it.place));
        let ours = salts().filter(move |_| replaces);
        ours.map(|it| (ENGINE_FIELDS[it.place].name, it.value.get()))
    }

    pub(super) fn edits(
        &self,
        text: &str,
        allowed: Allowed,
        salting: Salting<'_>,
    ) -> Result<Vec<Edit>, Steered> {
        let mut edits = Edits { text, all: Vec::new(), first_to: 0, removed: 0 };
        let mut salt = match salting {
            Salting::Never => None,
            Salting::Chosen(salt) | Salting::Always(salt) => Some(salt),
        };
        for hit in &self.hits {
            let EngineField { name, care } = ENGINE_FIELDS[hit.place];
            let passes = allowed.has(hit.place);
            match care {
                Care::Refuse if !passes && !hit.is_null() => None,
                Care::TakeOut if !passes => edits.take_out(hit),
                // Where the router has a salt, no other reaches the engine.
                Care::Replace if salting != Salting::Never && hit.top => match salt.take() {
                    Some(salt) => edits.replace(hit, salt),
                    None => edits.take_out(hit),
                },
                Care::Replace if !(passes || hit.top && hit.is_null()) => edits.take_out(hit),
                Care::Refuse | Care::TakeOut | Care::Replace => Some(()),
            }
            // What cannot be found cannot be taken out.
            .ok_or(Steered { field: name })?;
        }
        if let (Salting::Always(_), Some(salt)) = (salting, salt)
            && edits.removed < self.members
        {
            edits.insert(salt);
        }
        Ok(edits.all)
    }
}

impl Hit<'_> {
    fn is_null(&self) -> bool {
        self.value.get() == "null"
    }
}

/// Edits in the making.
struct Edits<'t> {
    text: &'t str,
    all: Vec<Edit>,
    /// Where the comma ended that was taken out behind the first field of an object.
    first_to: usize,
    /// How many fields at the top were taken out.
    removed: usize,
}

impl Edits<'_> {
    /// Leaves out a field and the comma before it, or behind it if it is the first that is left.
    fn take_out(&mut self, hit: &Hit<'_>) -> Option<()> {
        let Range { start, end } = self.field(hit)?;
        let before = self.text[..start].trim_ascii_end();
        let is_first = before.ends_with('{') || before.len() == self.first_to;
        let span = if is_first {
            let behind = self.text[end..].trim_ascii_start();
            let comma = self.text.len() - behind.len() + 1;
            if behind.starts_with(',') {
                self.first_to = comma;
                start..comma
            } else {
                start..end
            }
        } else {
            before.strip_suffix(',')?.len()..end
        };
        self.removed += usize::from(hit.top);
        self.all.push((span, String::new()));
        Some(())
    }

    fn replace(&mut self, hit: &Hit<'_>, salt: &str) -> Option<()> {
        self.all.push((self.field(hit)?, format!("\"cache_salt\":\"{salt}\"")));
        Some(())
    }

    /// Puts a salt before all other fields; there is one at least, so a comma after it is in place.
    fn insert(&mut self, salt: &str) {
        let Some(start) = self.text.find('{').map(|it| it + 1) else { return };
        self.all.insert(0, (start..start, format!("\"cache_salt\":\"{salt}\",")));
    }

    /// Finds a field, from the quote that opens its key to the end of its value. The key has no quote
    /// of its own, escaped or not: decoded it is a name from the table.
    fn field(&self, hit: &Hit<'_>) -> Option<Range<usize>> {
        let value = span_of(hit.value, self.text);
        let key = self.text[..value.start].trim_ascii_end().strip_suffix(':')?;
        let key = key.trim_ascii_end().strip_suffix('"')?;
        Some(key.rfind('"')?..value.end)
    }
}

/// Looks into a value for fields that engines read there.
pub(super) struct Nest<'h, 'a> {
    pub(super) hits: &'h mut Hits<'a>,
    pub(super) twice: &'h mut Option<&'static str>,
}

impl<'de> DeserializeSeed<'de> for Nest<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nest<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key::<Field>()? {
            if let Some(place) = field.place() {
                let one_too_many = self.hits.add(place, map.next_value()?, false);
                *self.twice = self.twice.or(one_too_many);
            } else if field == Field::Nest {
                map.next_value_seed(Nest { hits: &mut *self.hits, twice: &mut *self.twice })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    accept_anything_else!();
}
