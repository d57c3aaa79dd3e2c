//! From what the user said to what the other rooms rely on. Single values were checked before; here
//! stand the rules that join several of them, each reported with its path and remedy. Always
//! returns something, so that one broken rule does not hide the next.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_core::brain;
use http::HeaderValue;

use super::access::{AccessLevel, AccessWords, EngineTlsBook};
use super::costs::{Books, CostSource};
use super::folders::state_dir;
use super::problem::{Findings, Wrong, join, plain};
use super::raw::{
    AdminSection, EngineFields, EngineHeaders, ExplainSection, PoolSection, Raw, Replica, Slots,
    TextValue,
};
use super::{Config, access, kubernetes, record, scaling, subsets, tenancy, traces, trust};
use crate::admin::Secret;
use crate::discovery::Source;
use crate::proxy::{ExplainSettings, Hosting, Passing, PoolSettings, ReplicaSettings};
use crate::replicas::ProbeSettings;
use crate::tls::ShownTo;
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::{admin, proxy};

/// Turns raw into settled, and reports what does not go together.
pub(super) fn settle(mut raw: Raw, findings: &mut Findings) -> Config {
    check_together(&raw, findings);
    subsets::check(&raw.subsets, &raw.workloads, findings);
    let audit_file = raw.admin.audit_file.take();
    trust::check_audit(audit_file.as_deref(), findings);
    let admin = settle_admin(raw.admin, findings);
    let tls = access::settle_tls(("tls", ShownTo::Clients), raw.tls, &["h2", "http/1.1"], findings);
    let watch = brain::WatchSettings { idle: raw.health.token_after.0 };
    let probe = ProbeSettings::from(raw.health);
    let line = tenancy::settle_line(raw.line, raw.classes, findings);
    let pool_names = || raw.pools.iter().flatten().map(|it| it.name.as_str());
    let (secret, file) = (raw.keys.cache_secret.take(), raw.keys.cache_secret_file.take());
    let cache_secret = trust::settle_cache_secret(secret, file, findings);
    let cluster = super::cluster::settle(raw.cluster, findings);
    let shared = cluster.as_ref().and_then(|it| it.secret.as_deref());
    let cache_secret = cache_secret.or_else(|| shared.map(proxy::CacheSecret::of_cluster));
    let tenants =
        tenancy::settle_tenants(raw.tenants, raw.keys, &line.classes, pool_names, findings);
    let brain = brain::Settings {
        policy: raw.policy.0,
        retries: raw.retries.into(),
        breaker: raw.breaker.into(),
        sessions: raw.sessions.settings(),
        subsets: raw.subsets.settings(&raw.workloads),
        watch,
        quarantine: raw.quarantine.into(),
        line,
        // Set where the router is started: it is another one in every process.
        router: None,
        learns_costs: raw.learn_costs,
        seed: brain::Settings::default().seed,
    };
    let engine = Engine {
        credentials: raw.forward_credentials,
        fields: raw.engine_fields,
        headers: raw.engine_headers,
    };
    let words = AccessWords {
        api_key: raw.api_key,
        api_key_file: raw.api_key_file,
        engine_tls: Some(raw.engine_tls).filter(|it| !it.is_empty()),
    };
    let access = AccessLevel::default().within("", words, findings);
    let common = Common { brain, probe, costs: raw.costs, resume: raw.resume, engine, access };
    let (pools, discover) = settle_pools(raw.pools, raw.replicas, &common, findings);
    let state_dir = raw.subsets.state_dir.take().or_else(|| state_dir(raw.listen.0.port()));
    let proxy = proxy::ProxySettings {
        listen: raw.listen.0,
        record: record::settle(raw.record, state_dir.as_deref(), findings),
        state_dir,
        audit_file,
        kept_ids_bytes_max: raw.sessions.ids_mib.saturating_mul(1 << 20),
        cache_secret,
        tls,
        threads: raw.threads.unwrap_or_else(cores),
        limits: raw.limits.into(),
        timeouts: raw.timeouts.into(),
        paths_allowed: raw.paths.allow.into_iter().flatten().map(|it| it.0).collect(),
        traces: traces::settle(raw.traces, findings),
        explain: settle_explain(&raw.explain, admin.tokens.first().map(|it| &it.token)),
        workload_header: raw.subsets.workload_header.map(|it| it.0),
        session_headers: raw.sessions.headers.into_iter().flatten().map(|it| it.0).collect(),
    };
    let (files, certificates, telemetry) =
        (findings.watched(), findings.certificates(), raw.log.into());
    Config { proxy, pools, discover, tenants, admin, cluster, telemetry, files, certificates }
}

/// What every pool starts with.
struct Common {
    brain: brain::Settings,
    probe: ProbeSettings,
    /// The file of coefficients.
    costs: Option<PathBuf>,
    resume: bool,
    engine: Engine,
    access: AccessLevel,
}

/// What of clients passes on to the engines of a pool that does not say otherwise.
struct Engine {
    credentials: bool,
    fields: EngineFields,
    headers: EngineHeaders,
}

impl Engine {
    fn passing(&self, pool: &PoolSection) -> Passing {
        trust::settle_passing(
            pool.forward_credentials.unwrap_or(self.credentials),
            pool.engine_fields.as_ref().unwrap_or(&self.fields),
            pool.engine_headers.as_ref().unwrap_or(&self.headers),
        )
    }
}

fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn check_together(raw: &Raw, findings: &mut Findings) {
    if raw.limits.buffered_mib_max < raw.limits.body_mib_max {
        let remedy = format!("give at least {}", raw.limits.body_mib_max);
        let what = "is less than limits.body_mib_max, so the largest body could never be read";
        findings.report("limits.buffered_mib_max", Wrong::new(what, remedy));
    }
    if raw.breaker.open_max.0 < raw.breaker.open.0 {
        let remedy = format!("give at least {}", raw.breaker.open.0.write());
        findings.report("breaker.open_max", Wrong::new("is less than breaker.open", remedy));
    }
    if raw.admin.listen.0 == raw.listen.0 && raw.listen.0.port() != 0 {
        let wrong = Wrong::new("is the address clients use (listen)", "give it a port of its own");
        findings.report("admin.listen", wrong);
    }
}

fn settle_admin(raw: AdminSection, findings: &mut Findings) -> admin::AdminSettings {
    let AdminSection { listen, keda_listen, token, token_file, tokens, tls, hosts, .. } = raw;
    let only = trust::settle_secret("admin.token", token, token_file, findings);
    admin::AdminSettings {
        listen: listen.0,
        keda_listen: keda_listen.map(|it| it.0),
        tokens: trust::settle_tokens(only, tokens, findings),
        tls: access::settle_tls(("admin.tls", ShownTo::Operators), tls, &["http/1.1"], findings),
        hosts: hosts.into_iter().flatten().map(|it| it.0.0).collect(),
        compared: Vec::new(),
        replayer: None,
    }
}

/// A client that wants to see decisions shows what an operator would.
fn settle_explain(raw: &ExplainSection, token: Option<&Secret>) -> ExplainSettings {
    let token = token.map(|Secret(token)| {
        let mut value = HeaderValue::try_from(token).expect("a token is visible ASCII");
        value.set_sensitive(true);
        value
    });
    ExplainSettings { sample: raw.sample, kept_max: raw.kept_max, clients: raw.clients, token }
}

fn settle_pools(
    pools: Slots<PoolSection>,
    replicas: Slots<Replica>,
    common: &Common,
    findings: &mut Findings,
) -> (Vec<PoolSettings>, BTreeMap<String, Source>) {
    if !pools.is_empty() && !replicas.is_empty() {
        let remedy = "move these replicas into a pool, or remove the pools";
        findings.report("replicas", Wrong::new("are given beside pools", remedy));
    }
    let is_served = !replicas.is_empty()
        || pools.iter().any(|pool| {
            pool.as_ref().is_none_or(|it| !it.replicas.is_empty() || it.discover.is_some())
        });
    // Refused lists were taken out; they may well have had replicas in them.
    if !is_served && !findings.is_refused("replicas") && !findings.is_refused("pools") {
        let remedy = "give one with --replica http://HOST:PORT, or in the file as \
                      replicas = [\"http://HOST:PORT\"]";
        findings.report("replicas", Wrong::new("there is no replica to send to", remedy));
    }
    check_names(&pools, findings);
    let books = read_books(&pools, common, findings);
    let only = (!replicas.is_empty()).then(|| PoolSection {
        name: "default".to_owned(),
        replicas,
        ..PoolSection::default()
    });
    let only = only.map(|it| ("replicas".to_owned(), it));
    let pools = pools.into_iter().enumerate();
    let pools = pools.filter_map(|(at, it)| Some((format!("pools[{at}].replicas"), it?)));
    let (mut settled, mut book) = (Vec::new(), EngineTlsBook::default());
    let mut discover = BTreeMap::new();
    for (path, mut pool) in only.into_iter().chain(pools) {
        let passing = common.engine.passing(&pool);
        let around = path.strip_suffix("replicas").unwrap_or_default().trim_end_matches('.');
        let found = kubernetes::settle_source(around, &mut pool, findings);
        let scaling = scaling::settle(around, &mut pool, found.as_ref(), findings);
        let (api_key, api_key_file) = (pool.api_key.take(), pool.api_key_file.take());
        let words = AccessWords { api_key, api_key_file, engine_tls: pool.engine_tls.take() };
        let level = common.access.within(around, words, findings);
        let policy = pool.policy.map_or(common.brain.policy, |it| it.0);
        let costs = pool.costs.as_deref().or(common.costs.as_deref());
        let models = pool.models.iter().flatten().map(|it| it.0.as_str()).collect();
        let mut source = books.source(costs, models, pool.class.as_deref());
        let classes = found.as_ref().and(source.as_mut()).map(|it| it.classes(around, findings));
        let doors = Doors { level: &level, book: &mut book, forwards: passing.credentials };
        let replicas = settle_replicas(pool.replicas, &path, source, doors, findings);
        if passing.credentials && level.has_key() {
            let what = "is set where engines are opened by the router's own key (api_key)";
            let remedy = "set it to false for this pool, or leave the key out";
            let at = beside(&path, "forward_credentials");
            findings.report(&at, Wrong::new(what, remedy));
        }
        let access = found.is_some().then(|| level.access(&mut book, (&path, None), findings));
        discover.extend(found.map(|it| (pool.name.clone(), it)));
        settled.push(PoolSettings {
            name: pool.name,
            models: pool.models.into_iter().flatten().map(|it| it.0).collect(),
            aliases: pool.aliases.into_iter().map(|(alias, model)| (alias, model.0)).collect(),
            replicas,
            is_whole: true,
            access: access.unwrap_or_default(),
            classes: classes.unwrap_or_default(),
            cache: pool.cache.0,
            tokenizer: pool.tokenizer.and_then(|it| settle_tokenizer(&it, &path, findings)),
            brain: brain::Settings { policy, ..common.brain.clone() },
            probe: common.probe.clone(),
            resume: pool.resume.unwrap_or(common.resume),
            passing,
            scaling,
        });
    }
    check_one_pool_each(&settled, findings);
    (settled, discover)
}

/// Checks that a replica is in one pool: two would each take all of its capacity for theirs.
fn check_one_pool_each(pools: &[PoolSettings], findings: &mut Findings) {
    let mut seen = BTreeMap::new();
    for (at, pool) in pools.iter().enumerate() {
        for replica in &pool.replicas {
            if let Some(first) = seen.insert(&replica.origin, at) {
                let what = format!("has {}, which is in pools[{first}] too", replica.origin);
                let remedy = "list a replica in one pool, with all the models it serves";
                findings.report(&format!("pools[{at}].replicas"), Wrong::new(what, remedy));
            }
        }
    }
}

/// Reads every file of coefficients that is named, by the pools or for all of them.
fn read_books(pools: &Slots<PoolSection>, common: &Common, findings: &mut Findings) -> Books {
    let mut books = Books::default();
    if let Some(file) = &common.costs {
        books.read("costs", file, findings);
    }
    for (index, pool) in pools.iter().enumerate() {
        if let Some(file) = pool.as_ref().and_then(|it| it.costs.as_ref()) {
            books.read(&format!("pools[{index}].costs"), file, findings);
        }
    }
    books
}

fn settle_tokenizer(file: &Path, replicas: &str, findings: &mut Findings) -> Option<Tokenizer> {
    let loaded = Tokenizer::load(file);
    let report = |error: TokenizerError| {
        let remedy = match error {
            TokenizerError::Absent => "build cleave with --features tokenizer, or remove it",
            TokenizerError::Unreadable(_) => "give the tokenizer.json that came with the model",
        };
        findings.report(&beside(replicas, "tokenizer"), Wrong::new(error.to_string(), remedy));
    };
    loaded.map_err(report).ok()
}

/// What opens the replicas of a pool.
struct Doors<'a> {
    level: &'a AccessLevel,
    book: &'a mut EngineTlsBook,
    /// Whether clients' own keys are passed on.
    forwards: bool,
}

fn settle_replicas(
    raw: Slots<Replica>,
    path: &str,
    mut source: Option<CostSource<'_>>,
    doors: Doors<'_>,
    findings: &mut Findings,
) -> Vec<ReplicaSettings> {
    let mut seen = BTreeMap::new();
    let mut settled = Vec::with_capacity(raw.len());
    for (index, replica) in raw.into_iter().enumerate() {
        let (origin, weight, class, zone, words) = match replica {
            None => continue,
            Some(Replica::Url(url)) => (url.0, 1.0, None, None, AccessWords::default()),
            Some(Replica::Table(it)) => {
                let words = AccessWords {
                    api_key: it.api_key,
                    api_key_file: it.api_key_file,
                    engine_tls: it.engine_tls,
                };
                (it.url.0, it.weight, it.class, it.zone, words)
            }
        };
        let own = format!("{path}[{index}]");
        if let Some(first) = seen.get(&origin) {
            let what = format!("{origin} is already {path}[{first}]");
            let remedy = "remove one; to send it more, raise its weight";
            findings.report(&own, Wrong::new(what, remedy));
            continue;
        }
        seen.insert(origin.clone(), index);
        // Where a file is refused, that was reported; what stands in for it is never used.
        let hardware = match source.as_mut().map(|it| it.hardware(class.as_deref())) {
            None => Arc::default(),
            Some(Ok(hardware)) => hardware,
            Some(Err(wrong)) => {
                let of_pool = || beside(path, if path == "replicas" { "costs" } else { "class" });
                let at = class.map_or_else(of_pool, |_| format!("{path}[{index}].class"));
                findings.report(&at, wrong);
                Arc::default()
            }
        };
        let level = doors.level.within(&own, words, findings);
        if doors.forwards && level.has_key() && !doors.level.has_key() {
            let what = "is given where clients' own keys are passed on (forward_credentials)";
            let remedy = "leave it out, or set forward_credentials = false for this pool";
            findings.report(&join(&own, "api_key"), Wrong::new(what, remedy));
        }
        let access = level.access(doors.book, (&own, Some(&origin)), findings);
        let hosting = Hosting::default();
        settled.push(ReplicaSettings { origin, weight, hardware, zone, access, hosting });
    }
    settled
}

/// Names another key of the table that has these replicas.
fn beside(replicas: &str, key: &str) -> String {
    join(replicas.strip_suffix(".replicas").unwrap_or_default(), key)
}

/// Checks that pool names, model names and aliases each mean one thing over all pools.
fn check_names(pools: &Slots<PoolSection>, findings: &mut Findings) {
    let pools = || pools.iter().enumerate().filter_map(|(at, pool)| Some((at, pool.as_ref()?)));
    let mut names = BTreeMap::new();
    let mut models = BTreeMap::new();
    for (at, pool) in pools() {
        if let Some(first) = names.insert(&pool.name, at) {
            let what = format!("{} is also the name of pools[{first}]", plain(&pool.name));
            let wrong = Wrong::new(what, "give every pool a name of its own");
            findings.report(&format!("pools[{at}].name"), wrong);
        }
        for (index, model) in pool.models.iter().enumerate() {
            let Some(model) = model else { continue };
            if let Some(first) = models.insert(&model.0, at) {
                let what = format!("{} is already served by pools[{first}]", plain(&model.0));
                let wrong = Wrong::new(what, "list a model once, in one pool");
                findings.report(&format!("pools[{at}].models[{index}]"), wrong);
            }
        }
    }
    let mut aliases = BTreeMap::new();
    for (at, pool) in pools() {
        for (alias, model) in &pool.aliases {
            let path = join(&format!("pools[{at}].aliases"), alias);
            if let Some(owner) = models.get(alias) {
                let what = format!("is the name of a model of pools[{owner}]");
                findings.report(&path, Wrong::new(what, "choose an alias that is no model's name"));
            }
            if let Some(first) = aliases.insert(alias, at) {
                let what = format!("is already an alias in pools[{first}]");
                findings.report(&path, Wrong::new(what, "choose another alias"));
            }
            if !pool.models.is_empty() && !pool.models.iter().flatten().any(|it| it == model) {
                let what = format!("{} is not among the pool's models", plain(&model.0));
                let wrong = Wrong::new(what, format!("name one of pools[{at}].models"));
                findings.report(&path, wrong);
            }
        }
    }
}
