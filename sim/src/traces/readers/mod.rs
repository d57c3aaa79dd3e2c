//! One small file per format. A reader turns lines into requests or sessions and does nothing
//! else: when they are played, how fast and how many is decided above.

mod bailian;
mod burstgpt;
mod chain;
mod lmcache;
mod names;
mod requests;
pub(super) mod servegen;
mod sessions;

pub(super) use bailian::Bailian;
pub(super) use burstgpt::BurstGpt;
pub(super) use lmcache::LmCache;
pub(super) use requests::{RequestLines, lone_request};
pub(super) use sessions::SessionLines;

use std::num::NonZeroU32;

/// Blocks for traces that tell only lengths; any size would do, since nothing is shared.
pub(super) const UNSHARED_BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(512).expect("not zero");

/// Iterates a reader's `read` until the end or the first complaint.
macro_rules! iterate_reader {
    ($reader:ty => $item:ty) => {
        impl Iterator for $reader {
            type Item = Result<$item, super::super::lines::TraceError>;

            fn next(&mut self) -> Option<Self::Item> {
                self.read().transpose()
            }
        }
    };
}
use iterate_reader;
