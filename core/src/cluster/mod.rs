//! What routers tell each other, so that several decide as one: every booking with its progress and end, what each
//! prompt adds to a cache, homes of sessions, states of replicas, orders. LLM requests are few and dear, so telling
//! every decision is cheap; totals now and then were tried and leave each router blind to what lies where.
//!
//! `news` is what is told, `codec`, `encoding`, `plan`, `learned` and `frame` how it is written, `link` the protocol with one peer,
//! `election` which router leads, `tenure` what a store has to do with that, `observed` when a lease of another is over that only
//! an object shows, `record` what a store keeps. Nothing here does I/O: the driver carries frames, and the simulator carries the same ones in virtual time. What a brain does with
//! news is in `brain/hearing.rs`. Replicas are named by their place, which is the same in every router.
//!
//! No text of a prompt or an answer is in any message; prompts are named by the hashes of their blocks.

mod codec;
mod election;
mod encoding;
mod frame;
mod learned;
mod link;
mod link_event;
mod news;
mod observed;
mod plan;
mod record;
mod tenure;

pub use codec::Malformed;
pub use election::{ClusterStanding, Election, View};
pub use frame::{
    ANSWER_BYTES_MAX, FRAME_BYTES_MAX, Hello, PeerFrame, QUESTION_BYTES_MAX, RouterAt, VERSION,
    VERSION_MIN,
};
pub use link::Link;
pub use link_event::{LinkEvent, LinkTotals};
pub use news::{Came, DeathWitness, FoundOut, News, Opened, SharedOrder, Stamp, WaitingClass};
pub use observed::{ObservedLease, kept_name, read_kept_name};
pub use record::{read_record, write_record};
pub use tenure::{SeatHolder, StoreAnswer, StoreQuestion, StoreWord, Tenure};

#[cfg(test)]
mod tests;
