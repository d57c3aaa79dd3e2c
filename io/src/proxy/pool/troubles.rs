//! What was found wrong with a replica, by its probes and by what else was to be sent there.

use crate::replicas::Trouble;

#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// What the last probe found, and how many in a row found something.
    probed: Option<Trouble>,
    in_row: u32,
    /// Why it could not be connected to since, for something else than a probe.
    tried: Option<Trouble>,
}

impl Troubles {
    /// Takes in what a probe found, if anything was wrong; returns how many in a row found something.
    pub(super) fn on_probed(&mut self, found: Option<&Trouble>) -> u32 {
        let in_row = found.map_or(0, |_| self.in_row.saturating_add(1));
        *self = Self { probed: found.cloned(), in_row, tried: None };
        in_row
    }

    pub(super) fn on_try_failed(&mut self, found: &Trouble) {
        self.tried = Some(found.clone());
    }

    /// Forgets what was noted of tries: it is not why the replica fails later. What probes found is theirs to take back.
    pub(super) fn on_connected(&mut self) {
        self.tried = None;
    }

    /// What was last found wrong.
    pub(super) fn last(&self) -> Option<&Trouble> {
        self.tried.as_ref().or(self.probed.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_try_failed_is_forgotten_when_a_connection_opens_and_what_a_probe_found_is_not() {
        let (refused, unhealthy) = (Trouble::new("refused", "x"), Trouble::new("unhealthy", "y"));
        let mut troubles = Troubles::default();
        troubles.on_try_failed(&refused);
        assert_eq!(troubles.last(), Some(&refused));
        troubles.on_connected();
        assert_eq!(troubles.last(), None);

        assert_eq!([0; 2].map(|_| troubles.on_probed(Some(&unhealthy))), [1, 2]);
        troubles.on_try_failed(&refused);
        assert_eq!(troubles.last(), Some(&refused), "it is the newest");
        troubles.on_connected();
        assert_eq!(troubles.last(), Some(&unhealthy));
        assert_eq!(troubles.on_probed(Some(&unhealthy)), 3);
        troubles.on_try_failed(&refused);
        assert_eq!(troubles.on_probed(None), 0);
        assert_eq!(troubles.last(), None);
    }
}
