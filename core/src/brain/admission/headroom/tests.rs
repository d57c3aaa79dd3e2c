//! What each class may take of replicas.

use super::*;
use crate::domain::{ReplicaId, RequestId};
use crate::queue::{Lane, QueueLimits, Tenant, Ticket, Weight};

const CAPACITY: Work = Work::from_parts(400_000_000);

fn at(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(ms)
}

fn empty() -> Line {
    Line::new(QueueLimits::default(), &Classes::default())
}

/// Classes that have brought these shares of what the fleet can do for a while.
fn busy(shares: [f64; 3]) -> Headroom {
    let mut headroom = Headroom::new(&Classes::default());
    for second in 0..120 {
        for (class, share) in shares.into_iter().enumerate() {
            let work = Work::from_mu(share * CAPACITY.as_mu() / 60.0);
            headroom.on_arrival(at(second * 1_000), class, work);
        }
    }
    headroom.look(at(119_500), &empty(), |_| Work::ZERO, CAPACITY);
    headroom
}

fn waiting(request: u64, class: u8) -> Ticket {
    let (is_fresh, is_kept, prompt) = (false, false, PromptSize::Usual);
    let lane = LaneKey { class, is_fresh, prompt, is_kept, workload: None, home: None };
    Ticket {
        request: RequestId(request),
        class: ClassId(class),
        tenant: Tenant(1),
        weight: Weight::ONE,
        lane: Lane::from(lane),
        deadline: None,
        target: None,
        expires_at: at(1_000_000),
        work: Work::from_mu(1.0),
        bytes: 0,
    }
}

fn limit(fill: f64, wait_ms: f64) -> Limit {
    Limit { fill, wait_ms, ..Limit::NONE }
}

fn fills(waits_ms: &[f64]) -> Vec<Fill> {
    let fill =
        |(id, wait_ms): (u32, &f64)| Fill { wait_ms: *wait_ms, ..Fill::empty(ReplicaId(id)) };
    (0..).zip(waits_ms).map(fill).collect()
}

#[test]
fn a_class_that_is_alone_is_limited_by_its_own_target_only() {
    for shares in [[0.0, 0.9, 0.0], [0.0; 3]] {
        let headroom = busy(shares);
        assert_eq!(headroom.limit(1), limit(1.0, 625.0));
        assert!(headroom.has_door(&fills(&[9_000.0, 9_000.0, 9_000.0, 0.0])));
    }
}

#[test]
fn how_much_replicas_may_read_shrinks_as_the_line_of_one_class_grows() {
    let mut headroom = busy([0.0, 2.0, 0.0]);
    let mut line = empty();
    let mut limits = Vec::new();
    for number in 0..80 {
        assert!(line.join(waiting(number, 1), &mut Vec::new()).is_ok());
        headroom.look(at(119_500), &line, |_| Work::ZERO, CAPACITY);
        limits.push(headroom.limit(1));
    }
    assert!(limits.iter().all(|it| (it.wait_ms - 625.0).abs() < 1e-9), "{limits:?}");
    assert!(limits.is_sorted_by(|one, next| next.reading <= one.reading), "{limits:?}");
    // Eighty model units are twelve seconds of this fleet, and the target is five.
    assert!(10.0 < limits[0].reading && (limits[79].reading - 1.0).abs() < 1e-9, "{limits:?}");
    let usual = LaneKey::from(waiting(0, 1).lane);
    let admit = |prompt, replica, reading| {
        let key = LaneKey { prompt, home: Some(ReplicaId(0)), ..usual };
        headroom.limits_in(key).admit(&Fill { reading, ..Fill::empty(ReplicaId(replica)) })
    };
    assert!(
        admit(PromptSize::Usual, 0, 0.9) && !admit(PromptSize::Usual, 0, 1.1),
        "answers come first by then"
    );
    assert!(
        admit(PromptSize::Short, 0, 9.0) && admit(PromptSize::Short, 1, 9.0),
        "a short prompt holds up none"
    );
    let at_home = PromptSize::ShortAtHome;
    assert!(admit(at_home, 0, 9.0) && !admit(at_home, 1, 1.1), "elsewhere it is read whole");
}

#[test]
fn only_one_class_alone_may_wait_longer_where_it_costs_less() {
    let lane = LaneKey::from(waiting(0, 1).lane);
    let longest = |it: Headroom| {
        let limits = it.limits_in(lane);
        [limits, it.limits_if_cheaper(lane, limits)].map(|it| it.anywhere.wait_ms)
    };
    let [usual, cheaper] = longest(busy([0.0, 0.9, 0.0]));
    assert!((usual - 625.0).abs() < 1e-9 && (cheaper - 2_500.0).abs() < 1e-9);
    let [usual, cheaper] = longest(busy([0.2, 0.6, 0.2]));
    assert!((usual - cheaper).abs() < 1e-9, "{usual} {cheaper}");
}

#[test]
fn nobody_goes_past_one_that_waits_to_where_that_may_not_go() {
    // Interactive requests are rare here, so no room is kept for them.
    let mut headroom = busy([0.0, 0.9, 0.0]);
    let own = |it: &Headroom| [0, 1, 2].map(|class| it.limit(class).wait_ms);
    let [first, second, third] = own(&headroom);
    assert!(first < second && first < third);
    let mut line = empty();
    assert!(line.join(waiting(1, 0), &mut Vec::new()).is_ok());
    headroom.look(at(119_500), &line, |_| Work::ZERO, CAPACITY);
    let [first, second, third] = own(&headroom);
    assert!(second <= first && third <= first, "{first} {second} {third}");
}

#[test]
fn lesser_classes_leave_room_for_one_that_is_about() {
    let headroom = busy([0.2, 0.6, 0.2]);
    assert_eq!(headroom.limit(0), limit(1.0, 125.0));
    let polite = limit(0.9, 125.0 / 8.0);
    assert_eq!([headroom.limit(1), headroom.limit(2)], [polite; 2]);
    assert!(headroom.is_long(1, 200.0) && !headroom.is_long(0, 200.0));
    assert!(headroom.is_long(0, 1_100.0), "it is late in any case, others need not be");
    assert!(headroom.has_door(&fills(&[900.0, 0.0, 0.0, 0.0])));
    assert!(!headroom.has_door(&fills(&[900.0, 900.0, 0.0, 0.0])));
}

#[test]
fn one_replica_has_no_door() {
    assert!(busy([0.2, 0.6, 0.2]).has_door(&fills(&[0.0])));
}

#[test]
fn a_class_that_waits_all_the_time_is_owed_no_more_than_its_weight() {
    let mut headroom = busy([0.9, 0.5, 0.0]);
    let mut line = empty();
    assert!(line.join(waiting(1, 0), &mut Vec::new()).is_ok());
    headroom.look(at(120_000), &line, |_| Work::ZERO, CAPACITY);
    assert!(headroom.limit(1).fill < 1.0);
    headroom.look(at(128_000), &line, |_| Work::ZERO, CAPACITY);
    assert_eq!(headroom.limit(1), headroom.limit(0));
    assert!(headroom.has_door(&fills(&[900.0, 900.0, 900.0, 0.0])));
    headroom.look(at(128_100), &empty(), |_| Work::ZERO, CAPACITY);
    assert!(headroom.limit(1).fill < 1.0, "it waits no more");
}

#[test]
fn a_class_that_was_about_is_forgotten() {
    let mut headroom = busy([0.5, 0.5, 0.0]);
    headroom.look(at(119_500 + 300_000), &empty(), |_| Work::ZERO, CAPACITY);
    assert_eq!(headroom.limit(1), limit(1.0, 625.0));
}
