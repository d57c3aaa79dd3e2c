//! What of a body goes out to an engine otherwise than it came: a model that goes by another name, fields
//! that would steer the engine, and the salt that keeps a tenant's prompts apart in its cache. Where
//! tenants are kept apart and the router cannot see to it, nothing goes out at all.

use cleave_core::protocol::{Allowed, ApiPath, Edit, Effect, Peek, Salting, Steered, quoted};

use super::intake::BodyView;
use super::rescue::ServeError;
use super::salts::{Salt, Salts};
use super::settings::{CacheScope, Passing, PoolSettings};
use super::tenants::Identity;

/// What a pool lets pass, and from which clients.
pub(super) struct Outgoing {
    apart: bool,
    path: ApiPath,
    pub(super) passing: Passing,
    salt: Option<Salt>,
}

impl Outgoing {
    /// Looks at a request for a pool; refuses one whose tenant could not be kept apart as the pool
    /// demands.
    pub(super) fn new(
        pool: &PoolSettings,
        path: ApiPath,
        taken: BodyView<'_>,
        found: &Peek<'_>,
        (salts, whose): (&Salts, Identity<'_>),
    ) -> Result<Self, ServeError> {
        let apart = pool.cache == CacheScope::PerTenant;
        if apart && !can_keep_apart(path, taken) {
            return Err(ServeError::NotApart);
        }
        let passing = pool.passing;
        // Nothing of the client's choice passes as it is where tenants are apart.
        let allowed = if apart { Allowed::default() } else { passing.fields };
        let mut chosen = found.chosen_salts(allowed).peekable();
        let salted = apart || chosen.peek().is_some();
        let salt = salted.then(|| salts.salt(whose, chosen));
        Ok(Self { apart, path, passing, salt })
    }

    /// Sets the prompt apart in the router's own view of caches too.
    pub(super) fn seed(&self) -> Option<u64> {
        self.salt.as_ref().map(|it| it.seed)
    }

    /// Lists what changes, in the order in which it stands.
    pub(super) fn edits(
        &self,
        found: &Peek<'_>,
        known_as: Option<&str>,
    ) -> Result<Vec<Edit>, Steered> {
        let salting = match &self.salt {
            None => Salting::Never,
            Some(salt) if self.apart && self.path.effect == Effect::Salted => {
                Salting::Always(&salt.text)
            }
            Some(salt) => Salting::Chosen(&salt.text),
        };
        let mut edits = found.edits(self.passing.fields, salting)?;
        if let Some(model) = known_as {
            edits.push((found.model_span.clone(), quoted(model)));
            edits.sort_by_key(|(span, _)| span.start);
        }
        Ok(edits)
    }
}

/// Tells whether a request has no prompt, or one that a salt can set apart. A body that is not read
/// could hold a prompt whatever its label, and so could one that is sent to an unknown path.
fn can_keep_apart(path: ApiPath, taken: BodyView<'_>) -> bool {
    match taken {
        BodyView::Nothing => true,
        BodyView::Passing => false,
        BodyView::Held(_) => matches!(path.effect, Effect::Salted | Effect::Uncached),
    }
}
