//! Chance for the data plane: ids that no other request has, and the draws of traces.

use std::sync::{Mutex, PoisonError};

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

pub(super) struct Chance(Mutex<Pcg64Mcg>);

impl Chance {
    /// Begins with a seed of the operating system's.
    pub(super) fn new() -> Self {
        let seed = uuid::Uuid::new_v4().as_u128();
        Self(Mutex::new(Pcg64Mcg::from_seed(seed.to_le_bytes())))
    }

    pub(super) fn draw(&self) -> u128 {
        let mut bytes = [0; 16];
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut bytes);
        u128::from_le_bytes(bytes)
    }

    /// Makes a unique id.
    pub(super) fn fresh_id(&self) -> String {
        let bytes = self.draw().to_le_bytes();
        let id = uuid::Builder::from_random_bytes(bytes).into_uuid();
        id.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).to_owned()
    }
}
