//! Model names, each kept once: a trace of a million lines names a handful.

use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Names(BTreeSet<Arc<str>>);

impl Names {
    /// Returns the one copy of a name.
    pub(super) fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = name.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}
