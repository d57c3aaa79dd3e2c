//! The page on the admin port: its files, and what it is fed with. It has no power of its own: it reads what any
//! reader of the port can, with the same token, and gives the same orders.

mod assets;
mod fleet;
mod live;
mod now;
mod past;
mod requests;
mod sessions;
mod waiting;

pub(super) use assets::{file, index};
pub(super) use live::{LiveHub, live};
pub(super) use requests::requests;
pub(super) use sessions::{session, workloads};
pub(super) use waiting::waiting;
