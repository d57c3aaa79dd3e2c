//! Third phase: seats for exclusive rules. Such a rule and the seats it has form a group of their
//! own; all other pieces leave these seats, and its own pieces leave all others. Seats it has
//! already are kept, others are taken in rendezvous order, so that two routers take the same.

use super::assignment::SliceReason;
use super::draft::{Draft, Group};
use super::numbers::{at, rendezvous, short};

/// Forms the groups, and measures the mean of each.
pub(super) fn reserve(draft: &mut Draft<'_>) {
    let mut free = draft.seats.len();
    // Those without a rule must be able to stay somewhere.
    let keep = at(draft.settings.bounds.floor.max(1)).min(free);
    for rule in 1..draft.rules.len() {
        let wanted = at(draft.rules[rule].bounds.floor.max(1));
        if !draft.rules[rule].exclusive || free < keep + wanted {
            continue;
        }
        free -= wanted;
        let group = short(draft.groups.len());
        draft.groups.push(Group::default());
        draft.rules[rule].group = group;
        for seat in chosen(draft, short(rule), wanted) {
            draft.seats[at(seat)].group = group;
        }
    }
    if 1 < draft.groups.len() {
        separate(draft);
    }
    for (number, seat) in draft.seats.iter().enumerate() {
        draft.groups[at(seat.group)].seats.push(short(number));
    }
    measure(draft);
}

/// Picks the seats of a rule: those that hold most of it, then the next in rendezvous order.
fn chosen(draft: &Draft<'_>, rule: u32, wanted: usize) -> Vec<u32> {
    let mut held = vec![0.0; draft.seats.len()];
    let mut low = u64::MAX;
    for piece in draft.pieces.iter().filter(|it| it.alive && it.rule == rule) {
        low = low.min(piece.slice.low);
        piece.holders.iter().for_each(|it| held[at(*it)] += piece.lift().max(f64::MIN_POSITIVE));
    }
    let free = draft.seats.iter().enumerate().filter(|it| it.1.group == 0);
    let mut seats: Vec<(f64, f64, u32)> = free
        .map(|(number, it)| (held[number], rendezvous(low, it.place.0, it.capacity), short(number)))
        .collect();
    seats.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    seats.truncate(wanted);
    seats.into_iter().map(|it| it.2).collect()
}

/// Takes pieces from seats of other groups.
fn separate(draft: &mut Draft<'_>) {
    let pieces: Vec<u32> = draft.in_order().collect();
    for piece in pieces {
        let group = draft.group_of(piece);
        for seat in draft.pieces[at(piece)].holders.clone() {
            if draft.seats[at(seat)].group != group {
                draft.pieces[at(piece)].note.previous = Some(draft.seats[at(seat)].place);
                draft.pieces[at(piece)].why = Some(SliceReason::Ruled);
                draft.drop_holder(piece, seat);
            }
        }
    }
}

fn measure(draft: &mut Draft<'_>) {
    let mut loads = vec![0.0; draft.groups.len()];
    for piece in draft.pieces.iter().filter(|it| it.alive) {
        loads[at(draft.rules[at(piece.rule)].group)] += piece.load;
    }
    for (group, load) in draft.groups.iter_mut().zip(loads) {
        let seats = group.seats.iter().map(|it| &draft.seats[at(*it)]);
        let capacity: f64 = seats.clone().map(|it| it.capacity).sum();
        let mut zones: Vec<u32> = seats.map(|it| it.zone).collect();
        zones.sort_unstable();
        zones.dedup();
        group.zones = zones.len();
        group.mean = if 0.0 < capacity { load / capacity } else { 0.0 };
    }
}
