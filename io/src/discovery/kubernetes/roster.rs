//! The pods of one cluster, by their UID: names and addresses pass from one pod to the next, UIDs do not. A list
//! replaces everything, so a deletion that a watch lost is found by the next list. A pod joins when it is ready
//! for the first time; from then on it stays until it ends, ready or not.

use std::collections::BTreeMap;

use cleave_core::protocol::Pod;

use super::member::{Absence, PodMember, member};
use super::settings::KubernetesSettings;
use crate::discovery::found::{FoundReplica, SourceTrouble};
use crate::replicas::Origin;

/// More pods than this match by mistake.
pub(super) const PODS_MAX: usize = 20_000;

/// The pods that match.
#[derive(Debug, Default)]
pub(super) struct Roster(BTreeMap<String, Known>);

/// What is kept of one pod.
#[derive(Debug)]
struct Known {
    name: String,
    node: Option<String>,
    state: Result<PodMember, Absence>,
    was_ready: bool,
}

/// Pods of a list that is not whole yet.
#[derive(Debug, Default)]
pub(super) struct Listing(BTreeMap<String, Known>);

impl Known {
    fn new(pod: &Pod, settings: &KubernetesSettings) -> Self {
        let state = member(pod, settings);
        let node = pod.node.clone().filter(|_| settings.node_zones);
        let was_ready = pod.is_ready || settings.is_early;
        Self { name: pod.name.clone(), node, state, was_ready }
    }
}

impl Listing {
    /// Adds a page; tells whether there is room for more.
    pub(super) fn add(&mut self, pods: &[Pod], settings: &KubernetesSettings) -> bool {
        self.0.extend(pods.iter().map(|it| (it.uid.clone(), Known::new(it, settings))));
        self.0.len() <= PODS_MAX
    }
}

impl Roster {
    /// Takes a whole list in place of what was known.
    pub(super) fn replace(&mut self, listing: Listing) {
        let before = std::mem::replace(&mut self.0, listing.0);
        for (uid, known) in &mut self.0 {
            known.was_ready |= before.get(uid).is_some_and(|it| it.was_ready);
        }
    }

    /// Takes in a pod, new or changed; tells whether there is room for it.
    pub(super) fn put(&mut self, pod: &Pod, settings: &KubernetesSettings) -> bool {
        let mut known = Known::new(pod, settings);
        let before = self.0.get(&pod.uid);
        if before.is_none() && PODS_MAX <= self.0.len() {
            return false;
        }
        known.was_ready |= before.is_some_and(|it| it.was_ready);
        self.0.insert(pod.uid.clone(), known);
        true
    }

    pub(super) fn remove(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Names the nodes of pods that say no zone.
    pub(super) fn unplaced_nodes(&self) -> impl Iterator<Item = &str> {
        let unplaced = |it: &&Known| it.state.as_ref().is_ok_and(|it| it.found.zone.is_none());
        self.0.values().filter(unplaced).filter_map(|it| it.node.as_deref())
    }

    /// Lists the replicas. `zones` are those of nodes. Of two pods at one address, which only a stale list
    /// shows, the ready one counts.
    pub(super) fn replicas(&self, zones: &BTreeMap<String, String>) -> Vec<FoundReplica> {
        let mut there = BTreeMap::<Origin, FoundReplica>::new();
        for known in self.0.values().filter(|it| it.was_ready) {
            let Ok(PodMember { found, .. }) = &known.state else { continue };
            let mut found = found.clone();
            let of_node = || zones.get(known.node.as_ref()?).cloned();
            found.zone = found.zone.or_else(of_node);
            let is_better = |it: &FoundReplica| found.is_ready && !it.is_ready;
            if there.get(&found.origin).is_none_or(is_better) {
                there.insert(found.origin.clone(), found);
            }
        }
        there.into_values().collect()
    }

    /// Says what of it cannot be meant: pods without the port, words that are none.
    pub(super) fn doubt(&self, settings: &KubernetesSettings) -> Option<SourceTrouble> {
        let doubtful = |it: &Known| match &it.state {
            Err(Absence::NoPort) => Some(("no_port", None)),
            Ok(PodMember { doubt: Some(doubt), .. }) => Some(("annotation", Some(*doubt))),
            Ok(_) | Err(_) => None,
        };
        let mut found = self.0.values().filter_map(|it| Some((doubtful(it)?, it.name.as_str())));
        let ((word, what), first) = found.next()?;
        let others = found.count();
        let which =
            if others == 0 { first.to_owned() } else { format!("{first} and {others} more") };
        let detail = match what {
            Some(what) => format!("pod {which}: {what}"),
            None => format!(
                "pod {which}: no container has a port named {}; set kubernetes.port, or name the port in the pod",
                settings.port
            ),
        };
        Some(SourceTrouble::new(word, detail))
    }
}

#[cfg(test)]
mod tests {
    use cleave_core::protocol::PodPort;

    use super::*;

    fn pod(uid: &str, ip: &str, is_ready: bool) -> Pod {
        let port = PodPort { name: Some("http".to_owned()), number: 80, container: "c".to_owned() };
        let (uid, name) = (uid.to_owned(), format!("pod-{uid}"));
        Pod { uid, name, ip: ip.parse().ok(), ports: vec![port], is_ready, ..Pod::default() }
    }

    /// The replicas as text: unit, address, and whether it is ready.
    fn shown(roster: &Roster) -> Vec<String> {
        let there = roster.replicas(&BTreeMap::new());
        let show = |it: &FoundReplica| {
            let ready = if it.is_ready { "" } else { " not ready" };
            format!("{} {}{ready}", it.unit.as_deref().unwrap(), it.origin.host())
        };
        there.iter().map(show).collect()
    }

    #[test]
    fn a_pod_joins_when_it_is_ready_and_stays_when_it_is_not() {
        let (mut roster, settings) = (Roster::default(), KubernetesSettings::default());
        assert!(roster.put(&pod("a", "10.0.0.1", false), &settings));
        assert_eq!(shown(&roster), [""; 0]);
        roster.put(&pod("a", "10.0.0.1", true), &settings);
        assert_eq!(shown(&roster), ["a 10.0.0.1"]);
        roster.put(&pod("a", "10.0.0.1", false), &settings);
        assert_eq!(shown(&roster), ["a 10.0.0.1 not ready"]);
        roster.put(&Pod { is_ending: true, ..pod("a", "10.0.0.1", true) }, &settings);
        assert_eq!(shown(&roster), [""; 0]);
    }

    #[test]
    fn a_router_is_found_before_it_is_ready_and_not_when_it_ends() {
        let mut roster = Roster::default();
        let settings = KubernetesSettings { is_early: true, ..KubernetesSettings::default() };
        roster.put(&pod("a", "10.0.0.1", false), &settings);
        assert_eq!(shown(&roster), ["a 10.0.0.1 not ready"]);
        roster.put(&Pod { is_ending: true, ..pod("a", "10.0.0.1", false) }, &settings);
        assert_eq!(shown(&roster), [""; 0]);
    }

    #[test]
    fn a_list_finds_deletions_that_were_lost_and_remembers_what_was_ready() {
        let (mut roster, settings) = (Roster::default(), KubernetesSettings::default());
        for uid in ["a", "b"] {
            roster
                .put(&pod(uid, if uid == "a" { "10.0.0.1" } else { "10.0.0.2" }, true), &settings);
        }
        let mut listing = Listing::default();
        assert!(listing.add(&[pod("b", "10.0.0.2", false)], &settings));
        assert!(listing.add(&[pod("c", "10.0.0.3", false)], &settings));
        roster.replace(listing);
        assert_eq!(shown(&roster), ["b 10.0.0.2 not ready"]);
        roster.remove("b");
        assert_eq!(shown(&roster), [""; 0]);
    }

    #[test]
    fn an_address_belongs_to_the_pod_that_is_ready() {
        let (mut roster, settings) = (Roster::default(), KubernetesSettings::default());
        roster.put(&pod("old", "10.0.0.1", true), &settings);
        roster.put(&pod("old", "10.0.0.1", false), &settings);
        roster.put(&pod("new", "10.0.0.1", true), &settings);
        assert_eq!(shown(&roster), ["new 10.0.0.1"]);
    }

    #[test]
    fn zones_come_from_nodes_where_pods_say_none() {
        let settings = KubernetesSettings { node_zones: true, ..KubernetesSettings::default() };
        let mut roster = Roster::default();
        roster.put(&Pod { node: Some("n1".to_owned()), ..pod("a", "10.0.0.1", true) }, &settings);
        assert_eq!(roster.unplaced_nodes().collect::<Vec<_>>(), ["n1"]);
        let zones = [("n1".to_owned(), "z".to_owned())].into();
        assert_eq!(roster.replicas(&zones)[0].zone.as_deref(), Some("z"));
    }

    #[test]
    fn pods_without_the_port_are_told_once_for_all() {
        let (mut roster, settings) = (Roster::default(), KubernetesSettings::default());
        assert_eq!(roster.doubt(&settings), None);
        for uid in ["a", "b", "c"] {
            roster.put(&Pod { ports: Vec::new(), ..pod(uid, "10.0.0.1", true) }, &settings);
        }
        let doubt = roster.doubt(&settings).unwrap();
        assert_eq!(doubt.word, "no_port");
        assert!(doubt.detail.starts_with("pod pod-a and 2 more: no container"), "{}", doubt.detail);
    }
}
