//! Several clusters as one source: each is followed by itself, and told together with the others.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::follow::Follower;
use super::settings::KubernetesSettings;
use crate::discovery::REPLICAS_MAX;
use crate::discovery::found::{FoundReplica, SourceEvent, SourceTrouble};
use crate::replicas::Origin;

/// What clusters may have to tell before it is taken up.
const EVENTS_MAX: usize = 16;

/// Watches the pods of all clusters for ever, and tells which replicas they are together.
pub(in crate::discovery) async fn watch(
    settings: &KubernetesSettings,
    mut tell: impl FnMut(SourceEvent),
) {
    let (send, mut events) = mpsc::channel(EVENTS_MAX);
    let files = settings.kubeconfigs.iter().map(|it| Some(it.as_path()));
    let own = settings.kubeconfigs.is_empty().then_some(None);
    let clusters: Vec<_> = files.chain(own).collect();
    let mut lists = vec![Vec::new(); clusters.len()];
    let follow =
        |(number, kubeconfig)| Follower::new(settings, kubeconfig, number, send.clone()).run();
    let following = join_all(clusters.into_iter().enumerate().map(follow));
    let telling = async {
        let mut told = None;
        while let Some((number, event)) = events.recv().await {
            match &event {
                SourceEvent::Found(there) => {
                    lists[number].clone_from(there);
                    let all = merge(&lists);
                    if REPLICAS_MAX < all.len() {
                        let detail = format!("more than {REPLICAS_MAX} replicas; nothing changes");
                        tell(SourceEvent::Doubtful(SourceTrouble::new("too_many", detail)));
                    } else if told.as_ref() != Some(&all) {
                        told = Some(all.clone());
                        tell(SourceEvent::Found(all));
                    }
                }
                SourceEvent::Failed(_) | SourceEvent::Doubtful(_) | SourceEvent::Mended => {
                    tell(event);
                }
            }
        }
    };
    tokio::join!(following, telling);
}

/// Joins the lists of clusters. An address that several of them have is the first one's: they must not overlap.
fn merge(lists: &[Vec<FoundReplica>]) -> Vec<FoundReplica> {
    let mut all = BTreeMap::<&Origin, &FoundReplica>::new();
    for found in lists.iter().flatten() {
        all.entry(&found.origin).or_insert(found);
    }
    all.into_values().cloned().collect()
}
