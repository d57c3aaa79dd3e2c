//! How an assignment is written: its replicas once, and each slice by their numbers, so that one of a thousand replicas
//! fits into a frame. When slices last moved is not told, because clocks differ; the receiver dates them.

use crate::domain::{Moment, Place};
use crate::sharding::{Assignment, Generation, Held, Row, Slice, SliceReason};

use super::codec::{Malformed, Reader, write_count, write_hash, write_hashes, write_number};
use super::encoding::{pick, position};

const PLACES_MAX: usize = 1 << 14;
const SLICES_MAX: usize = 1 << 16;
/// A slice takes this many bytes at least: where it begins, its reason, its age, its holders and which was before.
const SLICE_BYTES: usize = 12;

pub(super) fn write_generation(generation: Generation, into: &mut Vec<u8>) {
    write_number(into, generation.incarnation);
    write_number(into, generation.number);
}

pub(super) fn read_generation(reader: &mut Reader<'_>) -> Result<Generation, Malformed> {
    Ok(Generation { incarnation: reader.number()?, number: reader.number()? })
}

pub(super) fn write_assignment(assignment: &Assignment, into: &mut Vec<u8>) {
    write_generation(assignment.generation(), into);
    let mut places = assignment.all_holders();
    places.extend(assignment.iter().filter_map(|it| it.previous));
    places.sort_unstable();
    places.dedup();
    let hashes: Vec<u64> = places.iter().map(|it| it.0).collect();
    write_hashes(into, &hashes, PLACES_MAX);
    let number = |place: &Place| places.binary_search(place).unwrap_or(0);
    write_count(into, assignment.len());
    for Held { slice, holders, why, since, previous, .. } in assignment.iter() {
        write_hash(into, slice.low);
        into.push(position(&SliceReason::ALL, &why));
        write_number(into, since);
        write_count(into, holders.len());
        for it in holders {
            write_count(into, number(it));
        }
        write_count(into, previous.map_or(0, |it| 1 + number(&it)));
    }
}

pub(super) fn read_assignment(reader: &mut Reader<'_>) -> Result<Assignment, Malformed> {
    let generation = read_generation(reader)?;
    let places = reader.hashes(PLACES_MAX)?;
    let place = |number: u64| -> Result<Place, Malformed> {
        let found = usize::try_from(number).ok().and_then(|it| places.get(it));
        found.copied().map(Place).ok_or(Malformed::Long)
    };
    let count = reader.count(SLICES_MAX, SLICE_BYTES)?;
    let mut rows: Vec<Row> = Vec::with_capacity(count);
    for _ in 0..count {
        let low = reader.hash()?;
        if let Some(before) = rows.last_mut() {
            before.slice.high = low.checked_sub(1).ok_or(Malformed::Long)?;
        }
        let (why, since) = (*pick(&SliceReason::ALL, reader.byte()?)?, reader.number()?);
        let held = reader.count(places.len(), 1)?;
        let holders = (0..held).map(|_| place(reader.number()?)).collect::<Result<_, _>>()?;
        let previous = match reader.number()? {
            0 => None,
            number => Some(place(number - 1)?),
        };
        let (slice, settled_at) = (Slice { low, high: u64::MAX }, Moment::ZERO);
        rows.push(Row { slice, holders, why, since, settled_at, previous });
    }
    Assignment::from_rows(generation, rows).map_err(|_| Malformed::Flawed)
}
