//! What a hostile driver says that other routers told.

use std::sync::Arc;

use crate::cluster::{
    Came, DeathWitness, FoundOut, News, Opened, SharedOrder, Stamp, WaitingClass,
};
use crate::cost::learned::{Errors, Learned};
use crate::cost::{Hardware, StepTimes};
use crate::domain::{Moment, PromptTail, RequestId, RouterId, SliceKey};
use crate::fleet::{Load, State};
use crate::sharding::{Assignment, Generation, Row, Slice, SliceReason};
use crate::tokens::{LengthsEntry, Lesson};

use super::{Drive, Event};

impl Drive<'_> {
    pub(super) fn heard(&mut self) -> Event {
        let router = RouterId(u64::from(self.byte() % 5));
        match self.byte() % 16 {
            0 | 1 => return Event::Parted { router, is_lost: self.flag() },
            2 => return Event::Elected { leads: self.flag() },
            _ => {}
        }
        let count = self.byte() % 4;
        let news = (0..count).map(|_| self.news()).collect();
        Event::Heard { router, news, is_whole: self.byte().is_multiple_of(4) }
    }

    fn news(&mut self) -> News {
        let (request, replica) = (RequestId(u64::from(self.byte() % 16)), self.place());
        match self.byte() % 20 {
            0..=2 => News::Opened(Box::new(Opened {
                request,
                replica,
                key: SliceKey(u64::from(self.byte() % 8)),
                charge: self.load(),
                expected_ms: self.short(),
                tenant: self.tenant().0,
                work: self.figure(),
                tokens: self.figure(),
                is_first_try: self.flag(),
                adapter: self.figure(),
                block_tokens: self.short(),
                chain: self.chain(),
            })),
            3 => News::Begun { request },
            4 => News::Progressed { request, left: self.load() },
            5 | 6 => News::Ended { request, came: self.flag().then(|| self.came()) },
            7 => News::Home { key: SliceKey(u64::from(self.byte() % 8)), replica },
            8 => {
                let name = self.one_of(&["up", "out", "suspect"]);
                News::Stood { replica, state: State { name, reason: None } }
            }
            9 => {
                let stamp = Stamp { number: self.figure(), router: RouterId(self.figure()) };
                News::Ordered { order: SharedOrder::Drain { replica, is_on: self.flag() }, stamp }
            }
            10 => News::Cached { replica, block_tokens: self.short(), chain: self.chain() },
            11 => {
                let sample = (0..self.byte() % 8).map(|_| self.figure()).collect();
                News::Sampled { replica, held: self.figure(), sample }
            }
            12 => News::AskedChain { replica, parent: self.figure(), depth: self.short() },
            13 => News::Assigned(self.assignment()),
            14 => News::Planned { generation: self.generation() },
            15 if self.flag() => {
                let line =
                    |it: &mut Self| WaitingClass { work: it.figure(), in_time_ms: it.short() };
                News::Waiting { classes: (0..self.byte() % 20).map(|_| line(self)).collect() }
            }
            15 => News::AskedPlan,
            16..=18 => News::Found(self.found()),
            _ if self.flag() => News::Forgot,
            _ => News::AskedReplica { replica },
        }
    }

    fn found(&mut self) -> FoundOut {
        let (key, fingerprint) = (SliceKey(u64::from(self.byte() % 8)), self.figure());
        match self.byte() % 10 {
            8 => FoundOut::Demand {
                offered: self.figure(),
                beyond: self.figure(),
                refused: self.figure(),
            },
            9 => FoundOut::TurnedAway { mark: fingerprint },
            7 => FoundOut::Lengths(Box::new(LengthsEntry {
                name: fingerprint,
                is_model: self.flag(),
                bytes: f64::from(self.short()),
                tokens: f64::from(self.short()),
                answers: vec![(self.byte(), -1.0, 1e30)],
            })),
            0 => FoundOut::Quarantined { key, fingerprint, left_ms: self.short() },
            1 => FoundOut::Acquitted { key, fingerprint },
            2 => {
                let witness =
                    DeathWitness { fingerprint, workload: self.short(), is_new: self.flag() };
                FoundOut::Died { replica: self.place(), witnesses: vec![witness] }
            }
            3 => FoundOut::Restarted { replica: self.place() },
            4 => FoundOut::Taught(Box::new(Lesson {
                key,
                model: self.figure(),
                text: Some((self.short(), self.short())),
                beginning: Some((fingerprint, f64::from(self.short()))),
                output_tokens: Some(self.short()),
            })),
            5 => FoundOut::Spent {
                tenant: self.tenant().0,
                missing: [self.figure(), self.figure(), self.figure()],
            },
            _ => FoundOut::Learned(Box::new(self.learned())),
        }
    }

    fn learned(&mut self) -> Learned {
        let step = StepTimes {
            floor_ms: f64::from(self.short()),
            new_token_ms: f64::from(self.byte()),
            attention_ms: f64::from(self.byte()) - 9.0,
            context_ms: f64::from(self.byte()),
        };
        let given = Hardware::default();
        Learned {
            class: given.class.clone(),
            given: given.step,
            step,
            overhead_ms: f64::from(self.byte()),
            is_used: self.flag(),
            seen: self.figure(),
            changes: self.short(),
            errors: [Errors::default(); 3],
        }
    }

    fn generation(&mut self) -> Generation {
        Generation { incarnation: self.figure(), number: self.figure() }
    }

    fn assignment(&mut self) -> Arc<Assignment> {
        let (generation, mut holders) = (self.generation(), vec![self.place(), self.place()]);
        holders.sort_unstable();
        holders.dedup();
        let previous = self.flag().then(|| self.place());
        let (slice, why) = (Slice { low: 0, high: u64::MAX }, SliceReason::Moved);
        let row = Row { slice, holders, why, since: 0, settled_at: Moment::ZERO, previous };
        Arc::new(Assignment::from_rows(generation, [row]).unwrap_or_default())
    }

    fn chain(&mut self) -> PromptTail {
        let (parent, depth) = (self.figure(), self.one_of(&[0, 0, 16, 32, u32::MAX]));
        let key = u64::from(self.byte() % 8);
        PromptTail {
            parent,
            depth,
            more: (0..self.byte() % 40).map(|it| key ^ u64::from(it)).collect(),
        }
    }

    fn came(&mut self) -> Came {
        let (prompt_tokens, output_tokens) = (self.short(), self.short());
        Came { prompt_tokens, output_tokens, work: self.figure(), tokens: self.figure() }
    }

    fn load(&mut self) -> Load {
        Load {
            prefill_us: self.figure(),
            decode_us: self.figure(),
            kv_tokens: self.figure(),
            growth_tokens: self.figure(),
        }
    }
}
