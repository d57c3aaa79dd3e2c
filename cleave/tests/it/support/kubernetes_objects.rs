//! Leases and `ConfigMaps` of the API server: made once, changed by merge patches that name the version they go on from.

#![expect(clippy::disallowed_types, reason = "the API server takes objects of every shape")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

/// All objects of these kinds, by their paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptObjects(Arc<Mutex<Objects>>);

#[derive(Debug, Default)]
struct Objects {
    version: u64,
    kept: BTreeMap<String, Value>,
    is_denied: bool,
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/llm/leases";
const MAPS: &str = "/api/v1/namespaces/llm/configmaps";
const NAME: &str = "cleave-cluster";

impl KeptObjects {
    pub(crate) fn routes(&self) -> axum::Router {
        let mut routes = axum::Router::new();
        for folder in [LEASES, MAPS] {
            routes = routes
                .route(folder, post(create))
                .route(&format!("{folder}/{{name}}"), get(read).patch(change));
        }
        routes.with_state(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap()
    }

    /// Which router has the Lease, as it stands there.
    pub(crate) fn holder(&self) -> Option<String> {
        let objects = self.lock();
        let holder = &objects.kept.get(&format!("{LEASES}/{NAME}"))?["spec"]["holderIdentity"];
        holder.as_str().map(str::to_owned)
    }

    /// How often the Lease passed on.
    pub(crate) fn term(&self) -> i64 {
        let objects = self.lock();
        let lease = objects.kept.get(&format!("{LEASES}/{NAME}"));
        lease.map_or(0, |it| it["spec"]["leaseTransitions"].as_i64().unwrap())
    }

    /// What the `ConfigMap` keeps under a name.
    pub(crate) fn kept(&self, entry: &str) -> Option<String> {
        let objects = self.lock();
        let map = objects.kept.get(&format!("{MAPS}/{NAME}"))?;
        map["binaryData"][entry].as_str().map(str::to_owned)
    }

    /// Puts an entry into the `ConfigMap`, as another program might; makes the `ConfigMap` if need be.
    pub(crate) fn put_entry(&self, entry: &str, base64: &str) {
        let mut objects = self.lock();
        objects.version += 1;
        let version = objects.version.to_string();
        let metadata = json!({"name": NAME, "resourceVersion": version});
        let path = format!("{MAPS}/{NAME}");
        let map = objects.kept.entry(path).or_insert_with(|| json!({"metadata": metadata}));
        map["metadata"]["resourceVersion"] = json!(version);
        map["binaryData"][entry] = json!(base64);
    }

    /// Deletes the Lease, the `ConfigMap` or both.
    pub(crate) fn delete(&self, lease: bool, map: bool) {
        let is_gone =
            |path: &str| (lease && path.starts_with(LEASES)) || (map && path.starts_with(MAPS));
        self.lock().kept.retain(|path, _| !is_gone(path));
    }

    /// Sets whether the role denies everything.
    pub(crate) fn deny(&self, is_denied: bool) {
        self.lock().is_denied = is_denied;
    }
}

fn status(code: StatusCode, message: &str) -> Response {
    let body = json!({"kind": "Status", "code": code.as_u16(), "message": message}).to_string();
    (code, body).into_response()
}

impl Objects {
    fn refusal(&self) -> Option<Response> {
        let denied = "leases.coordination.k8s.io is forbidden";
        self.is_denied.then(|| status(StatusCode::FORBIDDEN, denied))
    }
}

async fn read(State(objects): State<KeptObjects>, uri: Uri) -> Response {
    let objects = objects.lock();
    objects.refusal().unwrap_or_else(|| match objects.kept.get(uri.path()) {
        Some(it) => it.to_string().into_response(),
        None => status(StatusCode::NOT_FOUND, "not found"),
    })
}

async fn create(State(objects): State<KeptObjects>, uri: Uri, body: String) -> Response {
    let mut objects = objects.lock();
    if let Some(refusal) = objects.refusal() {
        return refusal;
    }
    let mut object: Value = serde_json::from_str(&body).unwrap();
    let path = format!("{}/{}", uri.path(), object["metadata"]["name"].as_str().unwrap());
    if objects.kept.contains_key(&path) {
        return status(StatusCode::CONFLICT, "it exists already");
    }
    objects.version += 1;
    object["metadata"]["resourceVersion"] = json!(objects.version.to_string());
    objects.kept.insert(path, object.clone());
    (StatusCode::CREATED, object.to_string()).into_response()
}

async fn change(State(objects): State<KeptObjects>, uri: Uri, body: String) -> Response {
    let mut objects = objects.lock();
    if let Some(refusal) = objects.refusal() {
        return refusal;
    }
    let patch: Value = serde_json::from_str(&body).unwrap();
    objects.version += 1;
    let version = json!(objects.version.to_string());
    let Some(object) = objects.kept.get_mut(uri.path()) else {
        return status(StatusCode::NOT_FOUND, "not found");
    };
    if object["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"] {
        return status(StatusCode::CONFLICT, "the object has been modified");
    }
    merge(object, &patch);
    object["metadata"]["resourceVersion"] = version;
    object.to_string().into_response()
}

/// What RFC 7396 says of a merge patch.
fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    let into = object.as_object_mut().unwrap();
    for (name, value) in fields {
        if value.is_null() {
            into.remove(name);
        } else {
            merge(into.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
