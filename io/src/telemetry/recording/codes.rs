//! Codes in place of tenants and sessions. They are encrypted under keys that are made for each recording and
//! written nowhere: the file and a list of names still do not tell which name is which code. One block of AES is a
//! code, a twentieth of what a keyed hash of the SHA-2 family takes.

use aws_lc_rs::cipher::{AES_128, EncryptingKey, UnboundCipherKey};
use aws_lc_rs::rand;
use cleave_core::domain::HexDigits;

const KEY_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct Codes {
    tenants: EncryptingKey,
    sessions: EncryptingKey,
}

impl Codes {
    pub(super) fn fresh() -> Self {
        Self { tenants: fresh_key(), sessions: fresh_key() }
    }

    pub(super) fn tenant(&self, tenant: u64) -> String {
        code(&self.tenants, [tenant, 0])
    }

    pub(super) fn session(&self, tenant: u64, session: u64) -> String {
        code(&self.sessions, [tenant, session])
    }
}

fn fresh_key() -> EncryptingKey {
    let mut secret = [0; KEY_BYTES];
    rand::fill(&mut secret).expect("the system gives random bytes");
    UnboundCipherKey::new(&AES_128, &secret)
        .and_then(EncryptingKey::ecb)
        .expect("a key of AES has sixteen bytes")
}

/// Makes a code of eight bytes: two sessions in a billion share one with a chance of a few per cent.
fn code(key: &EncryptingKey, [first, second]: [u64; 2]) -> String {
    let mut block = (u128::from(first) << 64 | u128::from(second)).to_le_bytes();
    key.encrypt(&mut block).expect("it is one whole block");
    let start = block.first_chunk().copied().unwrap_or_default();
    HexDigits::of(u64::from_be_bytes(start)).as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_same_within_a_recording_and_another_in_the_next() {
        let (one, other) = (Codes::fresh(), Codes::fresh());
        assert_eq!(one.tenant(7), one.tenant(7));
        assert_ne!(one.tenant(7), one.tenant(8));
        assert_ne!(one.tenant(7), other.tenant(7));
        assert_ne!(one.session(7, 1), one.session(8, 1));
        assert_ne!(one.session(7, 0), one.tenant(7));
        assert_eq!(one.session(7, 1).len(), 16);
    }
}
