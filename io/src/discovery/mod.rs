//! Where replicas are found, beside those the configuration lists: a file, DNS or Kubernetes. Watches a source
//! and gives the list of replicas whenever it changes. It knows nothing of pools and probes: a
//! replica that was found still has to pass its health check, and one that is gone is drained, by
//! the rooms that do that.

mod damp;
mod found;
mod kubernetes;
mod message;
mod resolver;
mod source;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cleave_core::domain::Moment;
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::replicas::Origin;
use damp::Roll;
use found::Failures;
pub use found::{FoundReplica, SourceEvent, SourceTrouble};
pub use kubernetes::{
    EnginePort, KubernetesObjects, KubernetesSettings, ObjectKind, PodKeys, SERVING_ROLES,
    ScaleCall, scale,
};
pub use source::{BadSource, Source};

/// How often a file is looked at.
const FILE_LOOK: Duration = Duration::from_secs(1);
/// The time between two questions to DNS is what its answers say, within these.
const ASK_MIN: Duration = Duration::from_secs(1);
const ASK_MAX: Duration = Duration::from_secs(60);
/// How soon a question that failed is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// A longer list is a mistake.
const REPLICAS_MAX: usize = 10_000;

/// Watches a source for ever, and tells whenever other replicas are there than before, or the source fails. A
/// source that fails changes nothing.
pub async fn watch(source: Source, mut tell: impl FnMut(SourceEvent)) {
    if let Source::Kubernetes(settings) = &source {
        return kubernetes::watch(settings, |event| {
            if let SourceEvent::Found(there) = &event {
                info!(%source, replicas = there.len(), "replicas discovered");
            }
            tell(event);
        })
        .await;
    }
    let (began, mut failures) = (Instant::now(), Failures::default());
    let mut roll = Roll::default();
    let mut seen = None;
    loop {
        let (answer, wait) = match &source {
            Source::File(path) => {
                let changed = changed_at(path);
                let is_new = seen != Some(changed);
                seen = Some(changed);
                let answer = if is_new { Some(read_file(path)) } else { None };
                (answer, FILE_LOOK)
            }
            Source::Addresses { .. } | Source::Services { .. } | Source::Kubernetes(_) => {
                ask(&source).await
            }
        };
        let now = Moment::ZERO + began.elapsed();
        let changed = match answer {
            // What a file says is meant; only answers of others are damped.
            Some(Ok(there)) if matches!(source, Source::File(_)) => Ok(roll.set(there)),
            Some(Ok(there)) => Ok(roll.on_answer(now, there)),
            Some(Err(error)) => Err(error),
            None => {
                sleep(wait).await;
                continue;
            }
        };
        match changed {
            Ok(changed) => {
                if failures.on_success() {
                    tell(SourceEvent::Mended);
                }
                if let Some(there) = changed {
                    info!(%source, replicas = there.len(), "replicas discovered");
                    tell(SourceEvent::Found(there.into_iter().map(FoundReplica::at).collect()));
                }
            }
            Err(error) if failures.on_failure() => {
                tell(SourceEvent::Failed(SourceTrouble::new("unreadable", error.to_string())));
            }
            Err(_) => {}
        }
        sleep(wait).await;
    }
}

async fn ask(source: &Source) -> (Option<io::Result<BTreeSet<Origin>>>, Duration) {
    match resolver::resolve(source).await {
        Ok((there, ttl)) => (Some(Ok(there)), ttl.clamp(ASK_MIN, ASK_MAX)),
        Err(error) => (Some(Err(error)), ASK_AGAIN),
    }
}

fn changed_at(path: &Path) -> Option<(SystemTime, u64)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

/// Reads a list of addresses, one on a line; what follows a `#` is a comment.
fn read_file(path: &Path) -> io::Result<BTreeSet<Origin>> {
    read_list(&std::fs::read_to_string(path)?)
}

fn read_list(text: &str) -> io::Result<BTreeSet<Origin>> {
    let lines = text.lines().enumerate();
    let mut there = BTreeSet::new();
    for (number, line) in lines {
        let word = line.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        let origin = word.parse().map_err(|error| {
            let message = format!("line {}: {error}", number + 1);
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        there.insert(origin);
    }
    if REPLICAS_MAX < there.len() {
        let message = format!("more than {REPLICAS_MAX} replicas");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_an_address_on_a_line_and_a_bad_line_spoils_it_all() {
        let there = read_list("# fleet\nhttp://gpu-1:8000 # spare\n\nhttp://gpu-0:8000\n").unwrap();
        let there: Vec<&str> = there.iter().map(Origin::as_str).collect();
        assert_eq!(there, ["http://gpu-0:8000", "http://gpu-1:8000"]);
        let error = read_list("http://gpu-0:8000\ngpu-1:8000\n").unwrap_err();
        assert!(error.to_string().starts_with("line 2: "), "{error}");
    }
}
