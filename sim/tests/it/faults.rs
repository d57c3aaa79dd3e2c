//! What befalls a fleet, and how fast its routers find out: hangs, slowness, long prompts that look
//! like hangs, and requests that bring replicas down. The figures are those of the decision record.

use std::time::Duration;

use cleave_core::brain::{self, SubsetSettings};
use cleave_core::fleet::Reason;
use cleave_core::policy::PolicyKind;
use cleave_sim::traces::{
    HeavyTail, Replay, Request, SharedPrefix, Spread, Stage, Synthetic, Tenant, Workload,
};
use cleave_sim::world::{
    Fault, FaultKind, Quarantined, ReplicaSettings, Unwatched, World, WorldSettings,
};

fn stage(per_second: f64, seconds: u64) -> Vec<Stage> {
    vec![Stage { per_second, lasts: Duration::from_secs(seconds), pause: Duration::ZERO }]
}

/// Chats of `tenants` tenants for a minute, each prompt its own.
fn chats(tenants: u64) -> Workload {
    let synthetic = Synthetic::SharedPrefix(SharedPrefix {
        groups: 200,
        prompts_per_group: None,
        prefix_tokens: 1_000,
        question_tokens: 200,
        output_tokens: 300,
        stages: stage(20.0, 60),
    });
    let mut all = Workload::synthetic(&synthetic, &Replay { seed: 5, ..Replay::default() });
    let mut requests: Vec<Request> = Vec::new();
    while let Some(mut request) = all.take().expect("it is generated") {
        let number = u64::try_from(requests.len()).expect("few");
        request.tenant = Tenant(u32::try_from(number % tenants).expect("few"));
        requests.push(request);
    }
    let requests = Box::new(requests.into_iter().map(Ok));
    Workload::of_requests(requests, &Replay::default()).expect("it is generated")
}

fn settings(faults: &[(u64, Option<u64>, FaultKind)]) -> WorldSettings {
    let fault = |&(at, lasts, kind): &(u64, Option<u64>, FaultKind)| Fault {
        at: Duration::from_secs(at),
        lasts: lasts.map(Duration::from_secs),
        kind,
    };
    WorldSettings {
        replicas: vec![ReplicaSettings::default(); 8],
        brain: brain::Settings { policy: PolicyKind::SESSION, ..brain::Settings::default() },
        faults: faults.iter().map(fault).collect(),
        ..WorldSettings::default()
    }
}

fn play(settings: WorldSettings, mut workload: Workload) -> World {
    let mut world = World::new(settings);
    world.start_measuring();
    world.run(&mut workload, &mut Unwatched).expect("the world comes to its end");
    world
}

#[test]
fn a_hang_is_found_within_five_seconds_and_what_waited_is_served() {
    let hang = FaultKind::Hang { replica: 3 };
    let world = play(settings(&[(10, Some(30), hang)]), chats(20));
    let found = world.put_out().iter().find(|it| it.replica == 3).expect("it is put out");
    assert_eq!(found.reason, Reason::Hung);
    let hung_for = found.hung_for.expect("it hangs");
    assert!(hung_for <= Duration::from_secs(5), "{hung_for:?}");
    assert!(world.put_out().iter().all(|it| it.replica == 3), "no other replica");
    let it = world.measures();
    assert_eq!(it.refused, 0, "nothing is lost that had not begun");
    assert!(it.cut < it.arrived / 50, "{} of {} cut", it.cut, it.arrived);
}

#[test]
fn replicas_that_read_long_prompts_are_never_put_out() {
    let long = Synthetic::HeavyTail(HeavyTail {
        input: Spread::Quantiles(vec![(0.0, 200), (0.8, 400), (0.8, 100_000), (1.0, 100_000)]),
        output: Spread::Fixed(50),
        stages: stage(1.0, 200),
    });
    for batched_tokens_max in [8_192, 131_072] {
        let mut world = settings(&[]);
        for replica in &mut world.replicas {
            // In the second round a prompt is read in one step, and nothing moves meanwhile.
            replica.engine.batched_tokens_max = batched_tokens_max;
        }
        let world = play(world, Workload::synthetic(&long, &Replay::default()));
        assert_eq!(world.put_out(), []);
        assert_eq!(world.measures().finished, world.measures().arrived);
    }
}

#[test]
fn a_slow_replica_is_put_out_against_its_peers() {
    let slow = FaultKind::Slow { replica: 2, factor: 10.0 };
    let world = play(settings(&[(10, Some(40), slow)]), chats(20));
    let found = world.put_out().first().expect("it is put out");
    assert_eq!((found.replica, found.reason), (2, Reason::Slow));
    assert!(world.put_out().iter().all(|it| it.replica == 2), "no other replica");
}

fn poisoned(hangs: bool, tenants: u64, enabled: bool) -> (World, Quarantined) {
    let poison = FaultKind::Poison { tenant: Tenant(7), hangs };
    let mut settings = settings(&[(10, Some(30), poison)]);
    settings.brain.quarantine.enabled = enabled;
    // Quarantine alone: subsets contain the tenant too.
    settings.brain.subsets = SubsetSettings::undivided();
    let world = play(settings, chats(tenants));
    let quarantined = world.quarantined();
    (world, quarantined)
}

/// Plays a tenant of which one request in every few brings its replica down, with and without
/// quarantine.
fn check_contained(hangs: bool, tenants: u64, brought_down_max: u64) {
    let (open, without) = poisoned(hangs, tenants, false);
    let (held, with) = poisoned(hangs, tenants, true);
    assert!(with.brought_down < without.brought_down, "{with:?}, {without:?}");
    assert!(with.brought_down <= brought_down_max, "{with:?}, {without:?}");
    assert!(with.innocent <= 1, "{with:?}");
    let lost = |it: &World| it.measures().refused + it.measures().cut;
    assert!(lost(&held) < lost(&open) + with.guilty, "{} of {}", lost(&held), lost(&open));
}

#[test]
fn a_tenant_whose_requests_crash_replicas_is_contained_and_others_are_served() {
    check_contained(false, 20, 4);
}

#[test]
fn a_tenant_whose_requests_hang_replicas_is_contained_if_it_gives_time_to_find_out() {
    // One in ten seconds: a hang takes five to find, and it takes two to be sure.
    check_contained(true, 200, 5);
}

#[test]
fn a_tenant_that_hangs_replicas_reaches_its_subset_and_one_more() {
    let poison = FaultKind::Poison { tenant: Tenant(7), hangs: true };
    let reached = |subsets: SubsetSettings| {
        let mut settings = settings(&[(10, Some(45), poison)]);
        settings.replicas = vec![ReplicaSettings::default(); 16];
        settings.brain.policy = PolicyKind::PRICED;
        settings.brain.subsets = subsets;
        let world = play(settings, chats(20));
        (world.reached(), world.quarantined().brought_down)
    };
    let (divided, downs) = reached(SubsetSettings::default());
    let (undivided, downs_undivided) = reached(SubsetSettings::undivided());
    assert!(divided <= Some(2 + 1), "{divided:?}");
    assert!(Some(6) <= undivided, "{undivided:?}");
    assert!(2 * downs <= downs_undivided, "{downs}, {downs_undivided}");
}
