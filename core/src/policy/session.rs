//! Sessions stay where their cache is: rendezvous over the slice key. No pin is stored, so none can
//! outlive the cache it was made for, and every router sends a session to the same place.

use rand_pcg::Pcg64Mcg;

use super::{Ask, Candidate, Policy, lowest, rendezvous};

#[derive(Debug)]
pub(super) struct Session;

impl Policy for Session {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], _: &mut Pcg64Mcg) -> usize {
        lowest(candidates, |it| rendezvous::lot(it, ask.key))
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}
