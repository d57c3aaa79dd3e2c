//! The two objects of Kubernetes by which routers share something: a Lease, which says which of them leads, and a
//! `ConfigMap`, which keeps what they know. What is written names the version that it was decided on, so that the API
//! server refuses it where another writer was faster; without a version it makes the object.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::kubernetes::BadApiAnswer;

/// The annotation that names the router which wrote a `ConfigMap` last, and its term.
const WRITER: &str = "cleave/writer";

/// A Lease as it stands there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectLease {
    pub version: String,
    /// Which router has it; empty where none does.
    pub holder: String,
    /// How long it holds after it was renewed.
    pub seconds: u32,
    /// How often it passed to another holder.
    pub term: i64,
}

/// What is written into a Lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseChange<'a> {
    pub name: &'a str,
    pub version: Option<&'a str>,
    /// None gives it back.
    pub holder: Option<&'a str>,
    pub seconds: u32,
    pub term: i64,
    /// The time of day, as RFC 3339 writes it with six places.
    pub now: &'a str,
    pub is_taken: bool,
}

/// A `ConfigMap` as it stands there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMap {
    pub version: String,
    /// What the router that wrote it last calls itself, with its term before it.
    pub writer: String,
    pub entries: BTreeMap<String, Vec<u8>>,
}

/// What is written into a `ConfigMap`; entries that are not named stay.
#[derive(Clone, Copy, Debug)]
pub struct MapChange<'a> {
    pub name: &'a str,
    pub version: Option<&'a str>,
    pub writer: &'a str,
    pub entry: Option<(&'a str, &'a [u8])>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawKept<T> {
    metadata: RawKeptMetadata,
    spec: T,
    binary_data: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawKeptMetadata {
    resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawLeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    lease_transitions: Option<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectBody<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    metadata: MetadataBody<'a>,
    #[serde(flatten)]
    rest: T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetadataBody<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, &'a str>,
}

#[derive(Serialize)]
struct LeaseBody<'a> {
    spec: LeaseSpecBody<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpecBody<'a> {
    holder_identity: Option<&'a str>,
    lease_duration_seconds: u32,
    lease_transitions: i64,
    renew_time: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquire_time: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MapBody<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    binary_data: BTreeMap<&'a str, String>,
}

/// Reads a Lease.
pub fn read_lease(bytes: &[u8]) -> Result<ObjectLease, BadApiAnswer> {
    let RawKept { metadata, spec, .. } = serde_json::from_slice::<RawKept<RawLeaseSpec>>(bytes)?;
    let version = versioned(&metadata)?;
    Ok(ObjectLease {
        version,
        holder: spec.holder_identity.unwrap_or_default(),
        seconds: spec.lease_duration_seconds.unwrap_or(0),
        term: spec.lease_transitions.unwrap_or(0),
    })
}

/// Writes a Lease, new or as a merge patch.
pub fn write_lease(change: LeaseChange<'_>) -> Vec<u8> {
    let LeaseChange { name, version, holder, seconds, term, now, is_taken } = change;
    let metadata =
        MetadataBody { name, resource_version: version, annotations: BTreeMap::default() };
    let spec = LeaseSpecBody {
        holder_identity: holder,
        lease_duration_seconds: seconds,
        lease_transitions: term,
        renew_time: now,
        acquire_time: is_taken.then_some(now),
    };
    let (api_version, kind, rest) = ("coordination.k8s.io/v1", "Lease", LeaseBody { spec });
    serde_json::to_vec(&ObjectBody { api_version, kind, metadata, rest }).unwrap_or_default()
}

/// Reads a `ConfigMap`; an entry that is no base64 is left out.
pub fn read_map(bytes: &[u8]) -> Result<ObjectMap, BadApiAnswer> {
    let kept: RawKept<serde::de::IgnoredAny> = serde_json::from_slice(bytes)?;
    let version = versioned(&kept.metadata)?;
    let writer = kept.metadata.annotations.unwrap_or_default().remove(WRITER).unwrap_or_default();
    let entries = kept.binary_data.unwrap_or_default();
    let entries =
        entries.into_iter().filter_map(|(name, it)| Some((name, STANDARD.decode(it).ok()?)));
    Ok(ObjectMap { version, writer, entries: entries.collect() })
}

/// Writes a `ConfigMap`, new or as a merge patch.
pub fn write_map(change: MapChange<'_>) -> Vec<u8> {
    let MapChange { name, version, writer, entry } = change;
    let metadata =
        MetadataBody { name, resource_version: version, annotations: [(WRITER, writer)].into() };
    let binary_data = entry.into_iter().map(|(name, it)| (name, STANDARD.encode(it))).collect();
    let (api_version, kind, rest) = ("v1", "ConfigMap", MapBody { binary_data });
    serde_json::to_vec(&ObjectBody { api_version, kind, metadata, rest }).unwrap_or_default()
}

fn versioned(metadata: &RawKeptMetadata) -> Result<String, BadApiAnswer> {
    let version = metadata.resource_version.clone();
    if version.is_empty() { Err(BadApiAnswer::Without("resourceVersion")) } else { Ok(version) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read_and_written_by_its_version() {
        let text = br#"{"metadata":{"name":"c","resourceVersion":"7","uid":"u"},"spec":{"holderIdentity":"1 a:1",
            "leaseDurationSeconds":8,"leaseTransitions":3,"renewTime":"2026-11-16T10:00:00.000000Z"}}"#;
        let lease = read_lease(text).unwrap();
        let want = ObjectLease {
            version: "7".to_owned(),
            holder: "1 a:1".to_owned(),
            seconds: 8,
            term: 3,
        };
        assert_eq!(lease, want);
        let bare = read_lease(br#"{"metadata":{"resourceVersion":"1"},"spec":{}}"#).unwrap();
        assert_eq!((bare.holder.as_str(), bare.term), ("", 0));
        assert!(read_lease(b"{}").is_err() && read_lease(b"<html>").is_err());
        let change = LeaseChange {
            name: "c",
            version: Some("7"),
            holder: None,
            seconds: 8,
            term: 3,
            now: "then",
            is_taken: false,
        };
        let patch = String::from_utf8(write_lease(change)).unwrap();
        let want = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"c","resourceVersion":"7"},"spec":{"holderIdentity":null,"leaseDurationSeconds":8,"leaseTransitions":3,"renewTime":"then"}}"#;
        assert_eq!(patch, want);
    }

    #[test]
    fn a_map_comes_back_as_it_was_written() {
        let entry = Some(("pools.chat.plan", &[0, 1, 255][..]));
        let change = MapChange { name: "c", version: Some("9"), writer: "4 1 a:1", entry };
        let map = read_map(&write_map(change)).unwrap();
        assert_eq!((map.version.as_str(), map.writer.as_str()), ("9", "4 1 a:1"));
        assert_eq!(map.entries["pools.chat.plan"], [0, 1, 255]);
        let foreign =
            br#"{"metadata":{"resourceVersion":"1"},"data":{"a":"b"},"binaryData":{"x":"%"}}"#;
        assert_eq!(read_map(foreign).unwrap().entries.len(), 0);
        assert!(read_map(&write_map(MapChange { version: None, ..change })).is_err());
    }
}
