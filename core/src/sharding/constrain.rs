//! Gives every piece as many holders as its bounds say: this is where the pieces of a dead replica
//! find new homes. Heaviest first, each to where it fits below the mean, tried in an order that is
//! random but the same on every router. So workloads that are together on one replica are not
//! together on the next, and two workloads share as few replicas as chance allows (shuffle
//! sharding). What hardly weighs anything goes anywhere inside the band: the few replicas below the
//! mean would get every small workload.

use super::assignment::SliceReason;
use super::draft::Draft;
use super::numbers::{at, count, mix};

/// How many seats are tried by chance before the coldest is taken.
const PROBES: u64 = 16;
/// What lifts a replica by less than this part of the band is no matter of balance.
const TRIFLE: f64 = 1.0 / 32.0;

pub(super) fn constrain(draft: &mut Draft<'_>) {
    let holders = |draft: &Draft<'_>, it: u32| draft.pieces[at(it)].holders.len();
    let over = draft.in_order().filter(|it| draft.bounds_of(*it).1 < holders(draft, *it));
    for piece in over.collect::<Vec<_>>() {
        let cap = draft.bounds_of(piece).1;
        while cap < holders(draft, piece) {
            drop_hottest(draft, piece, SliceReason::Ruled);
        }
    }
    retire_members(draft);
    let short_of = draft.in_order().filter(|it| holders(draft, *it) < draft.bounds_of(*it).0);
    let mut short_of: Vec<u32> = short_of.collect();
    let load = |it: &u32| draft.pieces[at(*it)].load;
    short_of.sort_by(|a, b| load(b).total_cmp(&load(a)).then(a.cmp(b)));
    for piece in short_of {
        supply(draft, piece);
    }
}

/// Adds holders up to the floor.
fn supply(draft: &mut Draft<'_>, piece: u32) {
    let floor = draft.bounds_of(piece).0;
    let it = &draft.pieces[at(piece)];
    let missing = floor.saturating_sub(it.holders.len());
    let lift = it.load / (it.capacity + draft.capacity_mean * count(missing)).max(1e-9);
    let mut taken = Vec::with_capacity(missing);
    for _ in 0..missing {
        let Some(seat) = choose(draft, piece, lift, &taken) else { break };
        taken.push(seat);
    }
    if taken.is_empty() {
        return;
    }
    let it = &mut draft.pieces[at(piece)];
    let first = it.note.since == 0;
    let why = it.why.filter(|it| *it != SliceReason::Split);
    it.why = why.or(Some(if first { SliceReason::First } else { SliceReason::Ruled }));
    draft.add_holders(piece, &taken);
    draft.deeds.placed += 1;
}

/// Finds a seat for one more holder of a piece, whose lift will then be `lift`.
pub(super) fn choose(draft: &Draft<'_>, piece: u32, lift: f64, taken: &[u32]) -> Option<u32> {
    let number = draft.group_of(piece);
    let group = &draft.groups[at(number)];
    let low = draft.pieces[at(piece)].slice.low;
    let fewest = draft.fewest_in_zone(piece, taken);
    let fits = |seat: u32| draft.allows(piece, taken, seat);
    let spreads = |seat: u32| fewest.is_none_or(|it| draft.in_zone_of(piece, taken, seat) <= it);
    let seats = u64::try_from(group.seats.len()).unwrap_or(1).max(1);
    let band = draft.band(number);
    let most = group.mean + if lift <= band * TRIFLE { band / 2.0 } else { 0.0 };
    for probe in 0..PROBES {
        let position = usize::try_from(mix(low, probe) % seats).unwrap_or(0);
        let seat = *group.seats.get(position)?;
        let room = draft.seats[at(seat)].used + lift <= most;
        if room && fits(seat) && spreads(seat) {
            return Some(seat);
        }
    }
    let coldest = || draft.coldest(number).filter(|it| fits(*it));
    coldest().find(|it| spreads(*it)).or_else(|| coldest().next())
}

/// Takes a piece from its hottest holder; a zone keeps its last one as long as another has two.
pub(super) fn drop_hottest(draft: &mut Draft<'_>, piece: u32, why: SliceReason) {
    let holders = &draft.pieces[at(piece)].holders;
    let zone = |seat: u32| draft.seats[at(seat)].zone;
    let doubled = |seat: u32| holders.iter().filter(|it| zone(**it) == zone(seat)).count() > 1;
    let any_doubled = holders.iter().any(|it| doubled(*it));
    let candidates = holders.iter().copied().filter(|it| !any_doubled || doubled(*it));
    let used = |seat: u32| draft.seats[at(seat)].used;
    let hottest = candidates.max_by(|a, b| used(*a).total_cmp(&used(*b)).then(a.cmp(b)));
    if let Some(seat) = hottest {
        draft.drop_holder(piece, seat);
        draft.pieces[at(piece)].why = Some(why);
    }
}

/// Takes all pieces of a rule from seats beyond its cap: those that hold least of it go first.
fn retire_members(draft: &mut Draft<'_>) {
    for rule in 1..draft.rules.len() {
        let cap = at(draft.rules[rule].bounds.cap);
        while let Some(members) = &draft.rules[rule].members {
            if members.len() <= cap {
                break;
            }
            let least = members.iter().min_by_key(|it| (it.1, it.0)).map(|it| *it.0);
            let Some(seat) = least else { break };
            let held = draft.seats[at(seat)].pieces.iter().copied();
            let held: Vec<u32> = held.filter(|it| at(draft.pieces[at(*it)].rule) == rule).collect();
            for piece in held {
                draft.drop_holder(piece, seat);
                draft.pieces[at(piece)].why = Some(SliceReason::Ruled);
            }
        }
    }
}
