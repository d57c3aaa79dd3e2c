//! One message on the stream between two routers. The first byte says what it is. A version is told at the hello and
//! holds for all that follows; a router that knows more than its peer writes as the peer reads.

use crate::domain::RouterId;

use super::codec::{
    Malformed, Reader, write_bytes, write_count, write_hash, write_hashes, write_number, write_text,
};
use super::election::View;
use super::encoding::{encode_all, read_news};
use super::news::News;
use super::tenure::StoreWord;

/// The version that this router writes, and the oldest that it reads.
pub const VERSION: u32 = 5;
pub const VERSION_MIN: u32 = 1;

/// No frame is longer.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// No question or answer is longer.
pub const QUESTION_BYTES_MAX: usize = 1 << 10;
pub const ANSWER_BYTES_MAX: usize = 3 << 18;
const NEWS_MAX: usize = 1 << 16;
const MEMBERS_MAX: usize = 256;
const TEXT_MAX: usize = 256;

const MAGIC: u64 = u64::from_le_bytes(*b"cleavecl");

#[derive(Clone, Debug, PartialEq)]
pub enum PeerFrame {
    Hello(Hello),
    /// Where other routers are, as far as the sender knows.
    Members(Vec<RouterAt>),
    /// What happened in one pool. Numbers grow by one from frame to frame.
    News {
        number: u64,
        pool: u64,
        news: Vec<News>,
    },
    /// A part of all that a router has to tell. It counts when the last part is there, or not at all.
    Whole {
        number: u64,
        pool: u64,
        part: u32,
        is_last: bool,
        news: Vec<News>,
    },
    /// All up to this number was heard, and news up to another were told.
    Heard {
        number: u64,
        told: u64,
    },
    /// Something is missing: tell all of it.
    Resend,
    Goodbye,
    /// What the sender sees of all routers; from version 2 on. From version 3 on with what a store told it.
    View(View),
    /// Asks something that only the peer can answer; from version 4 on.
    Asked {
        number: u64,
        question: Vec<u8>,
    },
    /// Answers it; nothing where there is no answer, or one that is too long.
    Answered {
        number: u64,
        answer: Option<Vec<u8>>,
    },
}

/// How a router introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub version: u32,
    pub version_min: u32,
    /// Another one for every process.
    pub router: RouterId,
    /// Where it can be reached by other routers; empty where it cannot.
    pub address: String,
}

/// A router that another one knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterAt {
    pub router: RouterId,
    pub address: String,
}

impl PeerFrame {
    pub fn encode(&self) -> Vec<u8> {
        let mut into = Vec::new();
        match self {
            Self::Hello(hello) => {
                into.push(0);
                write_hash(&mut into, MAGIC);
                write_number(&mut into, hello.version.into());
                write_number(&mut into, hello.version_min.into());
                write_hash(&mut into, hello.router.0);
                write_text(&mut into, &hello.address, TEXT_MAX);
            }
            Self::Members(members) => {
                into.push(1);
                let told = &members[..members.len().min(MEMBERS_MAX)];
                write_count(&mut into, told.len());
                for it in told {
                    write_hash(&mut into, it.router.0);
                    write_text(&mut into, &it.address, TEXT_MAX);
                }
            }
            Self::News { number, pool, news } => {
                return encode_list(*number, *pool, None, news.len(), &encode_all(news));
            }
            Self::Whole { number, pool, part, is_last, news } => {
                let part = Some((*part, *is_last));
                return encode_list(*number, *pool, part, news.len(), &encode_all(news));
            }
            Self::Heard { number, told } => {
                into.push(4);
                write_number(&mut into, *number);
                write_number(&mut into, *told);
            }
            Self::Resend => into.push(5),
            Self::Goodbye => into.push(6),
            Self::View(View { size, left, sees, store }) => {
                let (word, leader) = match store {
                    StoreWord::Silent => (0, None),
                    StoreWord::Vacant => (1, None),
                    StoreWord::Leader(router) => (2, Some(router)),
                };
                into.push(if word == 0 { 7 } else { 8 });
                write_number(&mut into, (*size).into());
                write_number(&mut into, (*left).into());
                let sees: Vec<u64> = sees.iter().map(|it| it.0).collect();
                write_hashes(&mut into, &sees, MEMBERS_MAX);
                if 0 < word {
                    into.push(word);
                }
                if let Some(RouterId(leader)) = leader {
                    write_hash(&mut into, *leader);
                }
            }
            Self::Asked { number, question } => {
                into.push(9);
                write_number(&mut into, *number);
                write_bytes(&mut into, question, QUESTION_BYTES_MAX);
            }
            Self::Answered { number, answer } => {
                into.push(10);
                write_number(&mut into, *number);
                into.push(answer.is_some().into());
                if let Some(answer) = answer {
                    write_bytes(&mut into, answer, ANSWER_BYTES_MAX);
                }
            }
        }
        into
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let frame = match reader.byte()? {
            0 => Self::Hello(read_hello(&mut reader)?),
            1 => {
                let count = reader.count(MEMBERS_MAX, 9)?;
                let member = |reader: &mut Reader<'_>| {
                    let router = RouterId(reader.hash()?);
                    Ok(RouterAt { router, address: reader.text(TEXT_MAX)? })
                };
                Self::Members((0..count).map(|_| member(&mut reader)).collect::<Result<_, _>>()?)
            }
            kind @ (2 | 3) => {
                let (number, pool) = (reader.number()?, reader.hash()?);
                let part = if kind == 3 { Some((reader.small()?, reader.flag()?)) } else { None };
                let count = reader.count(NEWS_MAX, 1)?;
                let news = (0..count).map(|_| read_news(&mut reader)).collect::<Result<_, _>>()?;
                match part {
                    None => Self::News { number, pool, news },
                    Some((part, is_last)) => Self::Whole { number, pool, part, is_last, news },
                }
            }
            4 => Self::Heard { number: reader.number()?, told: reader.number()? },
            5 => Self::Resend,
            6 => Self::Goodbye,
            kind @ (7 | 8) => {
                let (size, left) = (reader.small()?, reader.small()?);
                let sees = reader.hashes(MEMBERS_MAX)?.into_iter().map(RouterId).collect();
                let store = match kind {
                    7 => StoreWord::Silent,
                    _ => match reader.byte()? {
                        1 => StoreWord::Vacant,
                        2 => StoreWord::Leader(RouterId(reader.hash()?)),
                        other => return Err(Malformed::Unknown(other)),
                    },
                };
                Self::View(View { size, left, sees, store })
            }
            9 => Self::Asked {
                number: reader.number()?,
                question: reader.bytes(QUESTION_BYTES_MAX)?,
            },
            10 => {
                let (number, is_there) = (reader.number()?, reader.flag()?);
                let answer = is_there.then(|| reader.bytes(ANSWER_BYTES_MAX)).transpose()?;
                Self::Answered { number, answer }
            }
            other => return Err(Malformed::Unknown(other)),
        };
        if reader.is_empty() { Ok(frame) } else { Err(Malformed::Rest) }
    }
}

/// Writes a frame of news that are written already; of a whole, with its part and whether that is the last.
pub(super) fn encode_list(
    number: u64,
    pool: u64,
    part: Option<(u32, bool)>,
    count: usize,
    list: &[u8],
) -> Vec<u8> {
    let mut into = Vec::with_capacity(list.len() + 32);
    into.push(if part.is_some() { 3 } else { 2 });
    write_number(&mut into, number);
    write_hash(&mut into, pool);
    if let Some((part, is_last)) = part {
        write_number(&mut into, part.into());
        into.push(is_last.into());
    }
    write_count(&mut into, count);
    into.extend_from_slice(list);
    into
}

fn read_hello(reader: &mut Reader<'_>) -> Result<Hello, Malformed> {
    if reader.hash()? != MAGIC {
        return Err(Malformed::Unknown(0));
    }
    Ok(Hello {
        version: reader.small()?,
        version_min: reader.small()?,
        router: RouterId(reader.hash()?),
        address: reader.text(TEXT_MAX)?,
    })
}
