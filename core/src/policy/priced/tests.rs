//! What prices make of small fleets.

use crate::domain::Outline;

use super::super::PolicyKind;
use super::super::bench::{Bench, prompt};

#[test]
fn a_session_stays_with_its_cache_until_waiting_costs_more_than_computing_again() {
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    bench.serve(&prompt(&[(0, 40)]), 0);
    let next = prompt(&[(0, 40), (50, 2)]);
    assert_eq!(bench.pick(&next), 0);
    // Work in line at home that takes longer than the whole prompt elsewhere.
    let long = bench.send(&prompt(&[(100, 90)]), 0);
    assert_eq!(bench.pick(&next), 1);
    bench.answer(long, 0);
    assert_eq!(bench.pick(&next), 0, "the line is gone, the cache is still there");
}

#[test]
fn on_a_busy_fleet_a_session_waits_for_its_cache_where_it_would_leave_on_an_idle_one() {
    let session = prompt(&[(0, 100)]);
    let home_with_a_line = |busy: bool| {
        let mut bench = Bench::new(PolicyKind::PRICED, 2);
        bench.serve(&session, 0);
        let mut fresh = 0;
        for _ in 0..if busy { 120 } else { 0 } {
            // Each replica reads two prompts of 10,000 tokens a second: two thirds of its time.
            for replica in [0, 0, 1, 1] {
                fresh += 1;
                bench.serve(&prompt(&[(1000 * fresh, 100)]), replica);
            }
            bench.wait(1);
        }
        bench.serve(&session, 0);
        // 14,000 tokens in line take longer than the session's 10,000 elsewhere.
        bench.send(&prompt(&[(900_000, 100)]), 0);
        bench.send(&prompt(&[(901_000, 40)]), 0);
        bench.pick(&session) == 0
    };
    assert!(!home_with_a_line(false));
    assert!(home_with_a_line(true));
}

#[test]
fn an_adapter_goes_where_it_is_loaded_until_that_replica_is_busy() {
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    bench.candidates.iter_mut().for_each(|it| it.load.cost.adapter_ms = 100.0);
    let asked = |adapter| Outline { adapter, ..prompt(&[(7_000, 4)]) };
    for home in [0, 1] {
        bench.serve(&Outline { adapter: 1 + u64::from(home), ..prompt(&[(0, 4)]) }, home);
    }
    assert_eq!((bench.pick(&asked(1)), bench.pick(&asked(2))), (0, 1));
    // A line that takes longer than loading.
    bench.send(&prompt(&[(1_000, 100)]), 0);
    assert_eq!(bench.pick(&asked(1)), 1);
}

#[test]
fn a_busy_fleet_does_not_leave_its_slow_replicas_idle() {
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    bench.candidates[1].load.pace = 2.0;
    for fresh in 0..400 {
        bench.serve(&prompt(&[(1000 * fresh, 100)]), 0);
        bench.wait(u64::from(fresh % 2 == 0));
    }
    assert_eq!(bench.pick(&prompt(&[(950_000, 100)])), 0);
    // With two prompts in line on the fast one the slow one has read it sooner.
    bench.send(&prompt(&[(900_000, 100)]), 0);
    bench.send(&prompt(&[(901_000, 100)]), 0);
    assert_eq!(bench.pick(&prompt(&[(950_000, 100)])), 1);
}

#[test]
fn a_session_leaves_its_replica_only_for_a_gain_that_is_noticed() {
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    let next = prompt(&[(0, 2)]);
    for home in 0..2 {
        // 1,000 tokens ahead are 24 ms, and 3,000 are 73 ms.
        let short = bench.send(&prompt(&[(1000, 10)]), home);
        assert_eq!(bench.pick_from(Some(home), 1, &next), home, "a line that is hardly noticed");
        let long = bench.send(&prompt(&[(2000, 20)]), home);
        assert_eq!(bench.pick_from(Some(home), 1, &next), 1 - home);
        for request in [short, long] {
            bench.answer(request, home);
            bench.end(request, home);
        }
    }
}

#[test]
fn a_new_session_follows_its_lots_on_an_idle_fleet_and_the_price_on_a_busy_one() {
    let tally = |in_flight: [u32; 2]| {
        let mut bench = Bench::new(PolicyKind::PRICED, 2);
        bench.in_flight(&in_flight);
        bench.send(&prompt(&[(1000, 8)]), 0);
        let session = |it: u64| bench.pick_for(super::super::mix(it), &prompt(&[(0, 2)]));
        (0..100).map(session).filter(|it| *it == 0).count()
    };
    assert!((30..70).contains(&tally([0, 0])), "20 ms ahead are not noticed there");
    assert_eq!(tally([20, 20]), 0, "they are where many requests are");
}

#[test]
fn equal_prices_go_by_the_lots_of_the_session() {
    let mut bench = Bench::new(PolicyKind::PRICED, 4);
    let tally = bench.tally(&prompt(&[(0, 4)]), 100);
    assert_eq!(tally.iter().filter(|it| 0 < **it).count(), 1, "{tally:?}");
}

#[test]
fn of_two_cold_replicas_the_less_busy_one_takes_it() {
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    bench.in_flight(&[30, 10]);
    assert_eq!(bench.pick(&prompt(&[(0, 4)])), 1);
    bench.in_flight(&[10, 30]);
    assert_eq!(bench.pick(&prompt(&[(0, 4)])), 0);
}

#[test]
fn a_prompt_that_pauses_many_answers_waits_a_little_to_pause_few_but_not_in_proportion() {
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    bench.in_flight(&[20, 0]);
    bench.candidates[0].load.reading_share = 0.9;
    // A line of 0.5 s on the replica where no answer is written. Twenty answers that pause for
    // 10,000 tokens count for more; those that pause for 100 tokens do not.
    bench.send(&prompt(&[(1000, 150)]), 1);
    assert_eq!(bench.pick(&prompt(&[(0, 100)])), 1);
    assert_eq!(bench.pick(&prompt(&[(0, 1)])), 0);
    // A line of seven seconds more: the longest prompt does not wait for it, though it pauses all
    // twenty for six.
    bench.send(&prompt(&[(3000, 800)]), 1);
    assert_eq!(bench.pick(&prompt(&[(10_000, 750)])), 0);
}

#[test]
fn who_waits_long_already_minds_a_further_second_more() {
    // Sixteen answers would pause; on the other replica there is a line of one second. A prompt of two
    // seconds takes the line, one of eleven seconds takes no more on itself.
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    bench.in_flight(&[16, 0]);
    bench.candidates[0].load.reading_share = 0.85;
    bench.send(&prompt(&[(1000, 235)]), 1);
    assert_eq!(bench.pick(&prompt(&[(0, 380)])), 1);
    assert_eq!(bench.pick(&prompt(&[(0, 1_060)])), 0);
}

#[test]
fn answers_that_are_slow_already_are_spared() {
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    bench.in_flight(&[20, 40]);
    assert_eq!(bench.pick(&prompt(&[(0, 10)])), 0, "fewer would pause there");
    bench.candidates[0].load.reading_share = 0.8;
    assert_eq!(bench.pick(&prompt(&[(0, 10)])), 1);
}

#[test]
fn where_giants_are_rare_they_wait_so_as_not_to_pause_everybody() {
    let giant = prompt(&[(10_000, 750)]);
    let goes_to = |uneven: bool| {
        let mut bench = Bench::new(PolicyKind::PRICED, 2);
        for fresh in 0..200 {
            bench.serve(&prompt(&[(1000 * fresh, if uneven { 1 } else { 100 })]), 0);
        }
        bench.serve(&prompt(&[(900_000, 700)]), 0);
        bench.in_flight(&[20, 0]);
        // A line of seven seconds on the replica where no answer is written.
        bench.send(&prompt(&[(3_000_000, 800)]), 1);
        let asked = Outline { output_tokens: Some(64), ..giant.clone() };
        bench.pick(&asked)
    };
    assert_eq!((goes_to(false), goes_to(true)), (0, 1));
}

#[test]
fn short_answers_mind_a_pause_more_than_long_ones() {
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    bench.in_flight(&[6, 0]);
    bench.send(&prompt(&[(1000, 100)]), 1);
    let asked = |output: u32| Outline { output_tokens: Some(output), ..prompt(&[(0, 60)]) };
    assert_eq!(bench.pick(&asked(20)), 1);
    assert_eq!(bench.pick(&asked(2_000)), 0);
}

#[test]
fn of_two_idle_replicas_the_one_with_room_in_its_cache_takes_a_new_prompt() {
    for full in 0..2 {
        let mut bench = Bench::new(PolicyKind::PRICED, 2);
        bench.report(0, 0, 0.0);
        bench.report(1, 0, 0.0);
        bench.serve(&prompt(&[(0, 1000)]), full);
        assert_eq!(bench.pick(&prompt(&[(5000, 300)])), 1 - full);
    }
}

#[test]
fn what_other_routers_have_there_counts_as_ours_does() {
    let mut bench = Bench::new(PolicyKind::PRICED, 2);
    bench.candidates[0].load.running = 9.0;
    bench.candidates[1].load.running = 2.0;
    assert_eq!(bench.pick(&prompt(&[(0, 4)])), 1);
}
