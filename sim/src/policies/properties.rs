//! What every policy promises, whatever it is told: an answer, the same one for the same seed, and a
//! bound on what it remembers.

use std::time::Duration;

use proptest::prelude::*;
use rand::SeedableRng as _;

use super::*;
use cleave_core::policy::BYTES_MAX;

/// What tables other than the index may take: the blocks in flight of Dynamo, the window of Preble.
const OTHER_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug)]
enum Step {
    Join,
    Leave(prop::sample::Index),
    /// Takes a replica out of the candidates, or puts it back.
    Turn(prop::sample::Index),
    Ask(u64, Outline),
    Answer(prop::sample::Index),
    End(prop::sample::Index),
    Report(prop::sample::Index, Report),
    Wait(u64),
}

fn outline() -> impl Strategy<Value = Outline> {
    let blocks = (0_u64..4, 0_u64..30, 0_u64..1000, 0_u64..30);
    let blocks = blocks.prop_map(|(root, shared, own, own_count)| {
        let shared = (0..shared).map(|it| root * 1000 + it);
        shared.chain((0..own_count).map(|it| 1_000_000 + own * 1000 + it)).collect::<Vec<_>>()
    });
    let sizes = prop_oneof![Just(0_u32), Just(16), Just(512), Just(u32::MAX)];
    let tokens = prop_oneof![Just(0_u32), 1_u32..100_000, Just(u32::MAX)];
    (blocks, sizes, tokens, prop::option::of(0_u32..5000), 0_u64..20).prop_map(
        |(blocks, block_tokens, prompt_tokens, output_tokens, adapter)| Outline {
            blocks: blocks.into(),
            block_tokens,
            prompt_tokens,
            output_tokens,
            adapter,
            kept_at: None,
        },
    )
}

fn report() -> impl Strategy<Value = Report> {
    let tokens =
        || prop::option::of(prop_oneof![Just(0_u64), 0_u64..1_000_000, Just(u64::MAX >> 8)]);
    (0_u32..100, 0_u32..300, tokens(), 0.0..1.2, tokens()).prop_map(
        |(waiting, running, waiting_tokens, kv_used_share, kv_tokens_max)| Report {
            taken_at: Moment::ZERO,
            waiting,
            running,
            waiting_tokens,
            kv_used_share,
            kv_tokens_max,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        1 => Just(Step::Join),
        1 => index().prop_map(Step::Leave),
        2 => index().prop_map(Step::Turn),
        12 => (0_u64..20, outline()).prop_map(|(key, outline)| Step::Ask(key << 31, outline)),
        4 => index().prop_map(Step::Answer),
        4 => index().prop_map(Step::End),
        2 => (index(), report()).prop_map(|(it, report)| Step::Report(it, report)),
        1 => (0_u64..100).prop_map(Step::Wait),
    ]
}

/// A pool around a policy, as a brain would keep it.
struct Pool {
    policy: Box<dyn Policy>,
    chance: Pcg64Mcg,
    replicas: Vec<(Candidate, bool)>,
    joined: u32,
    sent: Vec<(RequestId, ReplicaId)>,
    requests: u64,
    now: Moment,
    chosen: Vec<u32>,
}

impl Pool {
    fn new(name: PolicyKind, seed: u64) -> Self {
        Self {
            policy: name.make(),
            chance: Pcg64Mcg::seed_from_u64(seed),
            replicas: Vec::new(),
            joined: 0,
            sent: Vec::new(),
            requests: 0,
            now: Moment::ZERO,
            chosen: Vec::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        let replica = |it: &prop::sample::Index, pool: &Self| it.index(pool.replicas.len().max(1));
        match step {
            Step::Join => self.join(),
            Step::Leave(it) => self.leave(replica(it, self)),
            Step::Turn(it) => {
                let at = replica(it, self);
                self.replicas.get_mut(at).into_iter().for_each(|it| it.1 = !it.1);
            }
            Step::Ask(key, outline) => self.ask(SliceKey(*key), outline),
            Step::Answer(it) => {
                if let Some((request, replica)) = self.sent.get(it.index(self.sent.len().max(1))) {
                    self.policy.on_first_token(self.now, *request, *replica);
                }
            }
            Step::End(it) => {
                if !self.sent.is_empty() {
                    self.end(it.index(self.sent.len()));
                }
            }
            Step::Report(it, report) => {
                let (at, taken_at) = (replica(it, self), self.now);
                let report = Some(Report { taken_at, ..*report });
                self.replicas.get_mut(at).into_iter().for_each(|it| it.0.report = report);
            }
            Step::Wait(seconds) => self.now = self.now + Duration::from_secs(*seconds),
        }
    }

    fn join(&mut self) {
        let id = ReplicaId(self.joined);
        self.joined += 1;
        let place = Place::of(&id.to_string());
        self.policy.on_joined(id, place);
        let it = Candidate {
            id,
            place,
            weight: 1.0,
            in_flight: 0,
            report: None,
            load: LoadModel::default(),
        };
        self.replicas.push((it, true));
    }

    fn leave(&mut self, at: usize) {
        if at < self.replicas.len() {
            let id = self.replicas[at].0.id;
            while let Some(sent) = self.sent.iter().position(|it| it.1 == id) {
                self.end(sent);
            }
            self.replicas.remove(at);
            self.policy.on_left(id);
        }
    }

    fn end(&mut self, at: usize) {
        let (request, replica) = self.sent.swap_remove(at);
        self.policy.on_ended(self.now, request, replica);
        let there = self.replicas.iter_mut().filter(|it| it.0.id == replica);
        there.for_each(|it| it.0.in_flight -= 1);
    }

    fn ask(&mut self, key: SliceKey, outline: &Outline) {
        let open = self.replicas.iter().filter(|it| it.1);
        let candidates: Vec<Candidate> = open.map(|it| it.0).collect();
        if candidates.is_empty() {
            return;
        }
        let ask = Ask { now: self.now, key, outline, home: None, promise: Promise::default() };
        let at = self.policy.pick(&ask, &candidates, &mut self.chance);
        let to = &candidates[at];
        self.chosen.push(to.id.0);
        let request = RequestId(self.requests);
        self.requests += 1;
        self.policy.on_sent(request, &ask, to);
        self.sent.push((request, to.id));
        let there = self.replicas.iter_mut().filter(|it| it.0.id == to.id);
        there.for_each(|it| it.0.in_flight += 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_policy_answers_with_a_candidate_and_the_same_one_for_the_same_seed(
        steps in prop::collection::vec(step(), 1..150), seed: u64,
    ) {
        for &name in ALL {
            // An answer beyond the candidates would be a panic in `ask`.
            let chosen = |()| {
                let mut pool = Pool::new(name, seed);
                (0..3).for_each(|_| pool.join());
                for step in &steps {
                    pool.take(step);
                }
                pool.chosen
            };
            prop_assert_eq!(chosen(()), chosen(()), "{}", name);
        }
    }
}

#[test]
fn no_policy_remembers_more_than_its_bytes_when_nothing_is_ever_asked_twice_or_ends() {
    for &name in ALL {
        let mut pool = Pool::new(name, 1);
        (0..70).for_each(|_| pool.join());
        for number in 0..3000_u64 {
            let blocks: Vec<u64> = (number * 1000..number * 1000 + 400).collect();
            let (prompt_tokens, output_tokens) = (400 * 16, None);
            let blocks = blocks.into();
            let outline = Outline {
                blocks,
                block_tokens: 16,
                prompt_tokens,
                output_tokens,
                ..Outline::default()
            };
            pool.ask(SliceKey(number << 32), &outline);
            if number % 100 == 99 {
                pool.leave(0);
                pool.join();
            }
        }
        let bytes = pool.policy.bytes();
        assert!(bytes <= BYTES_MAX + OTHER_BYTES_MAX, "{name}: {bytes}");
    }
}
