//! Which pool serves a model: looked up by the name in the body, with aliases. Built anew whenever a
//! pool or what its replicas serve changes, and swapped whole.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use cleave_core::protocol::{Model, write_models};

use super::pool::Pool;
use super::rescue::ServeError;

/// How many names a refusal lists.
const LISTED_MAX: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Table {
    routes: HashMap<String, Route>,
    /// Pools of which it is not known yet what they serve.
    open: Vec<Arc<Pool>>,
    pools: Vec<Arc<Pool>>,
    /// The merged list, as `/v1/models` answers it.
    list: Bytes,
    /// Each entry alone, as `/v1/models/NAME` answers it.
    entries: HashMap<String, Bytes>,
}

/// Where requests for one model go.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) pool: Arc<Pool>,
    /// The name the replicas know, if the client used another.
    pub(super) model: Option<Arc<str>>,
    /// Whether the model is another one with an adapter that a replica may have to load first.
    pub(super) is_adapter: bool,
}

impl Route {
    /// To a pool that needs no name.
    pub(super) fn to(pool: &Arc<Pool>) -> Self {
        Self { pool: Arc::clone(pool), model: None, is_adapter: false }
    }
}

/// Why no pool was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    Unknown { available: String },
    Unnamed { available: String },
}

impl Table {
    pub(super) fn build(pools: &[Arc<Pool>]) -> Self {
        let mut entries: BTreeMap<String, (Model, Route)> = BTreeMap::new();
        let mut open = Vec::new();
        for pool in pools {
            let models = models_of(pool);
            if models.is_empty() {
                open.push(pool.clone());
            }
            for model in models {
                let is_adapter = model.is_adapter;
                let route = Route { pool: pool.clone(), model: None, is_adapter };
                entries.entry(model.id.clone()).or_insert((model, route));
            }
            for (alias, model) in &pool.spec().aliases {
                let entry = Model::named(alias, Some(model));
                let is_adapter = entries.get(model).is_some_and(|(it, _)| it.is_adapter);
                let known_as = Some(model.as_str().into());
                let route = Route { pool: pool.clone(), model: known_as, is_adapter };
                entries.entry(alias.clone()).or_insert((entry, route));
            }
        }
        let list = write_models(entries.values().map(|(model, _)| model)).into();
        let (mut alone, mut routes) = (HashMap::new(), HashMap::new());
        for (name, (model, route)) in entries {
            alone.insert(name.clone(), model.to_json().to_owned().into());
            routes.insert(name, route);
        }
        Self { routes, open, pools: pools.to_vec(), list, entries: alone }
    }

    /// Answers a question about models; `None` if the path asks something else.
    pub(super) fn answer(&self, path: &str) -> Option<Result<Bytes, ServeError>> {
        match path.strip_prefix("/v1/models")? {
            "" | "/" => Some(Ok(self.list.clone())),
            rest => {
                // Names have slashes, and clients differ on whether to escape them.
                let name = rest.strip_prefix('/')?.replace("%2F", "/").replace("%2f", "/");
                let unknown = || ServeError::unknown_model(&name, self.available());
                Some(self.entries.get(&name).cloned().ok_or_else(unknown))
            }
        }
    }

    /// Finds the pool for a model, or for a request that names none.
    pub(super) fn route(&self, model: Option<&str>) -> Result<Route, NoRoute> {
        let only = |pools: &[Arc<Pool>]| match pools {
            [pool] => Some(Route::to(pool)),
            _ => None,
        };
        match model {
            Some(name) => self
                .routes
                .get(name)
                .cloned()
                .or_else(|| only(&self.open))
                .ok_or_else(|| NoRoute::Unknown { available: self.available() }),
            None => {
                only(&self.pools).ok_or_else(|| NoRoute::Unnamed { available: self.available() })
            }
        }
    }

    fn available(&self) -> String {
        let mut names: Vec<&str> = self.routes.keys().map(String::as_str).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(LISTED_MAX);
        names.truncate(LISTED_MAX);
        match (names.is_empty(), more) {
            (true, _) => "none yet".to_owned(),
            (false, 0) => names.join(", "),
            (false, more) => format!("{} and {more} more", names.join(", ")),
        }
    }
}

/// What the pool is configured to serve, described by its replicas where they do; else what they
/// say they serve.
pub(super) fn models_of(pool: &Pool) -> Vec<Model> {
    let mut said: BTreeMap<String, Model> = BTreeMap::new();
    for member in pool.members().iter() {
        for model in member.models.load().iter() {
            said.entry(model.id.clone()).or_insert_with(|| model.clone());
        }
    }
    let configured = &pool.spec().models;
    if configured.is_empty() {
        return said.into_values().collect();
    }
    let named = |id: &String| said.remove(id).unwrap_or_else(|| Model::named(id, None));
    configured.iter().map(named).collect()
}
