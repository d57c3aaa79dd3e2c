//! The one room that reads the outside world's wishes: a TOML file, `CLEAVE__…` variables and a
//! few flags become the settled types of the other rooms. Everything that is wrong is reported at
//! once, with its place, its path and its remedy. The other rooms never see a raw value, and this
//! one never acts on a settled one.

mod access;
mod cluster;
mod costs;
mod fit;
mod folders;
mod kubernetes;
mod overlay;
mod problem;
mod raw;
mod record;
mod reference;
mod reload;
mod scaling;
mod settle;
mod shape;
mod subsets;
mod tenancy;
#[cfg(test)]
mod tests;
mod traces;
mod tree;
mod trust;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Value;

pub use problem::{Place, Problem, Problems};
pub use reference::reference;
pub use reload::{changes_static, renew_tls};

use crate::discovery::Source;
use crate::tls::OwnCertificate;
use crate::{admin, coordination, proxy, telemetry};
use overlay::Overlay;
use problem::{Findings, Wrong};
use raw::Raw;
use shape::Shape;

/// No configuration is longer; a wrong path may well name something that is.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Everything the router was told, valid.
#[derive(Clone, Debug)]
pub struct Config {
    pub proxy: proxy::ProxySettings,
    pub pools: Vec<proxy::PoolSettings>,
    /// Where more replicas are found, by the pool's name.
    pub discover: BTreeMap<String, Source>,
    pub tenants: proxy::Tenants,
    pub admin: admin::AdminSettings,
    /// How it takes part among other routers; `None` for one that is alone.
    pub cluster: Option<coordination::ClusterSettings>,
    pub telemetry: telemetry::LogSettings,
    /// Files that were read beside the configuration: a change of one of them is a reload.
    pub files: Vec<PathBuf>,
    /// Those that the router shows to others, as they were when they were read.
    pub certificates: Vec<OwnCertificate>,
}

/// What the command line says beside the file, as it was typed.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--listen`
    pub listen: Option<String>,
    /// `--admin`
    pub admin: Option<String>,
    /// `--policy`
    pub policy: Option<String>,
    /// `--replica`, once for each
    pub replicas: Vec<String>,
    /// `--join`, once for each
    pub join: Vec<String>,
}

/// Reads the configuration; a flag wins over the environment, the environment over the file.
pub fn load(
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
    flags: Flags,
) -> Result<Config, Problems> {
    let file = file.map(|it| (it.display().to_string(), read_text(it)));
    assemble(file, environment, flags)
}

/// Lists the environment for [`load`]; what is not Unicode cannot be meant for us.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
}

/// Writes the JSON schema of the file.
pub fn schema() -> String {
    serde_json::to_string_pretty(&shape::generate()).expect("a schema is JSON") + "\n"
}

/// Joins the file's name and text, the environment and the flags.
fn assemble(
    file: Option<(String, Result<String, Wrong>)>,
    environment: impl Iterator<Item = (String, String)>,
    flags: Flags,
) -> Result<Config, Problems> {
    let mut findings = Findings::new(file.as_ref().map(|(name, _)| name.clone()));
    let table = match file {
        None => Some(toml::Table::new()),
        Some((name, Ok(text))) => tree::read(&name, &text, &mut findings),
        Some((_, Err(wrong))) => {
            findings.report("", wrong);
            None
        }
    };
    let is_whole = table.is_some();
    let mut tree = Value::Table(table.unwrap_or_default());
    let shape = Shape::of_file();
    let mut overlay = Overlay { shape: &shape, tree: &mut tree, findings: &mut findings };
    overlay.environment(environment);
    overlay.flags(flags);
    fit::fit(&shape, &mut tree, "", &mut findings);
    let Ok(raw) = Raw::deserialize(tree) else {
        // The error is not shown: it may quote a secret.
        findings
            .report("", Wrong::new("does not fit the schema", "compare it with --print-schema"));
        return Err(findings.refuse());
    };
    if !is_whole {
        // Without the file's values, what joins several of them cannot be judged.
        return Err(findings.refuse());
    }
    let config = settle::settle(raw, &mut findings);
    if findings.is_empty() { Ok(config) } else { Err(findings.refuse()) }
}

/// Reads a text file of bounded length.
fn read_text(file: &Path) -> Result<String, Wrong> {
    String::from_utf8(read_bytes(file)?)
        .map_err(|_| Wrong::new("is not text", "check the path, and save the file as UTF-8"))
}

/// Reads a file of bounded length.
fn read_bytes(file: &Path) -> Result<Vec<u8>, Wrong> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file)
        .and_then(|it| it.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => {
            let what = format!("cannot be read: {error}");
            Err(Wrong::new(what, "check the path and its permissions"))
        }
        Ok(length) if usize::try_from(FILE_BYTES_MAX).is_ok_and(|max| max < length) => {
            Err(Wrong::new("is longer than 16 MiB", "check the path"))
        }
        Ok(_) => Ok(bytes),
    }
}
