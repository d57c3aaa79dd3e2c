//! What a request may claim, as its driver found out: its tenant, the class it asks for as far as
//! it may, and its deadline. The default claims nothing.

use crate::domain::Moment;

use super::class::{ClassId, Weight};
use super::line::Tenant;

/// The tenant of a request, and what was asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub tenant: Tenant,
    /// The tenant's share among those of its class.
    pub weight: Weight,
    /// The default class unless given.
    pub class: Option<ClassId>,
    /// When it must have been sent to a replica.
    pub sent_by: Option<Moment>,
    /// When its first token must be there.
    pub first_token_by: Option<Moment>,
    /// When all of its answer must be there.
    pub done_by: Option<Moment>,
    /// What it holds in memory while it waits.
    pub bytes: usize,
}

impl Default for Claim {
    fn default() -> Self {
        Self {
            tenant: Tenant::default(),
            weight: Weight::ONE,
            class: None,
            sent_by: None,
            first_token_by: None,
            done_by: None,
            bytes: 0,
        }
    }
}
