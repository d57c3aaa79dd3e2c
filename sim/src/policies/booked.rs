//! Rules that weigh what a replica holds of a prompt against the prefill that waits there: what they
//! keep is the same, what they make of it differs. A prompt is charged from when it is sent until its
//! first token, in the rule's own unit.

use std::fmt::Debug;
use std::marker::PhantomData;

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::{Moment, Outline, ReplicaId, RequestId};

use super::ledger::{Ledger, Load};
use super::{Ask, Candidate, Policy};
use cleave_core::policy::Residency;

/// What such a rule knows.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) residency: Residency,
    ledger: Ledger,
}

impl Books {
    /// Adds up what waits for its first token on a replica.
    pub(super) fn waiting(&self, replica: ReplicaId) -> u64 {
        self.ledger.load(replica).prefill
    }
}

/// A rule on such books.
pub(super) trait BookedRule: Debug + Send {
    /// How many times its KV memory a replica is believed to keep.
    const KV_TIMES: u64 = 1;

    /// Says what a prompt weighs where its leading `held` blocks are.
    fn charge(outline: &Outline, held: usize) -> u64;

    /// Picks among candidates for which the residency has been looked up.
    fn pick(books: &Books, ask: &Ask<'_>, among: &[Candidate], chance: &mut Pcg64Mcg) -> usize;
}

/// The policy of a rule.
#[derive(Debug)]
pub(super) struct Booked<R> {
    books: Books,
    rule: PhantomData<R>,
}

impl<R: BookedRule> Default for Booked<R> {
    fn default() -> Self {
        let residency = Residency::of_kv(R::KV_TIMES);
        Self { books: Books { residency, ledger: Ledger::default() }, rule: PhantomData }
    }
}

impl<R: BookedRule> Policy for Booked<R> {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        self.books.residency.look_up(ask, candidates);
        R::pick(&self.books, ask, candidates, chance)
    }

    fn on_sent(&mut self, request: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        let held = self.books.residency.on_sent(ask, to);
        let prefill = R::charge(ask.outline, held);
        self.books.ledger.on_sent(request, to.id, Load { prefill, rest: 0 });
        held
    }

    fn on_first_token(&mut self, _: Moment, request: RequestId, _: ReplicaId) {
        self.books.ledger.on_first_token(request);
    }

    fn on_ended(&mut self, _: Moment, request: RequestId, _: ReplicaId) {
        self.books.ledger.on_ended(request);
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.books.residency.forget(replica);
    }

    fn bytes(&self) -> usize {
        self.books.residency.bytes()
    }
}
