//! Lists of models: read from replicas, merged, written for clients. What a replica says of a model
//! is kept as it stands, because engines add fields of their own.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Longer lists are cut: a replica that lies must not fill the router's memory.
const MODELS_MAX: usize = 1024;

/// One model as a replica describes it.
#[derive(Clone, Debug)]
pub struct Model {
    pub id: String,
    /// Whether it is another model with an adapter, as the replica says.
    pub is_adapter: bool,
    entry: Box<RawValue>,
}

#[derive(Deserialize)]
struct List {
    data: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
    /// vLLM names here the model that an adapter belongs to.
    #[serde(default)]
    parent: Option<IgnoredAny>,
}

#[derive(Serialize)]
struct Merged<'a> {
    object: &'static str,
    data: Vec<&'a RawValue>,
}

#[derive(Serialize)]
struct Named<'a> {
    id: &'a str,
    object: &'static str,
    created: u32,
    owned_by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<&'a str>,
}

impl Model {
    /// Describes a model of which only the name is known, or another name for `root`.
    pub fn named(id: &str, root: Option<&str>) -> Self {
        let named = Named { id, object: "model", created: 0, owned_by: "cleave", root };
        let json = serde_json::to_string(&named).expect("a struct of strings always serialises");
        let entry = RawValue::from_string(json).expect("what was just written is JSON");
        Self { id: id.to_owned(), is_adapter: false, entry }
    }

    /// The entry as it stands in a list.
    pub fn to_json(&self) -> &str {
        self.entry.get()
    }
}

/// Reads a replica's list; `None` if it is none.
pub fn read_models(body: &[u8]) -> Option<Vec<Model>> {
    let list: List = serde_json::from_slice(body).ok()?;
    let models = list.data.into_iter().filter_map(|entry| {
        let ListedModel { id, parent } = serde_json::from_str(entry.get()).ok()?;
        Some(Model { id, is_adapter: parent.is_some(), entry })
    });
    Some(models.take(MODELS_MAX).collect())
}

/// Writes one list of all.
pub fn write_models<'a>(models: impl Iterator<Item = &'a Model>) -> String {
    let merged = Merged { object: "list", data: models.map(|it| &*it.entry).collect() };
    serde_json::to_string(&merged).expect("raw values always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_written_as_it_stands() {
        let body = br#"{"object":"list","data":[{"id":"a","max_model_len":4096,"x":[1, 2]},{"nameless":1},{"id":"b"}]}"#;
        let mut models = read_models(body).unwrap();
        models.push(Model::named("alias", Some("a")));
        assert_eq!(
            write_models(models.iter()),
            r#"{"object":"list","data":[{"id":"a","max_model_len":4096,"x":[1, 2]},{"id":"b"},{"id":"alias","object":"model","created":0,"owned_by":"cleave","root":"a"}]}"#
        );
    }

    #[test]
    fn a_model_with_a_parent_is_an_adapter() {
        let body =
            br#"{"data":[{"id":"base","parent":null},{"id":"sql","parent":"base"},{"id":"x"}]}"#;
        let adapters = |it: &Model| it.is_adapter.then(|| it.id.clone());
        let found: Vec<String> = read_models(body).unwrap().iter().filter_map(adapters).collect();
        assert_eq!(found, ["sql"]);
    }

    #[test]
    fn what_is_no_list_is_none() {
        for body in [&b""[..], b"{}", b"[]", b"{\"data\":3}", b"<html>"] {
            assert!(read_models(body).is_none());
        }
    }
}
