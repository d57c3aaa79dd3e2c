//! The sections about engines: what of a client's request reaches them although it would steer them, and
//! how they are reached over TLS.

use std::path::PathBuf;

use cleave_core::protocol::{ENGINE_FIELDS, ENGINE_HEADERS};
use schemars::JsonSchema;
use serde::Deserialize;

use super::text::{HostName, Text, TextValue};
use super::{Slots, slots};
use crate::config::problem::Wrong;

/// Fields of a body by which a client steers an engine: where it fetches KV from, on which rank it
/// runs, with which priority it is scheduled. They are refused or taken out.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct EngineFields {
    /// Those that pass as they are. A `cache_salt` or an `extra_key` that is not listed is replaced by
    /// one of the router's, which keeps apart the same prompts and never meets another tenant's; where
    /// `cache = "per_tenant"` they are replaced in any case.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<Text<FieldName>>")]
    pub allow: Slots<Text<FieldName>>,
}

/// Headers by which a client steers an engine. They are taken out.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct EngineHeaders {
    /// Those that pass as they are.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<Text<HeaderPattern>>")]
    pub allow: Slots<Text<HeaderPattern>>,
}

/// How engines are reached whose address begins with `https://`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct EngineTlsSection {
    /// PEM file of the CAs that sign the engines' certificates. Without one, those that the system trusts.
    pub ca: Option<PathBuf>,
    /// PEM file of the certificate by which the router shows itself to engines that ask for one.
    pub cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM.
    pub key: Option<PathBuf>,
    /// Name that stands in the engines' certificates, where it is not the host of their address.
    pub server_name: Option<Text<HostName>>,
}

impl EngineTlsSection {
    pub(in crate::config) const fn is_empty(&self) -> bool {
        let Self { ca, cert, key, server_name } = self;
        ca.is_none() && cert.is_none() && key.is_none() && server_name.is_none()
    }
}

/// A field, by its place in the table.
#[derive(Clone)]
pub(in crate::config) struct FieldName(pub usize);

impl TextValue for FieldName {
    const FORMAT: &'static str = "";
    const EXAMPLE: &'static str = "priority";

    fn read(text: &str) -> Result<Self, Wrong> {
        let place = ENGINE_FIELDS.iter().position(|it| it.name == text);
        place.map(Self).ok_or_else(|| {
            Wrong::new("is no field that would be held back", "leave it out: it passes anyway")
        })
    }

    fn write(&self) -> String {
        ENGINE_FIELDS[self.0].name.to_owned()
    }

    fn choices() -> Vec<&'static str> {
        ENGINE_FIELDS.iter().map(|it| it.name).collect()
    }
}

/// A header or a family of them, by its place in the table.
#[derive(Clone)]
pub(in crate::config) struct HeaderPattern(pub usize);

impl TextValue for HeaderPattern {
    const FORMAT: &'static str = "";
    const EXAMPLE: &'static str = "x-data-parallel-rank";

    fn read(text: &str) -> Result<Self, Wrong> {
        let place = ENGINE_HEADERS.iter().position(|it| *it == text);
        place.map(Self).ok_or_else(|| {
            Wrong::new("is no header that would be held back", "leave it out: it passes anyway")
        })
    }

    fn write(&self) -> String {
        ENGINE_HEADERS[self.0].to_owned()
    }

    fn choices() -> Vec<&'static str> {
        ENGINE_HEADERS.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_written_as_it_is_read() {
        fn check<K: TextValue>(text: &str) {
            assert_eq!(K::read(text).map(|it| it.write()).ok().as_deref(), Some(text));
        }
        FieldName::choices().into_iter().for_each(check::<FieldName>);
        HeaderPattern::choices().into_iter().for_each(check::<HeaderPattern>);
        check::<FieldName>(FieldName::EXAMPLE);
        check::<HeaderPattern>(HeaderPattern::EXAMPLE);
        assert!(FieldName::read("model").is_err() && HeaderPattern::read("host").is_err());
    }
}
