//! What a link makes known to its driver, and what went over it.

use super::election::View;
use super::frame::{Hello, RouterAt};
use super::news::News;

/// What a link makes known to its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    /// The peer has introduced itself.
    Met(Hello),
    /// The peer does not speak a version that this router does.
    Unfit(Hello),
    Members(Vec<RouterAt>),
    /// The peer sees these of all routers.
    View(View),
    /// News of one pool. `is_whole`: it is all that the peer has to tell of it, in place of what it told before.
    Heard {
        pool: u64,
        news: Vec<News>,
        is_whole: bool,
    },
    /// The peer must be told everything, by `Link::tell_whole`.
    Lacks,
    /// The peer asks something, to be answered by `Link::answer`.
    Asked {
        number: u64,
        question: Vec<u8>,
    },
    /// The peer answers the question of this number; nothing where it has no answer.
    Answered {
        number: u64,
        answer: Option<Vec<u8>>,
    },
    /// The peer leaves on purpose, and has nothing in flight any more.
    Left,
    /// The peer has fallen silent.
    Silent,
}

/// What went over a link so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTotals {
    pub bytes_told: u64,
    pub bytes_heard: u64,
    /// Frames that were missing.
    pub gaps: u64,
    /// Times that everything was told, or heard.
    pub wholes_told: u64,
    pub wholes_heard: u64,
    /// Times that the peer fell behind.
    pub overruns: u64,
}
