//! What passes through is what was sent: bodies, events, headers, in both directions, as it comes
//! and no faster than it is taken.

mod answers;
mod flow;
mod headers;
mod requests;
