//! What a breaker promises: what puts a replica out, and what brings it back.

use super::*;

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

fn up() -> Breaker {
    let mut breaker = Breaker::new(BreakerSettings::default());
    breaker.on_probe(at(0), Probe::Passed);
    breaker
}

fn out(reason: Reason) -> Breaker {
    let mut breaker = up();
    (0..3).for_each(|_| breaker.on_failure(at(10), reason));
    breaker
}

#[test]
fn a_new_replica_waits_for_its_first_sign_of_life() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    breaker.on_probe(at(0), Probe::Failed);
    assert_eq!(breaker.standing(), Standing::Joining);
    assert!(!breaker.admits(at(1)));
    breaker.on_probe(at(2), Probe::Passed);
    assert!(breaker.admits(at(2)));
}

#[test]
fn what_was_on_its_way_does_not_bring_back_one_that_is_gone() {
    let mut gone = out(Reason::Unreachable);
    gone.on_success(at(10));
    assert_eq!(gone.standing(), Standing::Out { reason: Reason::Unreachable, until: at(12) });
    gone.on_sent();
    gone.on_success(at(13));
    assert_eq!(gone.standing(), Standing::Up, "it answered its trial");
    let mut hung = out(Reason::Hung);
    hung.on_success(at(10));
    assert_eq!(hung.standing(), Standing::Up, "it lives after all");
}

#[test]
fn failures_in_a_row_put_it_out_and_a_success_between_does_not() {
    let mut breaker = up();
    breaker.on_failure(at(1), Reason::Unreachable);
    breaker.on_failure(at(1), Reason::Unreachable);
    breaker.on_success(at(1));
    breaker.on_failure(at(1), Reason::Unreachable);
    breaker.on_failure(at(1), Reason::Unreachable);
    assert_eq!(breaker.standing(), Standing::Up);
    breaker.on_failure(at(1), Reason::Unreachable);
    assert_eq!(breaker.standing(), Standing::Out { reason: Reason::Unreachable, until: at(3) });
}

#[test]
fn it_is_asked_after_its_pause_and_clients_requests_are_no_trials() {
    let mut breaker = out(Reason::Failing);
    assert!(!breaker.wants_proof(at(11)) && !breaker.admits_at_need(at(11)));
    assert!(breaker.wants_proof(at(12)) && !breaker.admits(at(12)));
    breaker.on_generated(at(12), at(9), false);
    assert_eq!(breaker.standing().as_str(), "out", "that was before it was put out");
    breaker.on_generated(at(11), at(11), false);
    assert_eq!(breaker.standing().as_str(), "out", "its pause runs on");
    breaker.on_generated(at(13), at(12), false);
    assert_eq!((breaker.standing(), breaker.room()), (Standing::Up, Some(2)));
}

#[test]
fn one_that_cannot_be_asked_is_tried_by_one_request_after_a_pause_that_doubles() {
    let mut breaker = out(Reason::Failing);
    breaker.on_probe(at(11), Probe::Unable);
    assert!(!breaker.admits(at(11)));
    assert!(breaker.admits(at(12)) && !breaker.wants_proof(at(12)));
    breaker.on_sent();
    assert!(!breaker.admits(at(12)), "one trial at a time");
    breaker.on_failure(at(13), Reason::Failing);
    assert!(!breaker.admits_at_need(at(16)));
    breaker.on_probe(at(17), Probe::Unable);
    assert!(breaker.admits(at(17)));
    breaker.on_sent();
    breaker.on_loss(at(17));
    breaker.on_probe(at(17), Probe::Unable);
    assert!(!breaker.admits(at(24)) && breaker.admits(at(25)), "a lost trial is a failed one");
    breaker.on_sent();
    breaker.on_success(at(25));
    assert!(breaker.admits(at(25)));
}

#[test]
fn when_nobody_else_is_there_a_request_may_try_it_and_a_lost_one_costs_no_pause() {
    let mut breaker = out(Reason::Unreachable);
    assert!(!breaker.admits_at_need(at(11)) && breaker.admits_at_need(at(12)));
    breaker.on_sent();
    breaker.on_loss(at(13));
    assert!(breaker.admits_at_need(at(13)) && breaker.wants_proof(at(13)));
    breaker.on_sent();
    breaker.on_failure(at(13), Reason::Unreachable);
    assert!(!breaker.admits_at_need(at(16)) && breaker.admits_at_need(at(17)));
    assert!(!out(Reason::Hung).admits_at_need(at(60)), "that would only hang too");
}

#[test]
fn lost_connections_are_failures_once_a_question_fails_and_never_by_themselves() {
    let mut sound = up();
    for second in 1..100 {
        (0..5).for_each(|_| sound.on_loss(at(second)));
        assert!(sound.wants_proof(at(second)));
        sound.on_generated(at(second), at(second), false);
        assert!(!sound.wants_proof(at(second)));
    }
    sound.on_probe(at(100), Probe::Refused);
    assert_eq!(sound.standing(), Standing::Up, "a token made up for them");
    let mut dead = up();
    dead.on_loss(at(1));
    dead.on_probe(at(1), Probe::Refused);
    assert_eq!(dead.standing().reason(), Some(Reason::Unreachable));
    let mut sick = up();
    sick.on_loss(at(1));
    sick.on_probe(at(1), Probe::Failed);
    assert_eq!(sick.standing(), Standing::Up, "two failures");
    sick.on_loss(at(2));
    sick.on_probe(at(2), Probe::Failed);
    assert_eq!(sick.standing().reason(), Some(Reason::Unreachable));
}

#[test]
fn a_token_brings_it_back_on_probation_and_also_from_a_trial_that_lasts() {
    let mut breaker = out(Reason::Failing);
    breaker.on_generated(at(12), at(12), false);
    breaker.on_failure(at(13), Reason::Failing);
    assert!(!breaker.wants_proof(at(16)) && breaker.wants_proof(at(17)), "out again at once");
    breaker.on_generated(at(17), at(17), false);
    breaker.on_success(at(17));
    breaker.on_failure(at(18), Reason::Failing);
    assert_eq!(breaker.standing(), Standing::Up, "an answer ends it");
    let mut tried = out(Reason::Unreachable);
    tried.on_sent();
    assert!(tried.wants_proof(at(12)));
    tried.on_generated(at(13), at(12), false);
    assert_eq!(tried.standing(), Standing::Up);
}

#[test]
fn the_pause_has_an_end() {
    let mut breaker = up();
    for _ in 0..100 {
        breaker.on_failure(at(0), Reason::Failing);
        breaker.on_sent();
    }
    breaker.on_failure(at(0), Reason::Failing);
    assert!(breaker.wants_proof(at(60)));
}

#[test]
fn one_that_stays_away_is_asked_again_and_again_and_its_next_pause_is_no_longer_for_it() {
    let mut breaker = out(Reason::Unreachable);
    for second in 12..100 {
        assert!(breaker.wants_proof(at(second)));
        breaker.on_probe(at(second), Probe::Refused);
    }
    breaker.on_probe(at(100), Probe::Generated);
    breaker.on_failure(at(101), Reason::Unreachable);
    assert!(!breaker.wants_proof(at(104)) && breaker.wants_proof(at(105)), "the second pause");
}

#[test]
fn when_nobody_else_is_there_a_token_ends_every_pause() {
    let mut breaker = out(Reason::Failing);
    assert!(breaker.may_come_back() && !breaker.wants_proof(at(11)));
    breaker.on_generated(at(11), at(11), true);
    assert_eq!(breaker.standing(), Standing::Up);
    let mut stranger = up();
    stranger.on_probe(at(10), Probe::Stranger);
    stranger.on_generated(at(100), at(100), true);
    assert_eq!(stranger.standing().reason(), Some(Reason::WrongModel));
}

#[test]
fn one_that_does_not_take_our_key_comes_back_by_its_list_of_models_alone() {
    let mut breaker = up();
    breaker.on_probe(at(10), Probe::Unauthorized);
    assert_eq!(breaker.standing().reason(), Some(Reason::Unauthorized));
    breaker.on_generated(at(100), at(100), true);
    assert!(!breaker.admits(at(100)) && !breaker.admits_at_need(at(100)));
    breaker.on_probe(at(101), Probe::Passed);
    assert_eq!(
        (breaker.standing(), breaker.room()),
        (Standing::Up, Some(2)),
        "no request tries it"
    );
}

#[test]
fn one_that_is_not_ready_stays_out_whatever_it_still_answers() {
    let mut breaker = up();
    breaker.on_probe(at(10), Probe::Unready);
    assert_eq!(breaker.standing().reason(), Some(Reason::NotReady));
    breaker.on_success(at(11));
    breaker.on_generated(at(100), at(100), true);
    assert!(!breaker.admits(at(100)) && !breaker.admits_at_need(at(100)));
    breaker.on_probe(at(101), Probe::Passed);
    assert_eq!((breaker.standing(), breaker.room()), (Standing::Up, Some(2)));
}

#[test]
fn one_that_a_request_brought_down_has_no_longer_pause_next_time() {
    let mut breaker = up();
    let mut now = 100;
    for round in 0..10 {
        breaker.on_loss(at(now));
        if round % 2 == 0 {
            breaker.excuse(at(now));
        }
        breaker.on_probe(at(now), Probe::Refused);
        assert_eq!(breaker.standing().as_str(), "out", "connections are refused there");
        breaker.excuse(at(now));
        assert!(!breaker.wants_proof(at(now)) && breaker.wants_proof(at(now + 1)));
        breaker.on_probe(at(now + 1), Probe::Generated);
        assert_eq!(breaker.standing(), Standing::Up);
        now += 3;
    }
    (0..3).for_each(|_| breaker.on_failure(at(now), Reason::Unreachable));
    assert!(!breaker.wants_proof(at(now + 1)) && breaker.wants_proof(at(now + 2)));
}

#[test]
fn an_abandoned_trial_leaves_the_place_free() {
    let mut breaker = out(Reason::Failing);
    breaker.on_sent();
    breaker.on_trial_abandoned(at(20));
    assert!(breaker.admits_at_need(at(20)));
}

#[test]
fn a_passed_probe_ends_the_pause_of_a_lost_replica_but_not_of_a_failing_one() {
    let mut lost = out(Reason::Unreachable);
    lost.on_probe(at(11), Probe::Passed);
    assert!(lost.wants_proof(at(11)));
    let mut failing = out(Reason::Failing);
    failing.on_probe(at(11), Probe::Passed);
    assert!(!failing.wants_proof(at(11)));
}

#[test]
fn a_busy_replica_passes_a_probe_it_misses_while_bytes_come_from_it() {
    let probe = |last_byte_at| Probe::TimedOut { asked_at: at(5), last_byte_at };
    let mut busy = up();
    (0..9).for_each(|_| busy.on_probe(at(10), probe(Some(at(6)))));
    assert_eq!(busy.standing(), Standing::Up);
    for last_byte_at in [None, Some(at(4))] {
        let mut silent = up();
        (0..3).for_each(|_| silent.on_probe(at(10), probe(last_byte_at)));
        assert_eq!(silent.standing().reason(), Some(Reason::Unhealthy));
    }
}

#[test]
fn a_suspect_takes_nothing_new_until_it_gives_a_sign() {
    let mut breaker = up();
    breaker.suspect(Reason::Hung);
    assert_eq!((breaker.standing().as_str(), breaker.admits(at(1))), ("suspect", false));
    breaker.on_sign();
    assert!(breaker.admits(at(1)));
}

#[test]
fn a_hung_one_is_asked_for_a_token_before_it_is_tried() {
    let mut breaker = up();
    breaker.condemn(at(10), Reason::Hung);
    breaker.on_probe(at(11), Probe::Passed);
    assert!(!breaker.admits(at(11)), "hung engines pass health checks");
    assert!(!breaker.wants_proof(at(11)) && breaker.wants_proof(at(12)));
    breaker.on_probe(at(13), Probe::Mute { asked_at: at(12), last_byte_at: Some(at(9)) });
    assert!(!breaker.wants_proof(at(16)) && breaker.wants_proof(at(17)));
    let mut unable = up();
    unable.condemn(at(10), Reason::Hung);
    breaker.on_probe(at(17), Probe::Generated);
    unable.on_probe(at(12), Probe::Unable);
    assert_eq!(breaker.standing(), Standing::Up);
    assert!(unable.admits(at(12)));
}

#[test]
fn a_busy_replica_may_miss_the_request_for_a_token_while_bytes_come_from_it() {
    let mut busy = up();
    busy.on_probe(at(20), Probe::Mute { asked_at: at(10), last_byte_at: Some(at(11)) });
    assert_eq!(busy.standing(), Standing::Up);
    busy.on_probe(at(20), Probe::Mute { asked_at: at(10), last_byte_at: Some(at(9)) });
    assert_eq!(busy.standing().reason(), Some(Reason::Hung));
}

#[test]
fn one_that_comes_back_is_filled_by_a_trickle() {
    let mut breaker = out(Reason::Failing);
    breaker.on_sent();
    let mut rooms = Vec::new();
    for _ in 0..7 {
        breaker.on_success(at(12));
        rooms.push(breaker.room());
    }
    assert_eq!(rooms, [Some(2), Some(4), Some(8), Some(16), Some(32), Some(64), None]);
}

#[test]
fn one_that_flaps_stays_away_longer_each_time() {
    let mut breaker = up();
    let mut now = 100;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        (0..3).for_each(|_| breaker.on_failure(at(now), Reason::Unreachable));
        let back = (now..now + 100).find(|it| breaker.wants_proof(at(*it))).unwrap();
        pauses.push(back - now);
        breaker.on_probe(at(back), Probe::Passed);
        breaker.on_probe(at(back), Probe::Generated);
        now = back + 5;
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
    now += 60;
    (0..3).for_each(|_| breaker.on_failure(at(now), Reason::Unreachable));
    assert!(breaker.wants_proof(at(now + 2)), "up for long, it is forgiven");
}

#[test]
fn a_passed_probe_does_not_help_one_that_flaps() {
    let mut breaker = out(Reason::Unreachable);
    breaker.on_sent();
    breaker.on_success(at(12));
    (0..3).for_each(|_| breaker.on_failure(at(13), Reason::Unreachable));
    breaker.on_probe(at(14), Probe::Passed);
    assert!(!breaker.wants_proof(at(16)) && breaker.wants_proof(at(17)));
}
