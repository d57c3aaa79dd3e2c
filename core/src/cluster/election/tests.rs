//! Routers that see each other, or do not, and what they make of it.

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

#[test]
fn a_store_says_which_router_leads_and_those_that_cannot_reach_it_hear_of_that() {
    let mut net = Net::new(3);
    net.routers[1].on_store(StoreWord::Leader(id(1)), false);
    net.routers[2].on_store(StoreWord::Leader(id(1)), false);
    net.settle();
    assert_eq!(net.leaders(), [Some(id(1)); 3], "not the lowest");
    assert!(net.routers[0].standing().is_by_store);
    for it in &mut net.routers {
        it.on_store(StoreWord::Vacant, false);
    }
    net.settle();
    assert_eq!(net.leaders(), [None; 3]);
    for it in &mut net.routers {
        it.on_store(StoreWord::Silent, false);
    }
    net.settle();
    assert_eq!(net.leaders(), [Some(id(0)); 3], "without a store the majority decides");
    assert!(!net.routers[0].standing().is_by_store);
}

#[test]
fn no_router_leads_while_a_store_is_waited_for() {
    let mut net = Net::new(2);
    for it in &mut net.routers {
        it.on_store(StoreWord::Silent, true);
    }
    net.settle();
    assert_eq!(net.leaders(), [None; 2]);
    net.routers[1].on_store(StoreWord::Silent, false);
    assert_eq!(net.routers[1].standing().leader, Some(id(0)));
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
