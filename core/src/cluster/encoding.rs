//! How each kind of news is written, and read with the same distrust as all that comes from outside.

use std::sync::Arc;

use crate::domain::{Place, PromptTail, RequestId, RouterId, SliceKey};
use crate::fleet::{Load, Reason, State};

use super::codec::{Malformed, Reader, write_count, write_hash, write_hashes, write_number};
use super::news::{Came, News, Opened, SharedOrder, Stamp, WaitingClass};
use super::{learned, plan};

/// No chain that is told has more blocks; what goes beyond is not told.
const BLOCKS_MAX: usize = 1 << 16;
const SAMPLE_MAX: usize = 256;
const PINNED_MAX: usize = 4096;
const CLASSES_TOLD_MAX: usize = 16;

/// States and reasons by their numbers.
const STATES: [&str; 6] = ["joining", "up", "suspect", "out", "trial", "leaving"];
const REASONS: [Reason; 6] = [
    Reason::Unreachable,
    Reason::Failing,
    Reason::Unhealthy,
    Reason::Hung,
    Reason::Slow,
    Reason::WrongModel,
];

pub(super) fn encode_all(news: &[News]) -> Vec<u8> {
    let mut list = Vec::new();
    for it in news {
        encode_news(it, &mut list);
    }
    list
}

pub(super) fn encode_news(news: &News, into: &mut Vec<u8>) {
    match news {
        News::Opened(it) => {
            into.push(0);
            write_opened(it, into);
        }
        News::Begun { request } => {
            into.push(1);
            write_number(into, request.0);
        }
        News::Progressed { request, left } => {
            into.push(2);
            write_number(into, request.0);
            write_load(left, into);
        }
        News::Ended { request, came } => {
            into.push(if came.is_some() { 4 } else { 3 });
            write_number(into, request.0);
            write_came(came.as_ref(), into);
        }
        News::Home { key, replica } => {
            into.push(5);
            write_hash(into, key.0);
            write_hash(into, replica.0);
        }
        News::Stood { replica, state } => {
            into.push(6);
            write_hash(into, replica.0);
            write_state(state, into);
        }
        News::Ordered { order, stamp } => {
            into.push(7);
            write_order(order, *stamp, into);
        }
        News::Cached { replica, block_tokens, chain } => {
            into.push(8);
            write_hash(into, replica.0);
            write_number(into, (*block_tokens).into());
            write_chain(chain, into);
        }
        News::Sampled { replica, held, sample } => {
            into.push(9);
            write_hash(into, replica.0);
            write_number(into, *held);
            write_hashes(into, sample, SAMPLE_MAX);
        }
        News::AskedChain { replica, parent, depth } => {
            into.push(10);
            write_hash(into, replica.0);
            write_hash(into, *parent);
            write_number(into, (*depth).into());
        }
        News::AskedReplica { replica } => write_kind_of(11, *replica, into),
        News::Forgot => into.push(12),
        News::Assigned(assignment) => {
            into.push(13);
            plan::write_assignment(assignment, into);
        }
        News::Planned { generation } => {
            into.push(14);
            plan::write_generation(*generation, into);
        }
        News::AskedPlan => into.push(15),
        News::Waiting { classes } => {
            into.push(25);
            write_waiting(classes, into);
        }
        News::Found(found) => learned::encode(found, into),
    }
}

pub(super) fn read_news(reader: &mut Reader<'_>) -> Result<News, Malformed> {
    Ok(match reader.byte()? {
        0 => News::Opened(Box::new(read_opened(reader)?)),
        1 => News::Begun { request: RequestId(reader.number()?) },
        2 => {
            let request = RequestId(reader.number()?);
            News::Progressed { request, left: read_load(reader)? }
        }
        3 => News::Ended { request: RequestId(reader.number()?), came: None },
        4 => {
            let request = RequestId(reader.number()?);
            let (prompt_tokens, output_tokens) = (reader.small()?, reader.small()?);
            let (work, tokens) = (reader.number()?, reader.number()?);
            let came = Came { prompt_tokens, output_tokens, work, tokens };
            News::Ended { request, came: Some(came) }
        }
        5 => News::Home { key: SliceKey(reader.hash()?), replica: Place(reader.hash()?) },
        6 => {
            let replica = Place(reader.hash()?);
            let name = *pick(&STATES, reader.byte()?)?;
            let reason = match reader.byte()? {
                0 => None,
                other => Some(*pick(&REASONS, other - 1)?),
            };
            News::Stood { replica, state: State { name, reason } }
        }
        7 => {
            let stamp = Stamp { number: reader.number()?, router: RouterId(reader.hash()?) };
            News::Ordered { order: read_order(reader)?, stamp }
        }
        8 => {
            let (replica, block_tokens) = (Place(reader.hash()?), reader.small()?);
            News::Cached { replica, block_tokens, chain: read_chain(reader)? }
        }
        9 => {
            let (replica, held) = (Place(reader.hash()?), reader.number()?);
            News::Sampled { replica, held, sample: reader.hashes(SAMPLE_MAX)? }
        }
        10 => {
            let (replica, parent) = (Place(reader.hash()?), reader.hash()?);
            News::AskedChain { replica, parent, depth: reader.small()? }
        }
        11 => News::AskedReplica { replica: Place(reader.hash()?) },
        12 => News::Forgot,
        13 => News::Assigned(Arc::new(plan::read_assignment(reader)?)),
        14 => News::Planned { generation: plan::read_generation(reader)? },
        15 => News::AskedPlan,
        25 => {
            let count = reader.count(CLASSES_TOLD_MAX, 2)?;
            let mut classes = Vec::with_capacity(count);
            for _ in 0..count {
                let (work, in_time_ms) = (reader.number()?, reader.small()?);
                classes.push(WaitingClass { work, in_time_ms });
            }
            News::Waiting { classes }
        }
        other => News::Found(learned::read(other, reader)?),
    })
}

fn write_kind_of(kind: u8, replica: Place, into: &mut Vec<u8>) {
    into.push(kind);
    write_hash(into, replica.0);
}

fn write_waiting(classes: &[WaitingClass], into: &mut Vec<u8>) {
    let told = &classes[..classes.len().min(CLASSES_TOLD_MAX)];
    write_count(into, told.len());
    for WaitingClass { work, in_time_ms } in told {
        write_number(into, *work);
        write_number(into, (*in_time_ms).into());
    }
}

fn write_state(state: &State, into: &mut Vec<u8>) {
    into.push(position(&STATES, &state.name));
    into.push(state.reason.map_or(0, |it| 1 + position(&REASONS, &it)));
}

fn write_came(came: Option<&Came>, into: &mut Vec<u8>) {
    let Some(&Came { prompt_tokens, output_tokens, work, tokens }) = came else { return };
    for it in [prompt_tokens.into(), output_tokens.into(), work, tokens] {
        write_number(into, it);
    }
}

fn write_opened(it: &Opened, into: &mut Vec<u8>) {
    write_number(into, it.request.0);
    write_hash(into, it.replica.0);
    write_hash(into, it.key.0);
    write_load(&it.charge, into);
    write_number(into, it.expected_ms.into());
    write_hash(into, it.tenant);
    write_number(into, it.work);
    write_number(into, it.tokens);
    into.push(it.is_first_try.into());
    write_number(into, it.adapter);
    write_number(into, it.block_tokens.into());
    write_chain(&it.chain, into);
}

fn read_opened(reader: &mut Reader<'_>) -> Result<Opened, Malformed> {
    Ok(Opened {
        request: RequestId(reader.number()?),
        replica: Place(reader.hash()?),
        key: SliceKey(reader.hash()?),
        charge: read_load(reader)?,
        expected_ms: reader.small()?,
        tenant: reader.hash()?,
        work: reader.number()?,
        tokens: reader.number()?,
        is_first_try: reader.flag()?,
        adapter: reader.number()?,
        block_tokens: reader.small()?,
        chain: read_chain(reader)?,
    })
}

fn write_load(load: &Load, into: &mut Vec<u8>) {
    let Load { prefill_us, decode_us, kv_tokens, growth_tokens } = load;
    for it in [prefill_us, decode_us, kv_tokens, growth_tokens] {
        write_number(into, *it);
    }
}

fn read_load(reader: &mut Reader<'_>) -> Result<Load, Malformed> {
    Ok(Load {
        prefill_us: reader.number()?,
        decode_us: reader.number()?,
        kv_tokens: reader.number()?,
        growth_tokens: reader.number()?,
    })
}

fn write_chain(chain: &PromptTail, into: &mut Vec<u8>) {
    write_number(into, chain.depth.into());
    if chain.depth != 0 {
        write_hash(into, chain.parent);
    }
    write_hashes(into, &chain.more, BLOCKS_MAX);
}

fn read_chain(reader: &mut Reader<'_>) -> Result<PromptTail, Malformed> {
    let depth = reader.small()?;
    let parent = if depth == 0 { 0 } else { reader.hash()? };
    Ok(PromptTail { parent, depth, more: reader.hashes(BLOCKS_MAX)? })
}

fn write_order(order: &SharedOrder, stamp: Stamp, into: &mut Vec<u8>) {
    write_number(into, stamp.number);
    write_hash(into, stamp.router.0);
    match order {
        SharedOrder::Freeze { is_on } => into.extend([0, u8::from(*is_on)]),
        SharedOrder::Pin { workload, replicas } => {
            into.push(1);
            write_number(into, (*workload).into());
            let places: Vec<u64> = replicas.iter().map(|it| it.0).collect();
            write_hashes(into, &places, PINNED_MAX);
        }
        SharedOrder::Drain { replica, is_on } => {
            into.extend([2, u8::from(*is_on)]);
            write_hash(into, replica.0);
        }
    }
}

fn read_order(reader: &mut Reader<'_>) -> Result<SharedOrder, Malformed> {
    Ok(match reader.byte()? {
        0 => SharedOrder::Freeze { is_on: reader.flag()? },
        1 => {
            let workload = reader.small()?;
            let replicas = reader.hashes(PINNED_MAX)?.into_iter().map(Place).collect();
            SharedOrder::Pin { workload, replicas }
        }
        2 => {
            let is_on = reader.flag()?;
            SharedOrder::Drain { replica: Place(reader.hash()?), is_on }
        }
        other => return Err(Malformed::Unknown(other)),
    })
}

pub(super) fn position<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|it| it == one).and_then(|it| u8::try_from(it).ok()).unwrap_or(0)
}

pub(super) fn pick<T>(all: &[T], number: u8) -> Result<&T, Malformed> {
    all.get(usize::from(number)).ok_or(Malformed::Unknown(number))
}
