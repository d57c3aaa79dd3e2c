//! A store as simple as can be, and routers that ask it.

use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(5);

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

/// A seat that lives as long as the lease under it.
#[derive(Debug, Default)]
struct FakeStore {
    now: u64,
    revision: i64,
    leases: Vec<(i64, u64)>,
    seat: Option<SeatHolder>,
    is_down: bool,
    /// Writes that went through, each by the router that it came from.
    written: Vec<RouterId>,
}

impl FakeStore {
    fn tick(&mut self, now: u64) {
        self.now = now;
        self.leases.retain(|it| now < it.1);
        let is_alive = |it: &SeatHolder| self.leases.iter().any(|lease| lease.0 == it.lease);
        self.seat = self.seat.filter(is_alive);
    }

    fn wipe(&mut self) {
        (self.leases, self.seat, self.revision) = (Vec::new(), None, 0);
    }

    fn answer(&mut self, from: RouterId, question: StoreQuestion) -> StoreAnswer {
        if self.is_down {
            return StoreAnswer::Failed;
        }
        let until = self.now + u64::try_from(TTL.as_millis()).unwrap();
        let known = |id: i64, leases: &[(i64, u64)]| leases.iter().position(|it| it.0 == id);
        match question {
            StoreQuestion::Grant { ttl } => {
                self.revision += 1;
                let lease = i64::try_from(from.0).unwrap() * 1_000 + self.revision;
                self.leases.push((lease, until));
                StoreAnswer::Granted { lease, ttl }
            }
            StoreQuestion::Renew { lease } => match known(lease, &self.leases) {
                Some(at) => {
                    self.leases[at].1 = until;
                    StoreAnswer::Renewed { ttl: TTL }
                }
                None => StoreAnswer::Renewed { ttl: Duration::ZERO },
            },
            StoreQuestion::Campaign { lease } if known(lease, &self.leases).is_none() => {
                StoreAnswer::NoLease
            }
            StoreQuestion::Campaign { lease } => {
                if self.seat.is_none() {
                    self.revision += 1;
                    let revision = self.revision;
                    self.seat = Some(SeatHolder { router: from, revision, lease });
                }
                StoreAnswer::Seat(self.seat)
            }
            StoreQuestion::Read => StoreAnswer::Read,
        }
    }

    fn write(&mut self, from: RouterId, fence: i64) -> bool {
        let is_fit = !self.is_down && self.seat.is_some_and(|it| it.revision == fence);
        self.written.extend(is_fit.then_some(from));
        is_fit
    }
}

/// Asks all that there is to ask at a moment.
fn talk(tenure: &mut Tenure, store: &mut FakeStore, now: u64) {
    store.tick(now);
    while let Some(question) = tenure.next(at(now)) {
        let answer = store.answer(tenure.own, question);
        tenure.on_answer(at(now), at(now), answer, |_| true);
    }
}

fn tenure(router: u64) -> Tenure {
    Tenure::new(at(0), RouterId(router), TTL)
}

#[test]
fn the_first_to_ask_leads_and_the_other_hears_of_it() {
    let (mut store, mut one, mut two) = (FakeStore::default(), tenure(1), tenure(2));
    assert!(one.is_waiting(at(0)));
    assert_eq!(one.word(at(0)), StoreWord::Silent);
    talk(&mut one, &mut store, 0);
    talk(&mut two, &mut store, 0);
    assert_eq!(one.word(at(1)), StoreWord::Leader(RouterId(1)));
    assert_eq!(two.word(at(1)), StoreWord::Leader(RouterId(1)));
    assert!(one.fence(at(1)).is_some() && two.fence(at(1)).is_none());
    assert!(!one.is_waiting(at(1)));
}

#[test]
fn a_router_reads_what_is_kept_before_it_leads() {
    let (mut store, mut one) = (FakeStore::default(), tenure(1));
    store.tick(0);
    while let Some(question) = one.next(at(0)) {
        if question == StoreQuestion::Read {
            assert_eq!((one.fence(at(0)), one.word(at(0))), (None, StoreWord::Vacant));
        }
        let answer = store.answer(RouterId(1), question);
        one.on_answer(at(0), at(0), answer, |_| true);
    }
    assert!(one.fence(at(0)).is_some());
}

#[test]
fn a_leader_that_was_stopped_does_not_lead_when_it_wakes() {
    let (mut store, mut one, mut two) = (FakeStore::default(), tenure(1), tenure(2));
    talk(&mut one, &mut store, 0);
    let stale = one.fence(at(0)).unwrap();
    for now in (0..7_000).step_by(500) {
        talk(&mut two, &mut store, now);
    }
    assert_eq!(two.word(at(7_000)), StoreWord::Leader(RouterId(2)));
    assert_eq!((one.fence(at(7_000)), one.word(at(7_000))), (None, StoreWord::Silent));
    assert!(!store.write(RouterId(1), stale), "what it had under way is refused");
    talk(&mut one, &mut store, 7_000);
    assert_eq!(one.word(at(7_000)), StoreWord::Silent, "its lease was lost, it asks again soon");
    talk(&mut one, &mut store, 7_300);
    assert_eq!(one.word(at(7_300)), StoreWord::Leader(RouterId(2)));
}

#[test]
fn a_victory_under_a_lease_that_is_over_is_none() {
    let mut one = tenure(1);
    one.on_answer(at(0), at(10), StoreAnswer::Granted { lease: 7, ttl: TTL }, |_| true);
    // The answer to the campaign comes after the time of its lease.
    let holder = SeatHolder { router: RouterId(1), revision: 3, lease: 7 };
    one.on_answer(at(100), at(6_000), StoreAnswer::Seat(Some(holder)), |_| true);
    one.on_answer(at(6_000), at(6_000), StoreAnswer::Read, |_| true);
    assert_eq!(one.fence(at(6_000)), None);
    // Nor is one under a lease that this router had before.
    let mut two = tenure(1);
    two.on_answer(at(0), at(0), StoreAnswer::Granted { lease: 8, ttl: TTL }, |_| true);
    two.on_answer(at(0), at(0), StoreAnswer::Seat(Some(holder)), |_| true);
    two.on_answer(at(0), at(0), StoreAnswer::Read, |_| true);
    assert_eq!((two.fence(at(0)), two.word(at(0))), (None, StoreWord::Vacant));
}

#[test]
fn a_store_that_is_gone_says_nothing_after_the_time_of_a_lease_and_is_heard_again() {
    let (mut store, mut one) = (FakeStore::default(), tenure(1));
    talk(&mut one, &mut store, 0);
    store.is_down = true;
    for now in (1_000..9_000).step_by(500) {
        talk(&mut one, &mut store, now);
    }
    assert_eq!((one.word(at(9_000)), one.fence(at(9_000))), (StoreWord::Silent, None));
    assert!(!one.is_waiting(at(9_000)), "it goes by the other rule from now on");
    store.is_down = false;
    store.wipe();
    for now in (10_000..13_000).step_by(500) {
        talk(&mut one, &mut store, now);
    }
    assert_eq!(one.word(at(13_000)), StoreWord::Leader(RouterId(1)));
}

#[test]
fn a_router_that_was_fenced_out_steps_down_at_once() {
    let (mut store, mut one) = (FakeStore::default(), tenure(1));
    talk(&mut one, &mut store, 0);
    one.on_fenced_out(at(1));
    assert_eq!((one.fence(at(1)), one.word(at(1))), (None, StoreWord::Vacant));
    assert!(one.next(at(1)).is_some(), "and asks at once");
}

#[test]
fn what_a_leader_writes_is_read_by_those_that_do_not_talk_to_it() {
    let (mut store, mut one, mut two) = (FakeStore::default(), tenure(1), tenure(2));
    talk(&mut one, &mut store, 0);
    talk(&mut two, &mut store, 0);
    let mut reads = [0, 0];
    for ((sees, begin), reads) in [(true, 2_000), (false, 6_000)].into_iter().zip(&mut reads) {
        for now in (begin..begin + 4_000).step_by(200) {
            talk(&mut one, &mut store, now);
            while let Some(question) = two.next(at(now)) {
                *reads += u32::from(question == StoreQuestion::Read);
                let answer = store.answer(RouterId(2), question);
                two.on_answer(at(now), at(now), answer, |_| sees);
            }
        }
    }
    assert_eq!(reads[0], 0);
    assert!(0 < reads[1]);
}

proptest! {
    /// Routers stop and go, the store comes and goes and is wiped: what goes through comes from the one that has the seat.
    #[test]
    fn only_the_router_that_has_the_seat_writes(
        deeds in prop::collection::vec((0_u8..8, 1_u64..4_000), 1..60),
    ) {
        let mut store = FakeStore::default();
        let mut routers = [tenure(1), tenure(2), tenure(3)];
        let mut stopped = [false; 3];
        let mut now = 0;
        for (deed, pause) in deeds {
            match deed {
                0..=2 => stopped[usize::from(deed)] ^= true,
                3 => store.is_down ^= true,
                4 => store.wipe(),
                _ => {}
            }
            // A router may be stopped between its look at the fence and its write.
            let fences = [0, 1, 2].map(|it| routers[it].fence(at(now)));
            now += pause;
            store.tick(now);
            for (router, fence) in routers.iter_mut().zip(fences) {
                let Some(fence) = fence else { continue };
                let has_seat = store.seat.is_some_and(|it| it.revision == fence);
                if store.write(router.own, fence) {
                    prop_assert!(has_seat);
                } else {
                    router.on_fenced_out(at(now));
                }
            }
            for it in (0..3).filter(|it| !stopped[*it]) {
                talk(&mut routers[it], &mut store, now);
            }
            let leading = routers.iter().filter(|it| it.fence(at(now)).is_some()).count();
            prop_assert!(leading <= 1 || store.is_down || stopped.contains(&true));
        }
        store.is_down = false;
        for _ in 0..40 {
            now += 500;
            for it in &mut routers {
                talk(it, &mut store, now);
            }
        }
        let words = routers.each_ref().map(|it| it.word(at(now)));
        prop_assert!(matches!(words[0], StoreWord::Leader(_)));
        prop_assert!(words.iter().all(|it| *it == words[0]), "{words:?}");
    }
}
