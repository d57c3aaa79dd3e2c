//! What must always hold of a brain: plain predicates, used by properties, by the simulator, and in
//! debug builds after every event.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::{Moment, ReplicaId, span_of_ms};
use crate::fleet::Load;
use crate::policy::PolicyKind;
use crate::queue::Work;

use super::{Action, Brain};

/// The largest difference between two ways of computing one value.
const ROUNDING: Duration = Duration::from_micros(10);

/// Finds a rule that a brain breaks after an event, or after time passed, that brought these actions.
pub fn broken(brain: &Brain, now: Moment, actions: &[Action]) -> Option<&'static str> {
    let rules: [(&'static str, bool); 10] = [
        ("the ledger is what requests are charged", ledger_matches_requests(brain)),
        ("the ledger is what others told", ledger_matches_peers(brain)),
        ("an account is closed once", accounts_are_closed_once(brain)),
        ("poison knows what is in flight", flights_match_requests(brain)),
        ("contracts hold what requests hold", contracts_match_requests(brain)),
        ("the line is the requests that wait", line_matches_requests(brain)),
        ("no request waits that could go", nobody_waits_in_vain(brain, now)),
        ("a request goes only where it may", sends_are_allowed(brain, actions)),
        ("nothing is sent too late", deadlines_can_be_met(brain, actions)),
        ("suspects go alone", suspects_go_alone(brain, now, actions)),
    ];
    rules.into_iter().find(|it| !it.1).map(|it| it.0)
}

/// What is booked at each replica, in number and in work, is exactly what was sent there and has not
/// ended: to the microsecond and the token.
pub fn ledger_matches_requests(brain: &Brain) -> bool {
    let mut ids: Vec<ReplicaId> = Vec::with_capacity(brain.fleet.iter().count());
    ids.extend(brain.fleet.iter().map(|it| it.id));
    let mut sums = vec![(0, 0, Load::default()); ids.len()];
    for (_, booking) in brain.books.iter() {
        let Ok(at) = ids.binary_search(&booking.replica) else { return false };
        let (waiting, answering, sum) = &mut sums[at];
        *(if booking.account.is_read { answering } else { waiting }) += 1;
        *sum += booking.account.charge;
    }
    brain.fleet.iter().zip(sums).all(|(replica, (waiting, answering, sum))| {
        let there = replica.ledger.elsewhere().counts();
        replica.sent.in_flight() == waiting + answering
            && replica.ledger.counts() == (waiting + there.0, answering + there.1)
            && replica.ledger.own_load() == sum
    })
}

/// What other routers are taken to have booked at each replica is what they told of and did not end.
pub fn ledger_matches_peers(brain: &Brain) -> bool {
    let mut sums: BTreeMap<ReplicaId, (u32, u32, Load)> = BTreeMap::new();
    for it in brain.peers.bookings() {
        let (waiting, answering, sum) = sums.entry(it.replica).or_default();
        *(if it.is_read { answering } else { waiting }) += 1;
        *sum += it.charge;
    }
    brain.fleet.iter().all(|replica| {
        let (waiting, answering, sum) = sums.get(&replica.id).copied().unwrap_or_default();
        replica.ledger.elsewhere().counts() == (waiting, answering)
            && replica.ledger.elsewhere().load() == sum
    })
}

/// Every account that was opened is open, or was closed once.
pub fn accounts_are_closed_once(brain: &Brain) -> bool {
    brain.books.is_sound()
}

/// What poison takes to be in flight is what the books say is.
pub fn flights_match_requests(brain: &Brain) -> bool {
    brain.poison.matches(brain.books.iter())
}

/// What contracts hold in reserve is what requests that wait or are in flight hold, whatever became of their
/// tenants.
pub fn contracts_match_requests(brain: &Brain) -> bool {
    let in_flight =
        brain.books.iter().map(|it| it.1).chain(brain.poison.hold.iter().map(|it| &it.booking));
    let sent = in_flight.filter(|it| it.estimate.is_held()).count();
    let (reserved, waiting) = brain.admission.reserved();
    Some(reserved) == u64::try_from(sent + waiting).ok()
}

/// Nothing is left: all that came was answered, and every book is closed.
pub fn books_are_empty(brain: &Brain) -> bool {
    let is_idle = brain.fleet.iter().all(|it| {
        it.sent.in_flight() == 0
            && it.ledger.counts() == it.ledger.elsewhere().counts()
            && it.ledger.own_load() == Load::default()
    });
    let nobody_waits = brain.admission.waiting.line().is_empty() && brain.poison.hold.is_empty();
    let line = brain.admission.waiting.line();
    let is_clear = line.work() == Work::ZERO && line.bytes() == 0;
    let settled = brain.admission.reserved().0 == 0 && contracts_match_requests(brain);
    brain.books.len() == 0 && is_idle && nobody_waits && is_clear && settled
}

/// Nothing goes to a replica that is absent or leaving, or where the request has been already.
pub fn sends_are_allowed(brain: &Brain, actions: &[Action]) -> bool {
    actions.iter().all(|action| match action {
        Action::Send { request, replica } => {
            let open = brain.fleet.get(*replica).is_some_and(|it| !it.leaving);
            let fresh =
                brain.books.get(*request).is_some_and(|it| !it.past.tried.contains(replica));
            open && fresh
        }
        Action::Refuse { request, .. } => brain.books.get(*request).is_none(),
        Action::Release { replica } => brain.fleet.get(*replica).is_none(),
        Action::GiveUp { request, replica } => {
            brain.books.get(*request).is_some_and(|it| it.replica == *replica)
        }
        Action::Ask { replica, .. } => brain.fleet.get(*replica).is_some(),
    })
}

/// No request waits while there is room for it.
pub fn nobody_waits_in_vain(brain: &Brain, now: Moment) -> bool {
    !brain.holds_in_vain(now)
}

/// The line holds exactly the requests that wait, and none of them, nor of the suspects that wait, is
/// in flight.
pub fn line_matches_requests(brain: &Brain) -> bool {
    let waiting = &brain.admission.waiting;
    let held = brain.poison.hold.iter().map(|it| it.request);
    let mut all = waiting.requests().map(|it| it.0).chain(held);
    waiting.is_sound() && all.all(|it| brain.books.get(it).is_none())
}

/// Nothing is sent that by prediction is too late already, as far as the policy predicts.
pub fn deadlines_can_be_met(brain: &Brain, actions: &[Action]) -> bool {
    let sent = actions.iter().filter_map(|it| it.verdict()?.1.is_ok().then_some(it.verdict()?.0));
    let mut bookings = sent.filter_map(|it| brain.books.get(it));
    brain.settings.policy != PolicyKind::PRICED
        || bookings.all(|it| {
            let taken = span_of_ms(it.account.ttft_ms);
            let by = it.estimate.due.first_token_by;
            by.is_none_or(|by| it.account.sent_at + taken <= by + ROUNDING)
        })
}

/// A request that was there when a replica went down, and was not served since, is sent only while no
/// other copy of it is in flight.
pub fn suspects_go_alone(brain: &Brain, now: Moment, actions: &[Action]) -> bool {
    let sent = actions.iter().filter_map(|it| it.verdict()?.1.is_ok().then_some(it.verdict()?.0));
    let mut bookings = sent.filter_map(|it| brain.books.get(it));
    bookings.all(|it| !brain.poison.has_company(now, it.fingerprint))
}
