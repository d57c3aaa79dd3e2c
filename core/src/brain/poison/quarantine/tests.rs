//! What quarantine promises: which requests are blamed, which are not, and for how long.

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

fn key(workload: u64, session: u64) -> SliceKey {
    SliceKey((workload << 32) | session)
}

fn quarantine() -> Quarantine {
    Quarantine::new(QuarantineSettings::default())
}

/// Another workload is served well, so that one of them can be told from the other.
fn with_company() -> Quarantine {
    let mut it = quarantine();
    for prompt in 0..40 {
        it.clear(at(0), key(9, prompt), Fingerprint(90_000 + prompt));
    }
    it
}

/// A replica dies with these prompts of workload 1 in flight, each its own session.
fn death(it: &mut Quarantine, second: u64, replica: u32, prompts: &[u64]) {
    let members = prompts.iter().map(|prompt| (key(1, *prompt), Fingerprint(*prompt), false));
    it.on_death(at(second), ReplicaId(replica), members);
    it.on_confirmed(at(second), ReplicaId(replica));
}

fn judged(it: &mut Quarantine, second: u64, prompt: u64) -> Option<QuarantineScope> {
    scope(it.judge(at(second), key(1, prompt), Fingerprint(prompt)))
}

fn scope(judgement: Judgement) -> Option<QuarantineScope> {
    match judgement {
        Judgement::Guilty(scope) => Some(scope),
        Judgement::Innocent | Judgement::Open => None,
    }
}

fn completes(it: &mut Quarantine, second: u64, prompt: u64, times: u32) {
    (0..times).for_each(|_| _ = it.clear(at(second), key(1, prompt), Fingerprint(prompt)));
}

fn arrives(it: &Quarantine, second: u64, workload: u64, prompt: u64) -> Option<QuarantineScope> {
    it.check(at(second), key(workload, prompt), Fingerprint(prompt), false)
}

#[test]
fn one_death_proves_nothing_and_the_second_tells_who_it_was() {
    let mut it = quarantine();
    death(&mut it, 0, 0, &[1, 2, 3, 4]);
    for prompt in 1..=4 {
        assert_eq!(judged(&mut it, 0, prompt), None);
    }
    death(&mut it, 1, 1, &[4, 8, 9]);
    assert_eq!(judged(&mut it, 1, 8), None, "a bystander");
    assert_eq!(judged(&mut it, 1, 4), Some(QuarantineScope::Request));
    assert_eq!(arrives(&it, 2, 1, 4), Some(QuarantineScope::Request));
    assert_eq!(arrives(&it, 2, 1, 1), None);
    assert_eq!(arrives(&it, 601, 1, 4), None, "no request is held for ever");
}

#[test]
fn two_who_were_at_both_deaths_share_the_blame_until_the_third() {
    let mut it = quarantine();
    death(&mut it, 0, 0, &[1, 2, 3]);
    death(&mut it, 1, 1, &[2, 3]);
    assert_eq!((judged(&mut it, 1, 2), judged(&mut it, 1, 3)), (None, None));
    completes(&mut it, 1, 3, 1);
    death(&mut it, 2, 2, &[2]);
    assert_eq!(judged(&mut it, 2, 2), Some(QuarantineScope::Request));
}

#[test]
fn a_rack_without_power_makes_nobody_guilty() {
    let mut it = quarantine();
    let all: Vec<u64> = (1..50).collect();
    for replica in 0..8 {
        death(&mut it, u64::from(replica), replica, &all);
        assert!(all.iter().all(|prompt| judged(&mut it, 8, *prompt).is_none()));
    }
}

#[test]
fn the_same_death_counts_once_and_one_that_was_none_does_not_count() {
    let mut it = quarantine();
    death(&mut it, 0, 0, &[1]);
    death(&mut it, 1, 0, &[1]);
    assert_eq!(judged(&mut it, 1, 1), None, "told twice");
    let member = [(key(1, 1), Fingerprint(1), false)];
    it.on_death(at(10), ReplicaId(1), member.into_iter());
    it.on_survivor(at(10), ReplicaId(1), at(5));
    let open = it.judge(at(10), key(1, 1), Fingerprint(1));
    assert_eq!(open, Judgement::Open, "that may have been on its way");
    it.on_survivor(at(11), ReplicaId(1), at(5));
    it.on_confirmed(at(11), ReplicaId(1));
    assert_eq!(judged(&mut it, 11, 1), None, "a request survived there");
    death(&mut it, 20, 2, &[1]);
    it.on_survivor(at(21), ReplicaId(2), at(21));
    assert_eq!(
        judged(&mut it, 21, 1),
        Some(QuarantineScope::Request),
        "that came after the restart"
    );
}

#[test]
fn it_is_open_for_a_while_whether_broken_connections_were_a_death() {
    let mut it = quarantine();
    death(&mut it, 0, 0, &[1]);
    it.on_death(at(1), ReplicaId(1), [(key(1, 1), Fingerprint(1), false)].into_iter());
    assert_eq!(it.judge(at(1), key(1, 1), Fingerprint(1)), Judgement::Open);
    assert_eq!(it.judge(at(3), key(1, 1), Fingerprint(1)), Judgement::Innocent);
    it.on_confirmed(at(4), ReplicaId(1));
    assert_eq!(judged(&mut it, 4, 1), Some(QuarantineScope::Request), "late, but not too late");
}

#[test]
fn completions_outweigh_deaths_and_end_a_quarantine_that_was_a_mistake() {
    let mut it = quarantine();
    completes(&mut it, 0, 1, 3);
    death(&mut it, 1, 0, &[1]);
    assert_eq!(it.suspicion(at(1), Fingerprint(1)), 0);
    death(&mut it, 2, 1, &[1]);
    assert_eq!((it.suspicion(at(2), Fingerprint(1)), judged(&mut it, 2, 1)), (1, None));
    death(&mut it, 5, 2, &[1]);
    assert_eq!(judged(&mut it, 5, 1), Some(QuarantineScope::Request));
    assert_eq!(arrives(&it, 6, 1, 1), Some(QuarantineScope::Request));
    assert!(it.clear(at(7), key(1, 1), Fingerprint(1)), "a copy that was under way");
    assert_eq!((arrives(&it, 8, 1, 1), it.held()), (None, 0));
}

#[test]
fn a_workload_that_is_served_well_is_not_held_for_a_few_of_its_requests() {
    let mut it = quarantine();
    (0..1000).for_each(|prompt| completes(&mut it, 0, 10_000 + prompt, 1));
    for prompt in 1..=5 {
        death(&mut it, 10 * prompt, 0, &[prompt]);
        death(&mut it, 10 * prompt + 3, 1, &[prompt]);
        assert!(judged(&mut it, 10 * prompt + 3, prompt).is_some());
    }
    assert_eq!(arrives(&it, 60, 1, 99), None);
    assert_eq!(arrives(&it, 60, 1, 3), Some(QuarantineScope::Request));
}

proptest! {
    /// A prompt that completes often is not blamed, whatever crashes and whatever else is in flight.
    #[test]
    fn what_completes_often_is_never_held(
        deaths in prop::collection::vec((0_u32..8, prop::collection::vec(2_u64..6, 0..4), 0_u64..20), 1..60),
    ) {
        let mut it = quarantine();
        let often = u32::try_from(DEATHS_MAX).unwrap() * COMPLETIONS_PER_DEATH;
        completes(&mut it, 0, 1, often);
        let mut second = 0;
        for (replica, others, pause) in deaths {
            second += pause;
            if 600 <= second {
                // What it was served is forgotten by now.
                break;
            }
            let mut there = others.clone();
            there.push(1);
            death(&mut it, second, replica, &there);
            for prompt in others {
                judged(&mut it, second, prompt);
            }
            prop_assert_eq!(judged(&mut it, second, 1), None);
            prop_assert_eq!(it.suspicion(at(second), Fingerprint(1)), 0);
            prop_assert!(!it.requests.contains_key(&Fingerprint(1)));
        }
    }

    /// Alone, two deaths are enough, whatever else was served in between.
    #[test]
    fn who_never_completes_is_held_at_its_second_death(
        others in prop::collection::vec(2_u64..100, 0..20),
        pause in 3_u64..500,
    ) {
        let mut it = quarantine();
        let mut there = others.clone();
        there.push(1);
        death(&mut it, 0, 0, &there);
        for prompt in &others {
            completes(&mut it, 1, *prompt, 1);
        }
        death(&mut it, pause, 1, &there);
        prop_assert!(judged(&mut it, pause, 1).is_some());
    }
}

#[test]
fn connections_that_break_without_a_death_make_nobody_guilty() {
    let mut it = quarantine();
    let member = [(key(1, 1), Fingerprint(1), false)];
    for replica in 0..5 {
        it.on_death(at(10 * u64::from(replica)), ReplicaId(replica), member.into_iter());
        assert_eq!(judged(&mut it, 10 * u64::from(replica), 1), None);
    }
}

/// A prompt of the session brings two replicas down.
fn offend(
    it: &mut Quarantine,
    second: u64,
    session: SliceKey,
    prompt: u64,
) -> Option<QuarantineScope> {
    for replica in 0..2 {
        let member = [(session, Fingerprint(prompt), false)].into_iter();
        it.on_death(at(second + u64::from(replica)), ReplicaId(replica), member);
        it.on_confirmed(at(second + u64::from(replica)), ReplicaId(replica));
    }
    scope(it.judge(at(second + 1), session, Fingerprint(prompt)))
}

#[test]
fn a_workload_that_is_all_there_is_is_held_no_further_than_its_sessions() {
    let mut it = quarantine();
    completes(&mut it, 0, 500, 10);
    for prompt in 1..=10 {
        let second = 10 * prompt;
        let held = offend(&mut it, second, key(1, prompt), prompt);
        assert!(
            matches!(held, Some(QuarantineScope::Request | QuarantineScope::Session)),
            "{held:?}"
        );
        assert_eq!(arrives(&it, second + 2, 1, 1_000 + prompt), None, "a new session");
        assert_eq!(arrives(&it, second + 2, 1, prompt), Some(QuarantineScope::Request));
    }
    assert_eq!(offend(&mut it, 110, key(1, 3), 30), Some(QuarantineScope::Session));
    assert_eq!(it.check(at(115), key(1, 3), Fingerprint(31), true), Some(QuarantineScope::Session));
    // Once others are served too, the workload is one of several.
    (0..20).for_each(|other| _ = it.clear(at(120), key(2, other), Fingerprint(70_000 + other)));
    assert_eq!(arrives(&it, 121, 1, 1_000), Some(QuarantineScope::Workload));
    assert_eq!(arrives(&it, 121, 2, 1_000), None);
}

#[test]
fn while_a_workload_offends_its_only_newcomer_at_a_death_is_blamed_at_once() {
    let newcomer = |prompt: u64| (key(1, prompt), Fingerprint(prompt), true);
    let known = (key(1, 50), Fingerprint(50), false);
    let mut it = quarantine();
    completes(&mut it, 0, 500, 1000);
    let mut judge_death = |second: u64, members: &[(SliceKey, Fingerprint, bool)]| {
        it.on_death(at(second), ReplicaId(7), members.iter().copied());
        it.on_confirmed(at(second), ReplicaId(7));
        let (session, fingerprint, _) = members[0];
        let judged = scope(it.judge(at(second), session, fingerprint));
        it.deaths.clear();
        if second == 10 {
            offend(&mut it, 12, key(1, 1), 1);
            it.deaths.clear();
        }
        judged
    };
    assert_eq!(judge_death(10, &[newcomer(3), known]), None, "the workload has no offence yet");
    assert!(judge_death(20, &[newcomer(4), known]).is_some());
    assert_eq!(judge_death(30, &[known, newcomer(5)]), None, "a bystander");
    assert_eq!(judge_death(40, &[newcomer(5), newcomer(6)]), None, "one of two");
    assert_eq!(judge_death(200, &[newcomer(7), known]), None, "that was long ago");
}

#[test]
fn what_repeats_is_held_in_widening_circles() {
    let mut it = with_company();
    let session = key(1, 77);
    assert_eq!(offend(&mut it, 0, session, 1), Some(QuarantineScope::Request));
    assert_eq!(it.check(at(5), session, Fingerprint(50), true), None);
    assert_eq!(offend(&mut it, 10, session, 2), Some(QuarantineScope::Session));
    assert_eq!(it.check(at(15), session, Fingerprint(50), true), Some(QuarantineScope::Session));
    assert_eq!(offend(&mut it, 20, key(1, 78), 3), Some(QuarantineScope::NewSessions));
    assert_eq!(it.check(at(25), key(1, 90), Fingerprint(50), true), None, "it was there before");
    assert_eq!(
        it.check(at(25), key(1, 90), Fingerprint(50), false),
        Some(QuarantineScope::NewSessions)
    );
    assert_eq!(offend(&mut it, 30, key(1, 90), 4), Some(QuarantineScope::Workload));
    assert_eq!(
        it.check(at(35), key(1, 91), Fingerprint(51), true),
        Some(QuarantineScope::Workload)
    );
    assert_eq!(it.check(at(35), key(2, 91), Fingerprint(51), false), None, "others go on");
    assert_eq!(it.held_total(), 4);
}

#[test]
fn a_workload_that_offended_has_no_second_try_but_its_bystanders_keep_theirs() {
    let mut it = with_company();
    death(&mut it, 0, 0, &[1]);
    death(&mut it, 3, 1, &[1]);
    assert!(judged(&mut it, 3, 1).is_some());
    let other = (key(2, 5), Fingerprint(5), false);
    let mine = (key(1, 6), Fingerprint(6), false);
    it.on_death(at(10), ReplicaId(2), [other, mine].into_iter());
    assert_eq!(it.judge(at(10), other.0, other.1), Judgement::Innocent);
    assert_eq!(it.judge(at(10), mine.0, mine.1), Judgement::Open);
    it.on_confirmed(at(11), ReplicaId(2));
    let guilty = Judgement::Guilty(QuarantineScope::NewSessions);
    assert_eq!(it.judge(at(11), mine.0, mine.1), guilty);
}

#[test]
fn nothing_is_held_when_it_is_switched_off_or_when_nothing_is_known() {
    let settings = QuarantineSettings { enabled: false, ..QuarantineSettings::default() };
    let mut off = Quarantine::new(settings);
    let mut unknown = quarantine();
    for replica in 0..4 {
        death(&mut off, u64::from(replica), replica, &[1]);
        death(&mut unknown, u64::from(replica), replica, &[0]);
    }
    assert_eq!((judged(&mut off, 4, 1), judged(&mut unknown, 4, 0)), (None, None));
}

#[test]
fn however_many_offend_its_memory_stays_within_its_bound() {
    let mut it = quarantine();
    for prompt in 1..5000 {
        let many: Vec<u64> = (prompt..prompt + 3000).collect();
        death(&mut it, 10 * prompt, 0, &many);
        it.hold(at(prompt), key(prompt, prompt), Fingerprint(prompt));
    }
    assert!(it.deaths.len() <= DEATHS_MAX);
    assert!(it.deaths.iter().all(|death| death.members.len() <= WITNESSES_MAX));
    assert!(it.requests.len() <= HELD_MAX && it.sessions.len() <= HELD_MAX);
    assert!(it.workloads.len() <= HELD_MAX);
    let bytes = it.deaths.iter().map(|it| it.members.capacity() * size_of::<Witness>());
    assert!(
        bytes.sum::<usize>() + HELD_MAX * 96 + CompletionCounts::bytes() < Quarantine::bytes_max()
    );
    assert!(Quarantine::bytes_max() < 1 << 20);
}
