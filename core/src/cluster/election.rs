//! Which router leads, without a store: the lowest id that more than half of all routers see. Each router tells the
//! others which routers it sees, so all that can talk to each other come to the same answer, and the smaller side of a partition
//! has no leader. It is no lock: for a moment two may believe that they lead. What they do then is ordered by
//! generation, so that the higher one holds everywhere once they meet.
//!
//! All routers are those that were configured or seen, whichever are more, less those that said goodbye.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::RouterId;

/// What one router knows of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// How many routers there are as far as it knows, itself included.
    pub size: u32,
    /// How many of them said goodbye and are not back.
    pub left: u32,
    /// Those that it talks to.
    pub sees: Vec<RouterId>,
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
}

impl Election {
    /// Begins alone; `configured` counts all routers that are named, this one included.
    pub fn new(own: RouterId, configured: u32) -> Self {
        let views = BTreeMap::new();
        let size = configured.max(1);
        let mut it = Self { own, size, left: 0, views, leader: None, leader_changes: 0 };
        it.elect();
        it.leader_changes = 0;
        it
    }

    /// Notes that one of the configured routers is this one.
    pub fn on_itself(&mut self) {
        self.size = (self.size - 1).max(1);
        self.elect();
    }

    /// Notes a router that is talked to from now on. Until it says what it sees, it is taken to see this one.
    pub fn on_met(&mut self, router: RouterId) {
        let view = View { size: 1, left: 0, sees: vec![self.own] };
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
        View { size: self.size, left: self.left, sees: self.views.keys().copied().collect() }
    }

    pub fn standing(&self) -> ClusterStanding {
        ClusterStanding {
            leader: self.leader,
            routers: self.electorate(),
            present: self.present(),
            leader_changes: self.leader_changes,
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
        let leader = self.candidates().into_iter().find(|it| self.is_seen_by_most(*it));
        if leader != self.leader {
            self.leader = leader;
            self.leader_changes += 1;
        }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Some routers and which two of them can talk.
    struct Net {
        routers: Vec<Election>,
        talks: BTreeSet<(usize, usize)>,
    }

    fn id(at: usize) -> RouterId {
        RouterId(u64::try_from(at).unwrap() + 1)
    }

    impl Net {
        fn new(count: usize) -> Self {
            let size = u32::try_from(count).unwrap();
            let routers = (0..count).map(|at| Election::new(id(at), size)).collect();
            let mut net = Self { routers, talks: BTreeSet::new() };
            net.heal();
            net
        }

        fn heal(&mut self) {
            for one in 0..self.routers.len() {
                for other in 0..one {
                    self.set(one, other, true);
                }
            }
            self.settle();
        }

        fn set(&mut self, one: usize, other: usize, talks: bool) {
            let pair = (one.max(other), one.min(other));
            if talks && self.talks.insert(pair) {
                self.routers[one].on_met(id(other));
                self.routers[other].on_met(id(one));
            } else if !talks && self.talks.remove(&pair) {
                self.routers[one].on_parted(id(other), false);
                self.routers[other].on_parted(id(one), false);
            }
        }

        /// Cuts a router off from all others.
        fn cut(&mut self, one: usize) {
            (0..self.routers.len()).filter(|it| *it != one).for_each(|it| self.set(one, it, false));
            self.settle();
        }

        /// Lets all tell what they see.
        fn settle(&mut self) {
            for _ in 0..2 {
                for (one, other) in self.talks.clone() {
                    let (left, right) = (self.routers[one].view(), self.routers[other].view());
                    self.routers[other].on_view(id(one), left);
                    self.routers[one].on_view(id(other), right);
                }
            }
        }

        fn leaders(&self) -> Vec<Option<RouterId>> {
            self.routers.iter().map(|it| it.standing().leader).collect()
        }
    }

    #[test]
    fn one_router_leads_itself() {
        assert!(Election::new(id(7), 1).leads());
        assert!(!Election::new(id(7), 2).leads(), "the other may be there");
    }

    #[test]
    fn of_two_neither_leads_while_they_are_apart() {
        let mut net = Net::new(2);
        assert_eq!(net.leaders(), [Some(id(0)); 2]);
        net.cut(1);
        assert_eq!(net.leaders(), [None; 2]);
        assert_eq!(net.routers[0].standing().as_str(), "minority");
        net.heal();
        assert_eq!(net.leaders(), [Some(id(0)); 2]);
        assert_eq!(net.routers[1].standing().as_str(), "whole");
    }

    #[test]
    fn of_three_the_two_that_see_each_other_have_a_leader() {
        let mut net = Net::new(3);
        net.cut(0);
        assert_eq!(net.leaders(), [None, Some(id(1)), Some(id(1))]);
        assert_eq!(net.routers[2].standing().as_str(), "majority");
        net.heal();
        assert_eq!(net.leaders(), [Some(id(0)); 3]);
        assert_eq!(net.routers[1].standing().leader_changes, 3);
    }

    #[test]
    fn two_that_cannot_talk_agree_through_a_third() {
        let mut net = Net::new(3);
        net.set(0, 1, false);
        net.settle();
        assert_eq!(net.leaders(), [Some(id(0)); 3]);
    }

    #[test]
    fn a_router_that_says_goodbye_is_not_waited_for_and_one_that_is_lost_is() {
        let mut net = Net::new(3);
        net.routers[0].on_parted(id(2), true);
        net.routers[0].on_parted(id(1), true);
        assert!(net.routers[0].leads(), "it is the only one left");
        net.routers[0].on_met(RouterId(9));
        let standing = net.routers[0].standing();
        assert_eq!((standing.routers, standing.present), (2, 2), "one is back");
        net.routers[0].on_parted(RouterId(9), false);
        assert_eq!(net.routers[0].standing().leader, None);
    }

    #[test]
    fn a_successor_that_comes_before_its_predecessor_goes_leaves_no_gap() {
        let mut net = Net::new(3);
        let router = &mut net.routers[0];
        router.on_met(RouterId(9));
        router.on_parted(id(1), true);
        assert_eq!((router.standing().routers, router.standing().present), (3, 3));
        router.on_parted(RouterId(9), false);
        assert_eq!((router.standing().routers, router.standing().present), (3, 2));
        assert!(router.leads());
    }

    #[test]
    fn routers_that_were_not_configured_count_once_they_were_seen() {
        let mut first = Election::new(id(0), 1);
        first.on_met(id(1));
        first.on_met(id(2));
        first.on_parted(id(1), false);
        first.on_parted(id(2), false);
        assert!(!first.leads(), "the two others may have a leader");
    }

    proptest! {
        #[test]
        fn a_partition_has_one_leader_at_most(
            count in 1_usize..8,
            sides in prop::collection::vec(0_usize..3, 8),
        ) {
            let mut net = Net::new(count);
            for one in 0..count {
                for other in 0..one {
                    net.set(one, other, sides[one] == sides[other]);
                }
            }
            net.settle();
            let leading = net.routers.iter().filter(|it| it.leads()).count();
            let most = (0..3).map(|side| sides[..count].iter().filter(|it| **it == side).count());
            let has_majority = most.max().is_some_and(|it| count < 2 * it);
            prop_assert_eq!(leading, usize::from(has_majority));
            net.heal();
            prop_assert_eq!(net.leaders(), vec![Some(id(0)); count]);
        }
    }
}
