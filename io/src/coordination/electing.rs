//! Which router leads: what is learned of others is taken in, what this one sees is told, and the rest of the router is
//! told the outcome. The rule is `core/cluster/election.rs`.

use std::sync::PoisonError;

use cleave_core::cluster::{ClusterStanding, Election};
use cleave_core::domain::RouterId;

use super::Cluster;
use crate::telemetry::Incident;

impl Cluster {
    /// Takes in what was learned of other routers.
    pub(super) fn elect(&self, change: impl FnOnce(&mut Election)) {
        let (before, now) = {
            let mut election = self.election.lock().unwrap_or_else(PoisonError::into_inner);
            let before = election.standing();
            change(&mut election);
            let view = election.view();
            self.views.send_if_modified(|told| {
                let is_new = *told != view;
                *told = view;
                is_new
            });
            // Under the lock, so that the last outcome is the one that stays.
            self.sharing.set_standing(election.standing());
            (before, election.standing())
        };
        if (before.leader, before.as_str()) != (now.leader, now.as_str()) {
            self.router.events.publish(self.incident(&before, &now));
        }
    }

    /// Tells operators which router leads, and whether most of them are there.
    fn incident(&self, before: &ClusterStanding, now: &ClusterStanding) -> Incident {
        let ClusterStanding { leader, routers, present, .. } = *now;
        let leader = match leader {
            Some(own) if own == self.hello.router => "this router leads".to_owned(),
            Some(RouterId(other)) => format!("router {} leads", RouterId(other)),
            None => "no router leads: subsets stay as they are".to_owned(),
        };
        Incident {
            kind: "cluster",
            state: now.as_str(),
            before: Some(before.as_str()),
            detail: Some(format!("{present} of {routers} routers are there; {leader}")),
            alert: !now.has_majority(),
            ..Incident::default()
        }
    }
}
