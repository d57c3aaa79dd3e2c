//! Which router leads. Where a store says so, that one; a router that cannot reach the store goes by what others were told
//! there. Without a store, and while none is heard of it, it is the lowest id that more than half of all routers see. Each router tells the
//! others which routers it sees, so all that can talk to each other come to the same answer, and the smaller side of a partition
//! has no leader. It is no lock: for a moment two may believe that they lead. What they do then is ordered by
//! generation, so that the higher one holds everywhere once they meet.
//!
//! All routers are those that were configured or seen, whichever are more, less those that said goodbye.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::RouterId;

use super::tenure::StoreWord;

/// What one router knows of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// How many routers there are as far as it knows, itself included.
    pub size: u32,
    /// How many of them said goodbye and are not back.
    pub left: u32,
    /// Those that it talks to.
    pub sees: Vec<RouterId>,
    /// What a store told this router itself.
    pub store: StoreWord,
}

/// Where a router stands among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterStanding {
    pub leader: Option<RouterId>,
    /// How many routers there should be, and how many are there, this one included.
    pub routers: u32,
    pub present: u32,
    /// How often the leader changed.
    pub leader_changes: u64,
    /// Whether a store says which router leads, and not the majority.
    pub is_by_store: bool,
}

impl ClusterStanding {
    /// Tells whether more than half of all routers are there.
    pub const fn has_majority(&self) -> bool {
        self.routers < 2 * self.present
    }

    /// Says it in a word: `whole`, `majority` or `minority`.
    pub const fn as_str(&self) -> &'static str {
        match self.has_majority() {
            true if self.routers <= self.present => "whole",
            true => "majority",
            false => "minority",
        }
    }
}

/// Finds the leader from what routers say that they see.
#[derive(Debug)]
pub struct Election {
    own: RouterId,
    /// The most routers that were configured or seen.
    size: u32,
    left: u32,
    /// Those that are talked to, and what each said that it sees.
    views: BTreeMap<RouterId, View>,
    leader: Option<RouterId>,
    leader_changes: u64,
    /// What a store told this router, and whether it is waited for.
    store: StoreWord,
    awaits_store: bool,
}

impl Election {
    /// Begins alone; `configured` counts all routers that are named, this one included.
    pub fn new(own: RouterId, configured: u32) -> Self {
        let views = BTreeMap::new();
        let size = configured.max(1);
        let mut it = Self {
            own,
            size,
            left: 0,
            views,
            leader: None,
            leader_changes: 0,
            store: StoreWord::Silent,
            awaits_store: false,
        };
        it.elect();
        it.leader_changes = 0;
        it
    }

    /// Notes that one of the configured routers is this one.
    pub fn on_itself(&mut self) {
        self.size = (self.size - 1).max(1);
        self.elect();
    }

    /// Notes what a store says; where it says nothing, whether it is still waited for. Until then no router leads: a plan
    /// may be kept there.
    pub fn on_store(&mut self, word: StoreWord, is_waiting: bool) {
        (self.store, self.awaits_store) = (word, is_waiting);
        self.elect();
    }

    /// Takes as many routers to be configured, where that changes while it runs.
    pub fn on_configured(&mut self, routers: u32) {
        self.size = self.size.max(routers);
        self.elect();
    }

    /// Notes a router that is talked to from now on. Until it says what it sees, it is taken to see this one.
    pub fn on_met(&mut self, router: RouterId) {
        let view = View { size: 1, sees: vec![self.own], ..View::default() };
        self.views.insert(router, view);
        self.elect();
    }

    /// Takes in what a router sees.
    pub fn on_view(&mut self, router: RouterId, view: View) {
        if let Some(known) = self.views.get_mut(&router) {
            self.size = self.size.max(view.size);
            self.left = self.left.max(view.left);
            *known = view;
            self.elect();
        }
    }

    /// Notes a router that is not talked to any more; `has_left`: it said goodbye.
    pub fn on_parted(&mut self, router: RouterId, has_left: bool) {
        if self.views.remove(&router).is_some() {
            // A process that hands over to its successor leaves no gap.
            let is_missing = self.present() + self.left < self.size;
            self.left += u32::from(has_left && is_missing);
            self.elect();
        }
    }

    /// What this router sees, to be told to the others.
    pub fn view(&self) -> View {
        let sees = self.views.keys().copied().collect();
        View { size: self.size, left: self.left, sees, store: self.store }
    }

    pub fn standing(&self) -> ClusterStanding {
        ClusterStanding {
            leader: self.leader,
            routers: self.electorate(),
            present: self.present(),
            leader_changes: self.leader_changes,
            is_by_store: self.store_word() != StoreWord::Silent,
        }
    }

    /// Tells whether this router leads.
    pub fn leads(&self) -> bool {
        self.leader == Some(self.own)
    }

    fn present(&self) -> u32 {
        u32::try_from(self.views.len()).unwrap_or(u32::MAX - 1) + 1
    }

    fn electorate(&self) -> u32 {
        self.size.saturating_sub(self.left).max(self.present())
    }

    fn elect(&mut self) {
        self.size = self.size.max(self.present());
        // One that is back has not left.
        self.left = self.left.min(self.size - self.present());
        let leader = match self.store_word() {
            StoreWord::Leader(router) => Some(router),
            StoreWord::Vacant => None,
            StoreWord::Silent if self.awaits_store => None,
            StoreWord::Silent => self.candidates().into_iter().find(|it| self.is_seen_by_most(*it)),
        };
        if leader != self.leader {
            self.leader = leader;
            self.leader_changes += 1;
        }
    }

    /// What the store says, told by itself or else by a router that it talks to.
    fn store_word(&self) -> StoreWord {
        if self.store != StoreWord::Silent {
            return self.store;
        }
        let told: Vec<StoreWord> = self.views.values().map(|it| it.store).collect();
        let leader = told.iter().copied().find(|it| matches!(it, StoreWord::Leader(_)));
        let vacant = told.contains(&StoreWord::Vacant).then_some(StoreWord::Vacant);
        leader.or(vacant).unwrap_or_default()
    }

    /// Lists the routers that any router sees, as far as is known.
    fn candidates(&self) -> BTreeSet<RouterId> {
        let told = self.views.values().flat_map(|it| &it.sees);
        self.views.keys().chain(told).copied().chain([self.own]).collect()
    }

    fn is_seen_by_most(&self, router: RouterId) -> bool {
        let is_seen_here = router != self.own && self.views.contains_key(&router);
        let knows = |(by, view): &(&RouterId, &View)| **by != router && view.sees.contains(&router);
        // It sees itself, also where that is known from another router only.
        let seen = 1 + self.views.iter().filter(knows).count() + usize::from(is_seen_here);
        self.electorate() < 2 * u32::try_from(seen).unwrap_or(u32::MAX / 2)
    }
}

#[cfg(test)]
mod tests;
