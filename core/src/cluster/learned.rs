//! How is written what routers found out: which requests bring replicas down, which replicas were started again, how long
//! answers are, what work takes, what tenants used, what engines keep; and what is asked for, for the size of the pool.

use crate::cost::StepTimes;
use crate::cost::learned::{Errors, Learned};
use crate::domain::{Place, SliceKey};
use crate::scaling::Reason as ScaleReason;
use crate::tokens::{LengthsEntry, Lesson};

use super::codec::{
    Malformed, Reader, write_count, write_float, write_hash, write_number, write_text,
};
use super::encoding::{pick, position};
use super::news::{DeathWitness, FoundOut};

const WITNESSES_MAX: usize = 512;
const ROWS_MAX: usize = 1 << 12;
const ROW_BYTES: usize = 24;
const BUCKETS_MAX: usize = 64;
const BUCKET_BYTES: usize = 9;
const CLASS_BYTES_MAX: usize = 256;

/// Writes what was found out, with its kind.
pub(super) fn encode(found: &FoundOut, into: &mut Vec<u8>) {
    match found {
        FoundOut::Quarantined { key, fingerprint, left_ms } => {
            into.push(16);
            write_hash(into, key.0);
            write_hash(into, *fingerprint);
            write_number(into, (*left_ms).into());
        }
        FoundOut::Acquitted { key, fingerprint } => {
            into.push(17);
            write_hash(into, key.0);
            write_hash(into, *fingerprint);
        }
        FoundOut::Died { replica, witnesses } => {
            into.push(18);
            write_hash(into, replica.0);
            let told = &witnesses[..witnesses.len().min(WITNESSES_MAX)];
            write_count(into, told.len());
            for DeathWitness { fingerprint, workload, is_new } in told {
                write_hash(into, *fingerprint);
                write_number(into, (*workload).into());
                into.push((*is_new).into());
            }
        }
        FoundOut::Restarted { replica } => {
            into.push(19);
            write_hash(into, replica.0);
        }
        FoundOut::Taught(lesson) => {
            into.push(20);
            write_lesson(lesson, into);
        }
        FoundOut::Learned(learned) => {
            into.push(21);
            write_learned(learned, into);
        }
        FoundOut::Spent { tenant, missing } => {
            into.push(22);
            write_hash(into, *tenant);
            for it in missing {
                write_number(into, *it);
            }
        }
        FoundOut::Kept { rows } => {
            into.push(23);
            let told = &rows[..rows.len().min(ROWS_MAX)];
            write_count(into, told.len());
            told.iter().flatten().for_each(|it| write_hash(into, *it));
        }
        FoundOut::Lengths(entry) => {
            into.push(24);
            write_lengths(entry, into);
        }
        FoundOut::Demand { offered, beyond, refused } => {
            into.push(26);
            for it in [offered, beyond, refused] {
                write_number(into, *it);
            }
        }
        FoundOut::TurnedAway { mark } => {
            into.push(27);
            write_hash(into, *mark);
        }
        FoundOut::Sized { replicas, reason } => {
            into.push(28);
            write_number(into, (*replicas).into());
            into.push(position(&ScaleReason::ALL, reason));
        }
    }
}

/// Reads what [`encode`] writes.
pub(super) fn read(kind: u8, reader: &mut Reader<'_>) -> Result<FoundOut, Malformed> {
    Ok(match kind {
        16 => {
            let (key, fingerprint) = (SliceKey(reader.hash()?), reader.hash()?);
            FoundOut::Quarantined { key, fingerprint, left_ms: reader.small()? }
        }
        17 => FoundOut::Acquitted { key: SliceKey(reader.hash()?), fingerprint: reader.hash()? },
        18 => {
            let replica = Place(reader.hash()?);
            let count = reader.count(WITNESSES_MAX, 10)?;
            let witness = |reader: &mut Reader<'_>| {
                let (fingerprint, workload) = (reader.hash()?, reader.small()?);
                Ok(DeathWitness { fingerprint, workload, is_new: reader.flag()? })
            };
            let witnesses = (0..count).map(|_| witness(reader)).collect::<Result<_, _>>()?;
            FoundOut::Died { replica, witnesses }
        }
        19 => FoundOut::Restarted { replica: Place(reader.hash()?) },
        20 => FoundOut::Taught(Box::new(read_lesson(reader)?)),
        21 => FoundOut::Learned(Box::new(read_learned(reader)?)),
        22 => {
            let tenant = reader.hash()?;
            FoundOut::Spent {
                tenant,
                missing: [reader.number()?, reader.number()?, reader.number()?],
            }
        }
        23 => {
            let count = reader.count(ROWS_MAX, ROW_BYTES)?;
            let row =
                |reader: &mut Reader<'_>| Ok([reader.hash()?, reader.hash()?, reader.hash()?]);
            FoundOut::Kept { rows: (0..count).map(|_| row(reader)).collect::<Result<_, _>>()? }
        }
        24 => FoundOut::Lengths(Box::new(read_lengths(reader)?)),
        26 => FoundOut::Demand {
            offered: reader.number()?,
            beyond: reader.number()?,
            refused: reader.number()?,
        },
        27 => FoundOut::TurnedAway { mark: reader.hash()? },
        28 => {
            let replicas = reader.small()?;
            FoundOut::Sized { replicas, reason: *pick(&ScaleReason::ALL, reader.byte()?)? }
        }
        other => return Err(Malformed::Unknown(other)),
    })
}

fn write_lesson(lesson: &Lesson, into: &mut Vec<u8>) {
    let Lesson { key, model, text, beginning, output_tokens } = lesson;
    write_hash(into, key.0);
    write_hash(into, *model);
    // One more than a length, so that zero says that there is none.
    let lengths = text.map_or((0, 0), |(bytes, tokens)| (1 + u64::from(bytes), u64::from(tokens)));
    write_number(into, lengths.0);
    write_number(into, lengths.1);
    write_number(into, output_tokens.map_or(0, |it| 1 + u64::from(it)));
    into.push(beginning.is_some().into());
    if let Some((block, tokens)) = beginning {
        write_hash(into, *block);
        write_float(into, *tokens);
    }
}

fn read_lesson(reader: &mut Reader<'_>) -> Result<Lesson, Malformed> {
    let (key, model) = (SliceKey(reader.hash()?), reader.hash()?);
    let length = |one_more: u64| -> Result<Option<u32>, Malformed> {
        let length = one_more.checked_sub(1).map(u32::try_from).transpose();
        length.map_err(|_| Malformed::Long)
    };
    let (bytes, tokens) = (length(reader.number()?)?, reader.small()?);
    let output_tokens = length(reader.number()?)?;
    let beginning =
        if reader.flag()? { Some((reader.hash()?, reader.float()?.max(0.0))) } else { None };
    Ok(Lesson { key, model, text: bytes.map(|it| (it, tokens)), beginning, output_tokens })
}

fn write_lengths(entry: &LengthsEntry, into: &mut Vec<u8>) {
    let LengthsEntry { name, is_model, bytes, tokens, answers } = entry;
    write_hash(into, *name);
    into.push((*is_model).into());
    write_float(into, *bytes);
    write_float(into, *tokens);
    let told = &answers[..answers.len().min(BUCKETS_MAX)];
    write_count(into, told.len());
    for (bucket, answers, tokens) in told {
        into.push(*bucket);
        into.extend(answers.to_bits().to_le_bytes());
        into.extend(tokens.to_bits().to_le_bytes());
    }
}

fn read_lengths(reader: &mut Reader<'_>) -> Result<LengthsEntry, Malformed> {
    let (name, is_model) = (reader.hash()?, reader.flag()?);
    let (bytes, tokens) = (reader.float()?, reader.float()?);
    let count = reader.count(BUCKETS_MAX, BUCKET_BYTES)?;
    let bucket = |reader: &mut Reader<'_>| {
        Ok((reader.byte()?, reader.short_float()?, reader.short_float()?))
    };
    let answers = (0..count).map(|_| bucket(reader)).collect::<Result<_, _>>()?;
    Ok(LengthsEntry { name, is_model, bytes, tokens, answers })
}

fn write_learned(learned: &Learned, into: &mut Vec<u8>) {
    write_text(into, &learned.class, CLASS_BYTES_MAX);
    for times in [learned.given, learned.step] {
        let StepTimes { floor_ms, new_token_ms, attention_ms, context_ms } = times;
        for it in [floor_ms, new_token_ms, attention_ms, context_ms] {
            write_float(into, it);
        }
    }
    write_float(into, learned.overhead_ms);
    into.push(learned.is_used.into());
    write_number(into, learned.seen);
    write_number(into, learned.changes.into());
    for Errors { seen, given, learned } in learned.errors {
        write_number(into, seen.into());
        write_float(into, given);
        write_float(into, learned);
    }
}

fn read_learned(reader: &mut Reader<'_>) -> Result<Learned, Malformed> {
    let times = |reader: &mut Reader<'_>| {
        Ok(StepTimes {
            floor_ms: reader.float()?,
            new_token_ms: reader.float()?,
            attention_ms: reader.float()?,
            context_ms: reader.float()?,
        })
    };
    let errors = |reader: &mut Reader<'_>| {
        let (seen, given) = (reader.small()?, reader.float()?);
        Ok(Errors { seen, given, learned: reader.float()? })
    };
    Ok(Learned {
        class: reader.text(CLASS_BYTES_MAX)?,
        given: times(reader)?,
        step: times(reader)?,
        overhead_ms: reader.float()?,
        is_used: reader.flag()?,
        seen: reader.number()?,
        changes: reader.small()?,
        errors: [errors(reader)?, errors(reader)?, errors(reader)?],
    })
}
