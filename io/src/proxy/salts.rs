//! The salts by which engines keep tenants' prompts apart. A salt is a code over the tenant, keyed with
//! a secret: a client that knows the names of others, and how salts are made, still cannot make theirs.
//! The secret is given by the operator, so that several routers make the same salts, or made at the
//! first start and kept beside the assignments.

use std::fmt::{self, Write as _};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::{fs, process};

use aws_lc_rs::{hmac, rand};
use tracing::{info, warn};

use super::tenants::Identity;

const SECRET_BYTES: usize = 32;
/// Longer than any secret that is kept.
const FILE_BYTES_MAX: u64 = 1 << 10;
const FILE_MODE: u32 = 0o600;
const FILE_NAME: &str = "cache-secret";
/// Sets salts apart from anything else that may be keyed with the same secret.
const PURPOSE: &[u8] = b"cleave cache salt 1";
/// Sets the secret of salts apart from all else that is made from a cluster's secret.
const CLUSTER_PURPOSE: &[u8] = b"cleave cache secret of a cluster 1";
/// Half of the code is written out; the rest is for the router itself.
const SALT_BYTES: usize = 16;

/// What keys the salts; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct CacheSecret(Vec<u8>);

impl CacheSecret {
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// Makes one from the secret that several routers share, so that they make the same salts and none is told.
    pub fn of_cluster(secret: &[u8]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        Self(hmac::sign(&key, CLUSTER_PURPOSE).as_ref().to_vec())
    }
}

impl fmt::Debug for CacheSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheSecret(…)")
    }
}

/// Makes salts.
#[derive(Debug)]
pub(super) struct Salts(hmac::Key);

/// What keeps a tenant's prompts apart: in the engine by `text`, in the router's own view by `seed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Salt {
    pub(super) text: String,
    pub(super) seed: u64,
}

impl Salts {
    /// Takes the secret that was given, else the one that is kept in the folder, else a passing one.
    pub(super) fn new(given: Option<&CacheSecret>, folder: Option<&Path>) -> Self {
        let secret = match (given, folder) {
            (Some(given), _) => given.0.clone(),
            (None, Some(folder)) => kept(folder).unwrap_or_else(|error| {
                let file = folder.join(FILE_NAME);
                let file = file.display();
                warn!(%file, %error, "the secret of cache salts is not kept: salts last until the end of this process");
                fresh().to_vec()
            }),
            (None, None) => fresh().to_vec(),
        };
        Self(hmac::Key::new(hmac::HMAC_SHA256, &secret))
    }

    /// Makes the salt of a tenant. What the client chose goes into it: so it still keeps apart what the
    /// client wants apart, and never reaches across tenants.
    pub(super) fn salt<'a>(
        &self,
        whose: Identity<'_>,
        chosen: impl Iterator<Item = (&'static str, &'a str)>,
    ) -> Salt {
        let mut code = hmac::Context::with_key(&self.0);
        let mut part = |bytes: &[u8]| {
            // With their lengths, so that no two lists of parts read alike.
            code.update(&bytes.len().to_le_bytes());
            code.update(bytes);
        };
        part(PURPOSE);
        let (kind, name) = whose.parts();
        part(kind);
        part(name);
        for (field, value) in chosen {
            part(field.as_bytes());
            part(value.as_bytes());
        }
        let code = code.sign();
        let (salt, rest) = code.as_ref().split_at(SALT_BYTES);
        let mut seed = [0; 8];
        seed.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Salt { text: hex(salt), seed: u64::from_le_bytes(seed) }
    }
}

fn fresh() -> [u8; SECRET_BYTES] {
    let mut secret = [0; SECRET_BYTES];
    rand::fill(&mut secret).expect("the system gives random bytes");
    secret
}

/// Reads the secret that is kept in a folder, or makes it.
fn kept(folder: &Path) -> io::Result<Vec<u8>> {
    let file = folder.join(FILE_NAME);
    match read(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    fs::create_dir_all(folder)?;
    // Written beside it and then linked: another router that starts now reads all of it or makes its
    // own, and one of the two wins.
    let beside = folder.join(format!("{FILE_NAME}.{}.new", process::id()));
    _ = fs::remove_file(&beside);
    let mut options = fs::OpenOptions::new();
    let mut written = options.write(true).create_new(true).mode(FILE_MODE).open(&beside)?;
    written.write_all(hex(&fresh()).as_bytes())?;
    written.sync_all()?;
    let linked = fs::hard_link(&beside, &file);
    fs::remove_file(&beside)?;
    match linked {
        Ok(()) => info!(file = %file.display(), "secret of cache salts made and kept"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    read(&file)
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let opened = fs::File::open(file)?;
    if opened.metadata()?.permissions().mode() & !FILE_MODE & 0o777 != 0 {
        let file = file.display();
        warn!(%file, "the secret of cache salts can be read by others: set its mode to 600");
    }
    let mut secret = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut secret)?;
    let secret = secret.trim_ascii().to_vec();
    if secret.len() < SECRET_BYTES {
        let what = "the file is too short to hold a secret: remove it, to have one made";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(secret)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, it| {
        // Writing to a string does not fail.
        _ = write!(text, "{it:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salts(secret: &str) -> Salts {
        Salts::new(Some(&CacheSecret::new(secret)), None)
    }

    fn salt(salts: &Salts, whose: Identity<'_>, chosen: &[(&'static str, &'static str)]) -> Salt {
        salts.salt(whose, chosen.iter().copied())
    }

    #[test]
    fn a_salt_depends_on_the_secret_the_tenant_and_the_client_s_choice() {
        let (one, other) = (salts("one"), salts("other"));
        let all = [
            salt(&one, Identity::Keyless, &[]),
            salt(&one, Identity::Tenant("a"), &[]),
            salt(&one, Identity::Tenant("b"), &[]),
            salt(&one, Identity::Key(b"a"), &[]),
            salt(&one, Identity::Tenant("a"), &[("cache_salt", "\"x\"")]),
            salt(&one, Identity::Tenant("a"), &[("extra_key", "\"x\"")]),
            salt(&one, Identity::Tenant("a"), &[("cache_salt", "\"xextra_key\"")]),
            salt(&one, Identity::Tenant("a"), &[("cache_salt", "\"x\""), ("extra_key", "\"\"")]),
            salt(&other, Identity::Tenant("a"), &[]),
        ];
        for (at, salt) in all.iter().enumerate() {
            assert_eq!(salt.text.len(), 32);
            assert!(salt.text.bytes().all(|it| it.is_ascii_hexdigit()));
            let apart = |it: &Salt| it.text != salt.text && it.seed != salt.seed;
            assert!(all[..at].iter().all(apart), "{all:?}");
        }
        assert_eq!(all[1], salt(&salts("one"), Identity::Tenant("a"), &[]));
    }

    #[test]
    fn a_secret_that_is_made_is_kept_for_its_owner_alone() {
        let folder = std::env::temp_dir().join(format!("cleave-salts-{}", process::id()));
        let made = Salts::new(None, Some(&folder));
        let again = Salts::new(None, Some(&folder));
        let passing = Salts::new(None, None);
        let of = |it: &Salts| salt(it, Identity::Keyless, &[]);
        assert_eq!(of(&made), of(&again));
        assert_ne!(of(&made), of(&passing));
        let file = folder.join(FILE_NAME);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, FILE_MODE);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        fs::write(&file, "short").unwrap();
        assert_ne!(of(&Salts::new(None, Some(&folder))), of(&made), "a passing one");
        assert_eq!(fs::read(&file).unwrap(), b"short", "what is there is left");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn routers_that_share_a_secret_make_the_same_salts_by_another_one() {
        let of = |secret: &CacheSecret| {
            salt(&Salts::new(Some(secret), None), Identity::Tenant("a"), &[])
        };
        let (one, other) =
            (CacheSecret::of_cluster(b"0123456789abcdef"), CacheSecret::of_cluster(b"x"));
        assert_eq!(of(&one), of(&CacheSecret::of_cluster(b"0123456789abcdef")));
        assert_ne!(of(&one), of(&other));
        assert_ne!(of(&one), of(&CacheSecret::new("0123456789abcdef")));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = CacheSecret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "CacheSecret(…)");
        assert!(!format!("{:?}", salts("hunter2")).contains("hunter2"));
    }
}
