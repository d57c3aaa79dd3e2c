use super::*;

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

/// A gap that took `ratio` times as long as predicted.
fn gap(ratio: f64) -> Gap {
    Gap { taken_ms: 20.0 * ratio, predicted_ms: 20.0, waiting_ms: 0.0, is_crowded: false }
}

/// Lets each replica write tokens that take its ratio times as long as predicted.
fn fleet(ratios: &[f64], gaps: u32) -> Vec<Pace> {
    let mut paces: Vec<Pace> = ratios.iter().map(|_| Pace::default()).collect();
    for (pace, ratio) in paces.iter_mut().zip(ratios) {
        (0..gaps).for_each(|_| pace.note(at(0), &gap(*ratio)));
    }
    compare(at(0), paces.iter_mut());
    paces
}

fn pace(ratio: f64) -> Pace {
    fleet(&[ratio], 100)[0]
}

#[test]
fn a_slow_replica_is_found_and_the_others_are_left_alone() {
    let paces = fleet(&[1.0, 1.05, 3.0, 0.95], 500);
    assert!((2.0..3.0).contains(&paces[2].factor()), "{}", paces[2].factor());
    for it in [0, 1, 3] {
        assert!((paces[it].factor() - 1.0).abs() < 1e-9);
    }
}

#[test]
fn a_prediction_that_is_wrong_about_all_replicas_alike_corrects_none() {
    assert!(fleet(&[2.0, 2.0, 2.0], 500).iter().all(|it| (it.factor() - 1.0).abs() < 1e-9));
    assert!(
        (fleet(&[2.5], 500)[0].factor() - 1.0).abs() < 1e-9,
        "no other replica to compare with"
    );
}

#[test]
fn one_bad_gap_changes_nothing() {
    let mut paces = fleet(&[1.0, 1.0, 1.0], 200);
    paces[0].note(at(0), &gap(5.0));
    compare(at(0), paces.iter_mut());
    assert!((paces[0].factor() - 1.0).abs() < 1e-9);
}

#[test]
fn what_is_not_confirmed_fades_and_no_factor_leaves_its_bounds() {
    let mut paces = fleet(&[1.0, 1.0, 1e6], 5_000);
    assert!(paces[2].factor() <= FACTOR_MAX);
    assert!(3.0 < paces[2].factor());
    compare(at(600), paces.iter_mut());
    assert!((paces[2].factor() - 1.0).abs() < 0.01);
    paces[0].note(at(600), &gap(0.0));
    paces[0].note(at(600), &Gap { predicted_ms: 0.0, ..gap(1.0) });
    compare(at(600), paces.iter_mut());
    assert!(paces.iter().all(|it| it.factor().is_finite()));
}

#[test]
fn a_prompt_that_delays_one_gap_and_is_counted_in_the_next_is_no_slowness() {
    let mut paces = fleet(&[1.0, 1.0, 1.0], 10);
    for _ in 0..200 {
        paces[0].note(at(0), &Gap { waiting_ms: 80.0, ..gap(5.0) });
        paces[0].note(at(0), &Gap { taken_ms: 20.0, predicted_ms: 100.0, ..gap(1.0) });
    }
    compare(at(0), paces.iter_mut());
    assert!((paces[0].factor() - 1.0).abs() < 1e-9, "{}", paces[0].factor());
    assert!(paces[0].lately().is_some_and(|it| it < 1.5), "{:?}", paces[0].lately());
}

#[test]
fn one_that_lags_behind_its_peers_for_a_while_is_slow() {
    let mut slow = pace(10.0);
    assert!(!slow.is_slow(at(0), 1.0));
    assert!(!slow.is_slow(at(9), 1.0));
    assert!(slow.is_slow(at(10), 1.0));
}

#[test]
fn a_moment_of_slowness_is_forgiven() {
    let mut it = pace(10.0);
    it.is_slow(at(0), 1.0);
    (0..100).for_each(|_| it.note(at(3), &gap(1.0)));
    assert!(!it.is_slow(at(5), 1.0));
    (0..100).for_each(|_| it.note(at(6), &gap(10.0)));
    assert!(!it.is_slow(at(11), 1.0), "it begins anew");
}

#[test]
fn one_that_was_slow_long_ago_is_not_called_slow_for_it() {
    let mut it = pace(10.0);
    assert!(!it.is_slow(at(5), 1.0));
    assert!(!it.is_slow(at(900), 1.0), "nothing was seen of it since");
    it.note(at(900), &gap(1.0));
    assert_eq!(it.lately(), None, "it begins anew");
}

#[test]
fn a_replica_short_of_memory_is_not_called_slow() {
    let mut it = Pace::default();
    (0..100).for_each(|_| it.note(at(0), &Gap { is_crowded: true, ..gap(10.0) }));
    assert_eq!(it.lately(), None);
}

#[test]
fn when_all_are_slow_none_is() {
    let mut ratios: Vec<f64> = (0..5).filter_map(|_| pace(20.0).lately()).collect();
    let median = median(&mut ratios).unwrap();
    assert!(!pace(20.0).is_slow(at(100), median));
}

#[test]
fn few_gaps_and_few_peers_say_nothing() {
    let mut it = Pace::default();
    it.note(at(0), &gap(45.0));
    assert_eq!(it.lately(), None);
    assert_eq!(median(&mut [1.0, 30.0]), None);
    assert_eq!(median(&mut [30.0, 1.0, 2.0]), Some(2.0));
}
