//! Codes in place of tenants and sessions. They are keyed with a secret that is made for each recording and
//! written nowhere: the file and a list of names still do not tell which name is which code.

use aws_lc_rs::{hmac, rand};

const SECRET_BYTES: usize = 32;
/// Tenants whose codes are kept, so that they need not be made for every request.
const TENANTS_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct Codes {
    key: hmac::Key,
    tenants: Vec<(u64, String)>,
}

impl Codes {
    pub(super) fn fresh() -> Self {
        let mut secret = [0; SECRET_BYTES];
        rand::fill(&mut secret).expect("the system gives random bytes");
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &secret), tenants: Vec::new() }
    }

    pub(super) fn tenant(&mut self, tenant: u64) -> String {
        match self.tenants.binary_search_by_key(&tenant, |it| it.0) {
            Ok(at) => self.tenants[at].1.clone(),
            Err(at) => {
                let code = self.code(b"tenant", &[tenant]);
                if self.tenants.len() < TENANTS_MAX {
                    self.tenants.insert(at, (tenant, code.clone()));
                }
                code
            }
        }
    }

    pub(super) fn session(&self, tenant: u64, session: u64) -> String {
        self.code(b"session", &[tenant, session])
    }

    /// Makes a code of eight bytes: two sessions in a billion share one with a chance of a few per cent.
    fn code(&self, kind: &[u8], of: &[u64]) -> String {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(kind);
        for it in of {
            context.update(&it.to_le_bytes());
        }
        let code = context.sign();
        let start = code.as_ref().first_chunk().copied().unwrap_or_default();
        format!("{:016x}", u64::from_be_bytes(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_same_within_a_recording_and_another_in_the_next() {
        let (mut one, mut other) = (Codes::fresh(), Codes::fresh());
        assert_eq!(one.tenant(7), one.tenant(7));
        assert_ne!(one.tenant(7), one.tenant(8));
        assert_ne!(one.tenant(7), other.tenant(7));
        assert_ne!(one.session(7, 1), one.session(8, 1));
        assert_eq!(one.session(7, 1).len(), 16);
        (0..5_000).for_each(|it| _ = one.tenant(it));
        assert_eq!(one.tenants.len(), TENANTS_MAX);
    }
}
