//! Tenants by their API keys, which are known only as hashes. What a request may claim is decided
//! here from its key; a header that names a tenant or a class beyond the key's means nothing. The
//! set is swapped whole when the file changes, so that a key can be rotated while requests run.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use aws_lc_rs::digest::{SHA256, digest};
use cleave_core::queue::{ClassId, Limits, Tenant, Weight, Work};
use http::{HeaderMap, HeaderValue};
use twox_hash::XxHash3_64;

use super::headers::KEYS;
use super::settings::PoolSettings;

const HASH_BYTES: usize = 32;

/// The SHA-256 of an API key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash([u8; HASH_BYTES]);

impl KeyHash {
    pub fn of(key: &[u8]) -> Self {
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(digest(&SHA256, key).as_ref());
        Self(hash)
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 2 * HASH_BYTES || !bytes.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut hash = [0; HASH_BYTES];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).ok()?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Self(hash))
    }

    pub fn to_hex(self) -> String {
        self.0.iter().fold(String::new(), |mut text, it| {
            // Writing to a string does not fail.
            _ = write!(text, "{it:02x}");
            text
        })
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// One tenant as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSettings {
    pub name: String,
    pub keys: Vec<KeyHash>,
    /// The classes it may use, the one it gets unasked first; all of them when empty.
    pub classes: Vec<ClassId>,
    pub weight: Weight,
    /// What it may use in each pool.
    pub limits: Limits,
    /// What it may use in single pools, by name, instead.
    pub pool_limits: BTreeMap<String, Limits>,
}

/// What becomes of a key of no tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownKeys {
    Refuse,
    /// It is served like a request without a contract.
    Share,
}

/// All tenants. Without any, all requests are of the same one and may do everything.
#[derive(Clone, Debug)]
pub struct Tenants {
    all: Vec<TenantSettings>,
    by_key: BTreeMap<KeyHash, usize>,
    /// By the number of a tenant: pages name every one of them, and there may be thousands.
    by_id: BTreeMap<u64, usize>,
    unknown: UnknownKeys,
}

impl Default for Tenants {
    fn default() -> Self {
        Self::new(Vec::new(), UnknownKeys::Share)
    }
}

/// The identity whose prompts are kept apart from others'.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity<'a> {
    /// Without a key, or with one of no tenant.
    Keyless,
    Tenant(&'a str),
    /// Where there are no tenants, the key itself.
    Key(&'a [u8]),
}

impl<'a> Identity<'a> {
    /// Its kind and its name.
    pub(super) const fn parts(self) -> (&'static [u8], &'a [u8]) {
        match self {
            Self::Keyless => (b"nobody", b""),
            Self::Tenant(name) => (b"tenant", name.as_bytes()),
            Self::Key(key) => (b"key", key),
        }
    }
}

impl fmt::Debug for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key is never shown.
        f.write_str(match self {
            Self::Keyless => "Keyless",
            Self::Tenant(name) => name,
            Self::Key(_) => "Key(…)",
        })
    }
}

/// The tenant of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTenant<'a> {
    pub(super) tenant: Tenant,
    /// Salts session keys, so that tenants never meet in one place. Others can make it from the name of
    /// a tenant, which is of no use to them: theirs goes into all that they send.
    pub(super) salt: u64,
    pub(super) identity: Identity<'a>,
    pub(super) settings: Option<&'a TenantSettings>,
    /// Its place among the tenants.
    pub(super) at: Option<usize>,
}

/// The key is of no tenant, and only tenants may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownKey;

impl<'a> IntoIterator for &'a Tenants {
    type Item = &'a TenantSettings;
    type IntoIter = std::slice::Iter<'a, TenantSettings>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Tenants {
    pub fn new(tenants: Vec<TenantSettings>, unknown: UnknownKeys) -> Self {
        let keys = tenants.iter().enumerate();
        let by_key = keys.flat_map(|(at, it)| it.keys.iter().map(move |key| (*key, at))).collect();
        let ids = tenants.iter().enumerate();
        let by_id = ids.map(|(at, it)| (Self::id(&it.name).0, at)).collect();
        Self { all: tenants, by_key, by_id, unknown }
    }

    /// The tenants in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, TenantSettings> {
        self.all.iter()
    }

    /// Tells whether there are tenants that are to be kept apart.
    pub(super) const fn are_apart(&self) -> bool {
        !self.all.is_empty()
    }

    /// The name of the tenant at a place.
    pub(super) fn name_at(&self, at: usize) -> Option<&str> {
        self.all.get(at).map(|it| it.name.as_str())
    }

    /// Names the tenant in books and metrics.
    pub fn id(name: &str) -> Tenant {
        // 0 is the shared tenant; no name hashes to it but by a chance of one in 2^64.
        Tenant(XxHash3_64::oneshot(name.as_bytes()).max(1))
    }

    pub fn name(&self, tenant: Tenant) -> Option<&str> {
        self.name_at(*self.by_id.get(&tenant.0)?)
    }

    /// Lists the tenants by what salts their keys.
    pub(super) fn salts(&self) -> impl Iterator<Item = (u64, &str)> {
        self.all.iter().map(|it| (Self::id(&it.name).0, it.name.as_str()))
    }

    /// Lists what each tenant may use in a pool.
    pub fn limits(&self, pool: &str) -> Vec<(Tenant, Limits)> {
        let limits = |it: &TenantSettings| *it.pool_limits.get(pool).unwrap_or(&it.limits);
        self.all.iter().map(|it| (Self::id(&it.name), limits(it))).collect()
    }

    /// Says that the contracts for a pool add up to more than its replicas can do, if they do. Nothing is said of a
    /// pool without replicas: they may come later.
    pub fn overcommitment(&self, pool: &PoolSettings) -> Option<String> {
        let limits = self.limits(&pool.name);
        let promised: f64 = limits.iter().filter_map(|it| it.1.work_per_min).map(Work::as_mu).sum();
        let capacity: f64 = pool.replicas.iter().map(|it| it.hardware.capacity_mu_per_min).sum();
        (!pool.replicas.is_empty() && capacity < promised).then(|| {
            format!(
                "contracts for pool {} add up to {promised:.0} MU a minute, and its replicas make \
                 {capacity:.0}: not all can be kept at once",
                pool.name
            )
        })
    }

    /// Finds the sender of a request, by its key and by nothing else.
    pub(super) fn caller<'a>(
        &'a self,
        headers: &'a HeaderMap,
    ) -> Result<RequestTenant<'a>, UnknownKey> {
        let given = KEYS.iter().find_map(|it| headers.get(it));
        let keyless = RequestTenant {
            tenant: Tenant::default(),
            salt: 0,
            identity: Identity::Keyless,
            settings: None,
            at: None,
        };
        if self.all.is_empty() {
            let given = given.map(HeaderValue::as_bytes);
            let salt = given.map_or(0, XxHash3_64::oneshot);
            let identity = given.map_or(Identity::Keyless, Identity::Key);
            return Ok(RequestTenant { salt, identity, ..keyless });
        }
        let key = given.map(key_of).unwrap_or_default();
        match self.by_key.get(&KeyHash::of(key)) {
            Some(at) => {
                let settings = &self.all[*at];
                let tenant = Self::id(&settings.name);
                let identity = Identity::Tenant(&settings.name);
                let (settings, at) = (Some(settings), Some(*at));
                Ok(RequestTenant { tenant, salt: tenant.0, identity, settings, at })
            }
            None if self.unknown == UnknownKeys::Refuse => Err(UnknownKey),
            None => Ok(keyless),
        }
    }
}

impl RequestTenant<'_> {
    pub(super) fn weight(&self) -> Weight {
        self.settings.map_or(Weight::ONE, |it| it.weight)
    }

    /// Grants the class that was asked for as far as the key allows: that one, or the next lesser one
    /// it may use, or the best it has.
    pub(super) fn class(&self, asked: Option<ClassId>) -> Option<ClassId> {
        let allowed = self.settings.map_or(&[][..], |it| &it.classes);
        let Some(own) = allowed.first() else { return asked };
        let Some(asked) = asked else { return Some(*own) };
        let lesser = allowed.iter().filter(|it| asked <= **it).min();
        lesser.or_else(|| allowed.iter().max()).copied()
    }
}

/// Reads the key out of a bearer token, or takes the value as it is.
fn key_of(value: &HeaderValue) -> &[u8] {
    let bytes = value.as_bytes();
    match bytes.split_at_checked(7) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => key.trim_ascii(),
        Some(_) | None => bytes,
    }
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::super::headers::API_KEY;
    use super::*;

    fn tenant(name: &str, key: &str, classes: &[u8]) -> TenantSettings {
        TenantSettings {
            name: name.to_owned(),
            keys: vec![KeyHash::of(key.as_bytes())],
            classes: classes.iter().copied().map(ClassId).collect(),
            weight: Weight::ONE,
            limits: Limits::default(),
            pool_limits: BTreeMap::new(),
        }
    }

    fn with(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_key_is_known_by_its_hash() {
        // The hash of "abc" as the standard gives it.
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyHash::of(b"abc").to_hex(), hex);
        assert_eq!(KeyHash::from_hex(&hex.to_uppercase()), Some(KeyHash::of(b"abc")));
        for bad in ["", "ba", &hex[1..], &hex.replace('b', "+"), &format!("{hex}0")] {
            assert_eq!(KeyHash::from_hex(bad), None, "{bad}");
        }
        assert!(!format!("{:?}", KeyHash::of(b"abc")).contains("ba78"));
    }

    #[test]
    fn callers_are_found_by_key_in_either_header() {
        let tenants = Tenants::new(
            vec![tenant("a", "key-a", &[]), tenant("b", "key-b", &[])],
            UnknownKeys::Refuse,
        );
        let name = |headers: &HeaderMap| {
            tenants.caller(headers).map(|it| tenants.name(it.tenant).unwrap().to_owned())
        };
        assert_eq!(name(&with(header::AUTHORIZATION, "Bearer key-a")).as_deref(), Ok("a"));
        assert_eq!(name(&with(header::AUTHORIZATION, "bearer  key-b ")).as_deref(), Ok("b"));
        assert_eq!(name(&with(API_KEY, "key-b")).as_deref(), Ok("b"));
        for forged in ["Bearer key-c", "a", "Bearer a", "Bearer ", ""] {
            assert_eq!(name(&with(header::AUTHORIZATION, forged)), Err(UnknownKey), "{forged}");
        }
        let named = with(header::HeaderName::from_static("x-tenant-id"), "a");
        assert_eq!(name(&named), Err(UnknownKey), "a name is not a key");
    }

    #[test]
    fn unknown_keys_may_share_what_has_no_owner() {
        let tenants = Tenants::new(vec![tenant("a", "key-a", &[])], UnknownKeys::Share);
        let empty = HeaderMap::new();
        let caller = tenants.caller(&empty).unwrap();
        assert_eq!((caller.tenant, caller.salt), (Tenant::default(), 0));
        let keyless = Tenants::default();
        let (one, other) = (with(API_KEY, "one"), with(API_KEY, "other"));
        let (one, other) = (keyless.caller(&one).unwrap(), keyless.caller(&other).unwrap());
        assert_eq!(one.identity, Identity::Key(b"one"));
        assert_eq!(format!("{:?}", one.identity), "Key(…)", "a key is not shown");
        assert_eq!(one.tenant, other.tenant);
        assert_ne!(one.salt, other.salt);
    }

    #[test]
    fn a_class_is_granted_as_far_as_the_key_allows() {
        let settings = tenant("a", "k", &[1, 2]);
        let caller = RequestTenant {
            tenant: Tenant(1),
            salt: 1,
            identity: Identity::Tenant("a"),
            settings: Some(&settings),
            at: None,
        };
        let granted = |asked: Option<u8>| caller.class(asked.map(ClassId)).map(|it| it.0);
        assert_eq!(granted(None), Some(1));
        assert_eq!(granted(Some(0)), Some(1), "the next lesser one");
        assert_eq!(granted(Some(2)), Some(2));
        assert_eq!(granted(Some(3)), Some(2), "there is none lesser");
        let unbound = RequestTenant { settings: None, ..caller };
        assert_eq!(unbound.class(Some(ClassId(0))), Some(ClassId(0)));
        assert_eq!(unbound.class(None), None);
    }
}
