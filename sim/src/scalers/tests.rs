use super::*;

const LIMITS: Limits = Limits { min: 1, max: 20 };

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

/// Shows a rule the same fleet for some seconds; gives what it says last.
fn play(rule: &mut dyn ScaleRule, from: u64, seconds: u64, view: &FleetView) -> usize {
    (from..from + seconds).filter_map(|it| rule.look(at(it), view)).last().unwrap()
}

fn fleet(ready: usize) -> FleetView {
    let sample = Sample { ready, ..Sample::default() };
    FleetView { sample, knee: 10.0, ..FleetView::default() }
}

#[test]
fn hpa_goes_up_by_the_ratio_and_waits_five_minutes_to_go_down() {
    let mut rule = Hpa::new(Signal::Utilisation { target: 0.5 }, LIMITS);
    let busy = FleetView { utilisation: 1.0, ..fleet(4) };
    assert_eq!(play(&mut rule, 0, 15, &busy), 8);
    let idle = FleetView { utilisation: 0.125, ..fleet(8) };
    assert_eq!(play(&mut rule, 15, 285, &idle), 8);
    assert_eq!(play(&mut rule, 300, 60, &idle), 2);
    let near = FleetView { utilisation: 0.54, ..fleet(2) };
    assert_eq!(play(&mut rule, 360, 600, &near), 2, "a tenth is left alone");
}

#[test]
fn keda_counts_what_waits_and_nothing_else() {
    let mut rule = Hpa::new(Signal::Waiting { per_replica: 5.0 }, LIMITS);
    assert_eq!(play(&mut rule, 0, 15, &FleetView { waiting: 23, ..fleet(2) }), 5);
    assert_eq!(play(&mut rule, 15, 400, &FleetView { at_replicas: 90, ..fleet(5) }), 1);
}

#[test]
fn kpa_panics_at_twice_what_is_ready_and_comes_down_by_halves() {
    let mut rule = Kpa::new(LIMITS);
    assert_eq!(play(&mut rule, 0, 60, &FleetView { at_replicas: 14, ..fleet(2) }), 2);
    assert_eq!(play(&mut rule, 60, 8, &FleetView { at_replicas: 70, ..fleet(2) }), 10);
    assert_eq!(play(&mut rule, 68, 20, &fleet(10)), 10, "nothing is taken away in a panic");
    assert_eq!(play(&mut rule, 90, 120, &fleet(10)), 5);
}

#[test]
fn what_knows_the_future_asks_a_start_up_time_before() {
    let mut mu = vec![1.0; 100];
    mu.extend(vec![5.0; 100]);
    let load = LoadRecord { mu, capacity_mu_per_min: 60.0 };
    let start_up = Duration::from_secs(30);
    let mut rule = Clairvoyant::new(&load, 1.0, start_up, LIMITS);
    assert_eq!(rule.look(at(50), &fleet(1)), Some(1));
    assert_eq!(rule.look(at(71), &fleet(1)), Some(5));
    let mut half = Clairvoyant::new(&load, 0.5, start_up, LIMITS);
    assert_eq!(half.look(at(0), &fleet(1)), Some(2));
}
