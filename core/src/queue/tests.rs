//! The line, contracts and the gate, in single steps.

use std::time::Duration;

use crate::domain::{Moment, RequestId, SliceKey};

use super::*;

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

fn mu(mu: f64) -> Work {
    Work::from_mu(mu)
}

fn ticket(request: u64, class: u8, tenant: u64) -> Ticket {
    Ticket {
        request: RequestId(request),
        class: ClassId(class),
        tenant: Tenant(tenant),
        weight: Weight::ONE,
        lane: Lane(0),
        deadline: None,
        target: None,
        expires_at: at(1_000),
        work: mu(1.0),
        bytes: 10,
    }
}

fn line(count_max: usize, bytes_max: usize) -> Line {
    Line::new(QueueLimits { count_max, bytes_max }, &Classes::default())
}

fn join(line: &mut Line, ticket: Ticket) {
    let mut displaced = Vec::new();
    assert_eq!(line.join(ticket, &mut displaced), Ok(()));
    assert_eq!(displaced, Vec::new());
}

fn next(line: &mut Line) -> Option<u64> {
    line.next(Moment::ZERO, |_| true, |_| false).map(|it| it.request.0)
}

#[test]
fn earlier_deadlines_go_first_and_those_without_go_last() {
    let mut line = line(10, 1_000);
    for (request, deadline) in [(1, None), (2, Some(30)), (3, Some(10)), (4, None), (5, Some(20))] {
        join(&mut line, Ticket { deadline: deadline.map(at), ..ticket(request, 1, 7) });
    }
    let order: Vec<u64> = std::iter::from_fn(|| next(&mut line)).collect();
    assert_eq!(order, [3, 5, 2, 1, 4]);
}

#[test]
fn a_class_gets_its_weight_and_none_starves() {
    let mut line = line(10_000, 1 << 20);
    for request in 0..3_000 {
        join(&mut line, ticket(request, u8::try_from(request % 3).unwrap(), 1));
    }
    let served: Vec<u64> = (0..210).filter_map(|_| next(&mut line)).map(|it| it % 3).collect();
    let of = |class| served.iter().filter(|it| **it == class).count();
    assert_eq!([of(0), of(1), of(2)], [160, 40, 10]);
}

#[test]
fn one_that_comes_to_a_long_line_of_a_lesser_class_goes_next() {
    let mut line = line(1_000, 1 << 20);
    (0..500).for_each(|it| join(&mut line, ticket(it, 2, 1)));
    (0..20).for_each(|_| _ = next(&mut line));
    join(&mut line, ticket(900, 0, 2));
    assert_eq!(next(&mut line), Some(900));
}

#[test]
fn tenants_of_a_class_share_it_by_work_whatever_they_ask_for() {
    let mut line = line(10_000, 1 << 20);
    for request in 0..1_100 {
        // The greedy one asks ten times as often, for requests of half the size.
        let (tenant, work) = if request % 11 == 0 { (1, 1.0) } else { (2, 0.5) };
        join(&mut line, Ticket { work: mu(work), ..ticket(request, 1, tenant) });
    }
    let mut work = [0.0; 3];
    for _ in 0..200 {
        let served = line.next(Moment::ZERO, |_| true, |_| false).unwrap();
        work[usize::try_from(served.tenant.0).unwrap()] += served.work.as_mu();
    }
    assert!((work[1] - work[2]).abs() <= 1.0, "{work:?}");
}

#[test]
fn a_closed_lane_holds_up_nobody_else() {
    let mut line = line(100, 1_000);
    join(&mut line, Ticket { deadline: Some(at(1)), ..ticket(1, 0, 1) });
    join(&mut line, Ticket { lane: Lane(1), ..ticket(2, 0, 1) });
    join(&mut line, Ticket { lane: Lane(1), ..ticket(3, 2, 2) });
    let mut open_one =
        || line.next(Moment::ZERO, |it| it == Lane(1), |_| false).map(|it| it.request.0);
    assert_eq!([open_one(), open_one(), open_one()], [Some(2), Some(3), None]);
    assert_eq!((line.len(), line.lanes().collect::<Vec<_>>()), (1, vec![Lane(0)]));
}

#[test]
fn a_tenant_near_its_cache_goes_first_until_it_is_a_deficit_ahead() {
    let mut line = line(1_000, 1 << 20);
    (0..100).for_each(|it| join(&mut line, Ticket { work: mu(0.25), ..ticket(it, 1, it % 2) }));
    let mut near =
        || line.next(Moment::ZERO, |_| true, |it| it.tenant == Tenant(1)).unwrap().tenant.0;
    let order: Vec<u64> = (0..40).map(|_| near()).collect();
    let ones = order.iter().take_while(|it| **it == 1).count();
    assert!((4..=6).contains(&ones), "{order:?}");
    let all = order.iter().filter(|it| **it == 1).count();
    assert!((20..=23).contains(&all), "{order:?}");
}

#[test]
fn who_floods_a_full_line_displaces_only_themselves() {
    let mut line = line(10, 1_000);
    (0..10).for_each(|it| join(&mut line, ticket(it, 1, 1)));
    let mut displaced = Vec::new();
    assert_eq!(line.join(ticket(20, 1, 1), &mut displaced), Err(Full));
    assert_eq!(line.join(ticket(21, 1, 2), &mut displaced), Ok(()));
    assert_eq!(line.join(ticket(22, 2, 2), &mut displaced), Ok(()), "lesser, but few");
    let names: Vec<u64> = displaced.iter().map(|it| it.request.0).collect();
    assert_eq!(names, [9, 8], "the last of the tenant with the most");
    assert_eq!(line.len(), 10);
    assert_eq!(line.join(Ticket { bytes: 1_001, ..ticket(23, 0, 3) }, &mut displaced), Err(Full));
    assert_eq!(line.join(Ticket { bytes: 915, ..ticket(24, 0, 3) }, &mut displaced), Ok(()));
    assert!(line.bytes() <= 1_000);
}

#[test]
fn the_expired_leave_in_order_and_those_whose_client_left_at_once() {
    let mut line = line(10, 1_000);
    for (request, expires) in [(1, 30), (2, 10), (3, 20)] {
        join(&mut line, Ticket { expires_at: at(expires), ..ticket(request, 1, 1) });
    }
    assert_eq!(line.next_expiry(), Some(at(10)));
    assert_eq!(line.expired(at(9)), None);
    assert_eq!(line.remove(RequestId(3)).map(|it| it.request.0), Some(3));
    assert_eq!(line.remove(RequestId(3)), None);
    let gone: Vec<u64> =
        std::iter::from_fn(|| line.expired(at(30))).map(|it| it.request.0).collect();
    assert_eq!(gone, [2, 1]);
    assert!(line.is_empty() && line.bytes() == 0 && line.work() == Work::ZERO);
}

#[test]
fn what_is_ahead_is_the_own_and_the_share_of_others() {
    let mut line = line(1_000, 1 << 20);
    (0..10).for_each(|it| join(&mut line, Ticket { deadline: Some(at(it)), ..ticket(it, 1, 1) }));
    (10..60).for_each(|it| join(&mut line, ticket(it, 1, 2)));
    (60..100).for_each(|it| join(&mut line, ticket(it, 2, 3)));
    let ahead = |class, tenant, due: Option<u64>| {
        let ticket = Ticket { deadline: due.map(at), ..ticket(1_000, class, tenant) };
        line.ahead(Moment::ZERO, &ticket).as_mu()
    };
    assert!((ahead(0, 9, None) - 0.0).abs() < 1e-9, "nothing of its own waits");
    // Four of its own, as many of the other tenant, and a quarter of that of the lesser class.
    assert!((ahead(1, 1, Some(3)) - 10.0).abs() < 1e-9, "{}", ahead(1, 1, Some(3)));
    assert!((ahead(2, 3, None) - 100.0).abs() < 1e-9, "all others go before the last of these");
}

#[test]
fn what_is_too_late_already_waits_for_what_is_not() {
    let mut line = line(1_000, 1 << 20);
    for request in 0..6 {
        join(&mut line, Ticket { target: Some(at(request)), ..ticket(request, 1, 1) });
    }
    join(&mut line, Ticket { deadline: Some(at(4)), target: Some(at(0)), ..ticket(6, 1, 1) });
    let ahead = line.ahead(at(3), &Ticket { target: Some(at(4)), ..ticket(7, 1, 1) });
    assert!((ahead.as_mu() - 3.0).abs() < 1e-9, "the late ones do not go before it");
    let order: Vec<u64> = std::iter::from_fn(|| line.next(at(3), |_| true, |_| false))
        .map(|it| it.request.0)
        .collect();
    assert_eq!(order, [3, 4, 6, 5, 0, 1, 2], "what a client said counts before what is usual");
}

#[test]
fn passing_by_an_empty_line_is_charged_like_waiting_in_it() {
    let mut line = line(1_000, 1 << 20);
    (0..5).for_each(|_| line.pass(ClassId(1), Tenant(1), Weight::ONE, mu(1.0)));
    join(&mut line, ticket(1, 1, 1));
    join(&mut line, ticket(2, 1, 2));
    assert_eq!(next(&mut line), Some(2), "the other had the latest");
    line.settle(ClassId(1), Tenant(2), mu(1.0), mu(9.0));
    join(&mut line, ticket(3, 1, 2));
    assert_eq!(next(&mut line), Some(1));
}

fn limits(mu_per_min: f64, burst_s: u64) -> Limits {
    let work_per_min = Some(mu(mu_per_min));
    Limits { work_per_min, burst: Duration::from_secs(burst_s), ..Limits::default() }
}

#[test]
fn a_prediction_is_reserved_and_the_truth_is_settled() {
    let mut account = ContractAccount::new(at(0), limits(60.0, 60));
    let remaining = |it: &ContractAccount| it.usage().work_remaining.unwrap().as_mu();
    assert!((remaining(&account) - 63.0).abs() < 1e-6);
    let mut held = account.reserve(at(0), mu(2.0), 100);
    assert_eq!(held.usage, Use::Guaranteed);
    assert!((remaining(&account) - 61.0).abs() < 1e-6);
    account.flow(&mut held, mu(1.5), 80);
    assert!((remaining(&account) - 61.0).abs() < 1e-6, "still within its prediction");
    account.flow(&mut held, mu(2.5), 140);
    assert!((remaining(&account) - 60.5).abs() < 1e-6, "counted as it flows");
    account.settle(held, mu(2.25), 120);
    assert!((remaining(&account) - 60.75).abs() < 1e-6);
    let used = Used { requests: 1, tokens: 120, work: mu(2.25) };
    assert_eq!(account.usage().used[0], used);
}

#[test]
fn beyond_all_limits_is_best_effort_and_takes_nothing() {
    let all = Limits {
        work_per_min: Some(mu(100.0)),
        tokens_per_min: Some(1_000_000),
        requests_per_min: Some(40),
        ..Limits::default()
    };
    let mut account = ContractAccount::new(at(0), all);
    let first = account.reserve(at(0), mu(1.0), 10);
    let second = account.reserve(at(0), mu(1.0), 10);
    let before = account.usage();
    let third = account.reserve(at(0), mu(1.0), 10);
    assert_eq!([first.usage, second.usage], [Use::Guaranteed; 2]);
    assert_eq!(third.usage, Use::BestEffort);
    let over = account.over(mu(1.0), 10);
    assert_eq!((over.limit, over.retry_after), ("requests", Duration::from_millis(1_500)));
    account.settle(third, mu(5.0), 10);
    let after = account.usage();
    assert_eq!(after.work_remaining, before.work_remaining);
    assert_eq!(after.used[2].work, mu(5.0));
    account.cancel(first);
    assert_eq!(account.reserve(at(0), mu(1.0), 10).usage, Use::Guaranteed, "one was never sent");
    account.cancel(second);
}

#[test]
fn the_limit_that_is_named_is_the_one_that_is_short_however_little() {
    let all =
        Limits { work_per_min: Some(mu(60.0)), requests_per_min: Some(1_200), ..Limits::default() };
    let mut account = ContractAccount::new(at(0), all);
    let held = account.reserve(at(0), mu(3.0), 1);
    assert_eq!(held.usage, Use::Guaranteed);
    // What is missing is there in 0.3 s, and clients are told to wait a second at least.
    let over = account.over(mu(0.3), 1);
    assert_eq!((over.limit, over.retry_after), ("mu", Duration::from_secs(1)));
}

#[test]
fn reloading_keeps_the_books_of_those_who_stay() {
    let mut contracts = Contracts::default();
    contracts.reset(at(0), [(Tenant(1), limits(60.0, 0)), (Tenant(2), limits(60.0, 0))]);
    let held = contracts.account(Tenant(1)).reserve(at(0), mu(3.0), 1);
    let lost = contracts.account(Tenant(2)).reserve(at(0), mu(3.0), 1);
    contracts.reset(at(1), [(Tenant(1), limits(120.0, 0))]);
    assert_eq!(contracts.account(Tenant(1)).reserve(at(1), mu(3.0), 1).usage, Use::BestEffort);
    contracts.account(Tenant(1)).settle(held, mu(3.0), 1);
    contracts.account(Tenant(2)).settle(lost, mu(3.0), 1);
    let usages: Vec<u64> = contracts.iter().map(|it| it.1.usage().reserved).collect();
    assert_eq!(usages, [0, 1]);
}

#[test]
fn a_tenant_that_comes_back_while_it_has_requests_in_flight_starts_with_none() {
    let mut contracts = Contracts::default();
    let listed = [(Tenant(1), limits(60.0, 0))];
    contracts.reset(at(0), listed);
    let [old, older] = [(); 2].map(|()| contracts.account(Tenant(1)).reserve(at(0), mu(3.0), 1));
    contracts.reset(at(1), []);
    contracts.reset(at(2), listed);
    let new = contracts.account(Tenant(1)).reserve(at(2), mu(3.0), 1);
    let reserved = |contracts: &Contracts| -> Vec<u64> {
        contracts.iter().map(|it| it.1.usage().reserved).collect()
    };
    assert_eq!(reserved(&contracts), [2, 1], "the shared one, and its own");
    contracts.holder(Tenant(1), &old).settle(old, mu(9.0), 1);
    contracts.holder(Tenant(1), &older).cancel(older);
    assert_eq!(reserved(&contracts), [0, 1]);
    let own = contracts.account(Tenant(1)).usage();
    assert_eq!(own.used[0].requests, 0, "what it used before is not on its new books");
    contracts.holder(Tenant(1), &new).settle(new, mu(3.0), 1);
    assert_eq!((reserved(&contracts), contracts.reserved()), (vec![0, 0], 0));
}

#[test]
fn a_tenant_that_is_named_twice_has_one_account() {
    let mut contracts = Contracts::default();
    let held = contracts.account(Tenant(0)).reserve(at(0), mu(3.0), 1);
    contracts.reset(at(1), [(Tenant(0), limits(60.0, 0)), (Tenant(0), limits(30.0, 0))]);
    assert_eq!((contracts.iter().count(), contracts.reserved()), (1, 1));
    contracts.holder(Tenant(0), &held).cancel(held);
    assert_eq!(contracts.reserved(), 0);
}

#[test]
fn a_full_line_of_absurd_works_is_added_up_and_taken_back() {
    let mut line = Line::new(QueueLimits::default(), &Classes::default());
    let absurd = Work::from_parts(u64::MAX);
    for number in 0..100 {
        let ticket = Ticket { work: absurd, ..ticket(number, 1, number % 3) };
        assert_eq!(line.join(ticket, &mut Vec::new()), Ok(()));
        assert_eq!((line.work(), line.ahead(at(0), &ticket)), (absurd, absurd));
    }
    (0..50).for_each(|it| _ = line.remove(RequestId(it)).unwrap());
    (0..50).for_each(|_| _ = line.next(at(0), |_| true, |_| true).unwrap());
    assert_eq!((line.len(), line.work()), (0, Work::ZERO));
    line.settle(ClassId(1), Tenant(0), absurd, Work::ZERO);
    line.settle(ClassId(1), Tenant(0), Work::ZERO, absurd);
}

fn key(number: u64) -> SliceKey {
    SliceKey(number)
}

#[test]
fn new_sessions_wait_while_the_living_fill_the_memory() {
    let mut gate = Gate::new(GateSettings { kv_share: 0.5, sessions_max: 100 });
    gate.on_sent(at(0), key(1), 1_100);
    gate.on_sent(at(0), key(9), 260);
    assert_eq!(gate.ask(key(2)), GateAnswer::Fresh, "nothing is known of the memory");
    gate.on_room(Some(2_000), Work::ZERO);
    assert_eq!(gate.ask(key(2)), GateAnswer::Wait);
    assert_eq!(gate.ask(key(1)), GateAnswer::Live);
    gate.on_ended(at(1), key(1), 1_200);
    assert_eq!(gate.snapshot().tokens, 860, "half of the first turns are the only ones");
    assert_eq!(gate.ask(key(2)), GateAnswer::Fresh);
    gate.on_sent(at(5), key(1), 1_200);
    gate.on_ended(at(6), key(1), 1_300);
    assert_eq!(gate.ask(key(2)), GateAnswer::Wait);
    assert!(!gate.on_time(at(20)));
    assert!(!gate.on_time(at(35)));
    assert!(gate.on_time(at(36)));
    assert_eq!(gate.ask(key(2)), GateAnswer::Fresh);
    let tokens_max = Some(1_000);
    assert_eq!(gate.snapshot(), GateSnapshot { sessions: 1, tokens: 260, tokens_max });
}

#[test]
fn new_sessions_wait_only_where_the_fleet_could_not_compute_everything_again() {
    let mut gate = Gate::new(GateSettings::default());
    gate.on_room(Some(1_000), Work::from_mu(100.0));
    gate.on_sent(at(0), key(1), 2_000);
    gate.on_arrival(at(0), Work::from_mu(290.0));
    assert_eq!(gate.ask(key(2)), GateAnswer::Fresh, "145 a minute are affordable");
    gate.on_arrival(at(0), Work::from_mu(20.0));
    assert_eq!(gate.ask(key(2)), GateAnswer::Wait);
    gate.on_time(at(60));
    assert_eq!(gate.ask(key(2)), GateAnswer::Fresh, "less has come since");
}

#[test]
fn an_idle_fleet_lets_new_sessions_in_whoever_may_come_back_to_it() {
    let mut gate = Gate::new(GateSettings::default());
    gate.on_room(Some(8_000), Work::ZERO);
    for session in 0..30 {
        gate.on_sent(at(session), key(session), 1_000);
        gate.on_ended(at(session), key(session), 1_000);
    }
    assert!(8_000 < gate.snapshot().tokens, "half of thirty may come back");
    assert_eq!(gate.ask(key(100)), GateAnswer::Fresh, "no work is done");
    gate.on_sent(at(31), key(100), 499);
    assert_eq!(gate.ask(key(101)), GateAnswer::Fresh, "next to nothing");
    gate.on_sent(at(31), key(101), 499);
    assert_eq!(gate.ask(key(102)), GateAnswer::Wait);
}

#[test]
fn a_session_too_large_for_the_fleet_is_let_in_alone() {
    let mut gate = Gate::new(GateSettings::default());
    gate.on_room(Some(1_000), Work::ZERO);
    assert_eq!(gate.ask(key(1)), GateAnswer::Fresh);
    gate.on_sent(at(0), key(1), 1 << 40);
    assert_eq!(gate.ask(key(2)), GateAnswer::Wait);
}

#[test]
fn the_table_of_the_living_is_bounded_and_adds_up() {
    let mut gate = Gate::new(GateSettings { sessions_max: 50, ..GateSettings::default() });
    gate.on_room(Some(1_000_000), Work::ZERO);
    for number in 0..1_000 {
        gate.on_sent(at(number), key(number % 300), 10);
        if number % 3 == 0 {
            gate.on_ended(at(number), key(number % 300), 20);
        }
        assert!(gate.snapshot().sessions <= 50);
    }
    gate.on_time(at(1 << 30));
    (0..300).for_each(|it| gate.on_ended(at(2_000), key(it), 0));
    (0..300).for_each(|it| gate.on_ended(at(2_000), key(it), 0));
    gate.on_time(at(1 << 31));
    assert_eq!(gate.snapshot().tokens, 0);
}
