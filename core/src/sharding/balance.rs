//! Moves what brings every replica into the band around the mean at the least price. New replicas
//! are filled to the mean from those above it, cold ones are brought up to the band, hot ones down
//! to it. Each step takes the one piece that relieves most per state to be computed again; if none
//! fits, a piece is cut to fit, two are swapped, or a single hot key gets one more holder.

use super::assignment::SliceReason;
use super::draft::Draft;
use super::numbers::{at, count, short};
use super::replicate;

/// How many of the coldest seats are tried before a hot one is left as it is.
const COLDEST_TRIED: usize = 4;
/// What lies this far inside the band is not worth a move.
const TRIFLE: f64 = 1.0 / 32.0;

/// Whether a move is a choice, bounded by budget and cool-down, or a new replica's due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveCause {
    Growth,
    Choice,
}

/// A move that was found good: at most `room` of lift, from a seat to another.
#[derive(Clone, Copy, Debug)]
struct Way {
    from: u32,
    to: u32,
    room: f64,
    cause: MoveCause,
}

pub(super) fn balance(draft: &mut Draft<'_>) {
    for group in 0..short(draft.groups.len()) {
        fill_fresh(draft, group);
        shed_hot(draft, group);
        fill_cold(draft, group);
    }
}

fn fill_fresh(draft: &mut Draft<'_>, group: u32) {
    let fresh: Vec<u32> = draft.coldest(group).filter(|it| draft.seats[at(*it)].fresh).collect();
    let mean = draft.groups[at(group)].mean;
    for seat in fresh {
        fill(draft, group, seat, mean, MoveCause::Growth);
    }
}

fn fill_cold(draft: &mut Draft<'_>, group: u32) {
    let (mean, band) = (draft.groups[at(group)].mean, draft.band(group));
    let cold = draft.coldest(group).take_while(|it| draft.seats[at(*it)].used < mean - band);
    for seat in cold.collect::<Vec<_>>() {
        fill(draft, group, seat, mean - band / 2.0, MoveCause::Choice);
    }
}

/// Takes from the hottest until `seat` has what it should.
fn fill(draft: &mut Draft<'_>, group: u32, seat: u32, target: f64, cause: MoveCause) {
    let (mean, band) = (draft.groups[at(group)].mean, draft.band(group));
    let mut spent: Vec<u32> = vec![seat];
    loop {
        let missing = target - draft.seats[at(seat)].used;
        if missing <= band * TRIFLE {
            return;
        }
        let donor = draft.coldest(group).rev().find(|it| !spent.contains(it));
        let Some(from) = donor else { return };
        let over = draft.seats[at(from)].used - (mean - band / 2.0);
        if draft.seats[at(from)].used <= mean || over <= 0.0 || COLDEST_TRIED * 4 < spent.len() {
            return;
        }
        let way = Way { from, to: seat, room: missing.min(over), cause };
        if !(relocate(draft, way) || cut_and_relocate(draft, way)) {
            spent.push(from);
        }
    }
}

fn shed_hot(draft: &mut Draft<'_>, group: u32) {
    let (mean, band) = (draft.groups[at(group)].mean, draft.band(group));
    let mut stuck: Vec<u32> = Vec::new();
    // Every step takes load off the hottest; the bound is for what floats may do to that.
    for _ in 0..draft.seats.len().saturating_mul(256) {
        let hottest = draft.coldest(group).rev().find(|it| !stuck.contains(it));
        let Some(from) = hottest.filter(|it| mean + band < draft.seats[at(*it)].used) else {
            return;
        };
        if !relieve(draft, group, from) {
            stuck.push(from);
        }
    }
}

/// Takes one step to cool a seat; `false` when nothing helps.
fn relieve(draft: &mut Draft<'_>, group: u32, from: u32) -> bool {
    let (mean, band) = (draft.groups[at(group)].mean, draft.band(group));
    let over = draft.seats[at(from)].used - mean;
    let others = draft.coldest(group).filter(|it| *it != from);
    let cold: Vec<u32> = others.take(COLDEST_TRIED).collect();
    let way = |draft: &Draft<'_>, to: u32| {
        let room = mean + band / 2.0 - draft.seats[at(to)].used;
        Way { from, to, room: over.min(room), cause: MoveCause::Choice }
    };
    let deeds: [fn(&mut Draft<'_>, Way) -> bool; 4] = [relocate, cut_and_relocate, exchange, share];
    deeds.into_iter().any(|deed| cold.iter().any(|to| deed(draft, way(draft, *to))))
}

/// Moves the best piece that fits.
fn relocate(draft: &mut Draft<'_>, way: Way) -> bool {
    let least = way.room.min(draft.band(draft.seats[at(way.from)].group)) * TRIFLE;
    let lifts = |lift: f64| least < lift && lift <= way.room;
    let Some(piece) = best(draft, way, |piece| lifts(draft.pieces[at(piece)].lift())) else {
        return false;
    };
    carry(draft, piece, way);
    true
}

/// Cuts a piece that is too large so that a part of it fits, and moves that.
fn cut_and_relocate(draft: &mut Draft<'_>, way: Way) -> bool {
    let group = draft.seats[at(way.from)].group;
    let crowded = draft.holders_max() * 5 / 4 <= draft.holders_total;
    if way.room < draft.band(group) / 4.0 || crowded {
        return false;
    }
    let too_large = |piece| draft.is_splittable(piece) && way.room < draft.pieces[at(piece)].lift();
    let Some(piece) = best(draft, way, too_large) else { return false };
    let it = &draft.pieces[at(piece)];
    let Some(key) = draft.cut(piece, way.room / it.lift()) else { return false };
    let upper = draft.split(piece, key);
    let fits = |it: &u32| {
        let lift = draft.pieces[at(*it)].lift();
        0.0 < lift && lift <= way.room * 1.01
    };
    let Some(part) = [piece, upper].into_iter().find(fits) else { return false };
    carry(draft, part, way);
    true
}

/// Swaps two pieces whose difference fits.
fn exchange(draft: &mut Draft<'_>, way: Way) -> bool {
    let back = Way { from: way.to, to: way.from, ..way };
    let movable = |draft: &Draft<'_>, way: Way| -> Vec<(f64, u32)> {
        let pieces = draft.seats[at(way.from)].pieces.iter().copied();
        let pieces = pieces.filter(|it| may_go(draft, *it, way));
        pieces.map(|it| (draft.pieces[at(it)].lift(), it)).collect()
    };
    let (ours, theirs) = (movable(draft, way), movable(draft, back));
    let least = draft.band(draft.seats[at(way.from)].group) * TRIFLE;
    let mut found: Option<(f64, u32, u32)> = None;
    for (lift, piece) in &ours {
        for (other_lift, other) in &theirs {
            let gain = lift - other_lift;
            let price = draft.pieces[at(*piece)].price() + draft.pieces[at(*other)].price();
            let good = least < gain && gain <= way.room && price <= draft.budget;
            if good && found.is_none_or(|it| it.0 < gain) {
                found = Some((gain, *piece, *other));
            }
        }
    }
    let Some((_, piece, other)) = found else { return false };
    for (piece, way) in [(piece, way), (other, back)] {
        carry(draft, piece, way);
        draft.pieces[at(piece)].why = Some(SliceReason::Swapped);
    }
    draft.deeds.moved -= 2;
    draft.deeds.swapped += 1;
    true
}

/// Gives the largest piece that cannot be split one more holder.
fn share(draft: &mut Draft<'_>, way: Way) -> bool {
    let group = draft.seats[at(way.from)].group;
    let lift = |it: u32| draft.pieces[at(it)].lift();
    let shared = |it: u32| {
        let holders = count(draft.pieces[at(it)].holders.len());
        lift(it) * holders / (holders + 1.0)
    };
    // What would be taken away again for being cool is not given.
    let least = replicate::cooled(draft, group).max(draft.band(group) / 2.0);
    let pieces = draft.seats[at(way.from)].pieces.iter().copied();
    let hot = pieces.filter(|it| {
        !draft.is_splittable(*it)
            && least < shared(*it)
            && draft.pieces[at(*it)].holders.len() < draft.bounds_of(*it).1
            && draft.allows(*it, &[], way.to)
    });
    let hottest = hot.max_by(|a, b| lift(*a).total_cmp(&lift(*b)).then(a.cmp(b)));
    let Some(piece) = hottest else { return false };
    let added = shared(piece);
    // Not worth it where the new holder would be as hot as the old one is now.
    if draft.seats[at(way.from)].used <= draft.seats[at(way.to)].used + added
        && lift(piece) <= replicate::limit(draft, group)
    {
        return false;
    }
    draft.add_holders(piece, &[way.to]);
    draft.pieces[at(piece)].why = Some(SliceReason::Replicated);
    draft.deeds.replicated += 1;
    true
}

/// Finds the piece that relieves most per state moved.
fn best(draft: &Draft<'_>, way: Way, suits: impl Fn(u32) -> bool) -> Option<u32> {
    // Besides its state every move costs something, or the best would be a thousand tiny ones.
    let overhead = mean_price(draft);
    let pieces = draft.seats[at(way.from)].pieces.iter().copied();
    let pieces = pieces.filter(|it| suits(*it) && may_go(draft, *it, way));
    let score = |piece: u32| {
        let it = &draft.pieces[at(piece)];
        it.lift().min(way.room) / (it.price() + overhead)
    };
    let scored = pieces.map(|it| (score(it), it));
    scored.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))).map(|it| it.1)
}

fn mean_price(draft: &Draft<'_>) -> f64 {
    (draft.state_total() / count(draft.holders_total.max(1))).max(f64::MIN_POSITIVE)
}

fn may_go(draft: &Draft<'_>, piece: u32, way: Way) -> bool {
    let affordable = way.cause == MoveCause::Growth
        || (draft.pieces[at(piece)].price() <= draft.budget && !draft.is_cooling(piece));
    affordable && draft.allows_instead(piece, way.from, way.to)
}

fn carry(draft: &mut Draft<'_>, piece: u32, way: Way) {
    let (why, price) = match way.cause {
        MoveCause::Growth => (SliceReason::Filled, 0.0),
        MoveCause::Choice => (SliceReason::Moved, draft.pieces[at(piece)].price()),
    };
    draft.budget -= price;
    draft.replace_holder(piece, way.from, way.to);
    draft.pieces[at(piece)].why = Some(why);
    match way.cause {
        MoveCause::Growth => draft.deeds.filled += 1,
        MoveCause::Choice => draft.deeds.moved += 1,
    }
}
