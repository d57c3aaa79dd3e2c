//! How engines are reached over `https://`: which CA signs their certificates, by which name they go,
//! and the certificate by which the router shows itself. One value serves all connections of the
//! replicas that share it, so that TLS sessions are resumed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::{IpAddr, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::TlsError;
use super::pem::{read_certs, read_key, read_roots};

/// Where distributions keep the bundle of CA certificates: Debian and Alpine, Fedora and RHEL, openSUSE.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// What is said of TLS to engines.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineTlsFiles {
    /// PEM of the CAs that sign engines' certificates; the system's where there is none.
    pub ca: Option<PathBuf>,
    /// PEM of the router's own certificate chain and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in engines' certificates, in place of the host of their address.
    pub server_name: Option<String>,
}

/// TLS to engines, ready to be used.
#[derive(Clone)]
pub struct EngineTls {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl EngineTls {
    /// Reads the files; `bundle` is the system's bundle of CAs, where the environment names one.
    pub fn read(files: &EngineTlsFiles, bundle: Option<&Path>) -> Result<Self, TlsError> {
        let roots = match &files.ca {
            Some(ca) => read_roots(ca)?,
            None => system_roots(bundle)?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                builder.with_client_auth_cert(read_certs(cert)?, read_key(key)?)?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let server_name = files.server_name.as_deref().and_then(name_of);
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name })
    }

    pub fn connector(&self) -> &TlsConnector {
        &self.connector
    }

    /// The same for a connection that speaks another protocol than engines do.
    pub fn connector_for(&self, protocol: &[u8]) -> TlsConnector {
        let mut config = ClientConfig::clone(self.connector.config());
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsConnector::from(Arc::new(config))
    }

    /// The same for replicas that go by this name, unless another was given.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        let server_name = self.server_name.clone().or_else(|| name_of(name));
        Self { connector: self.connector.clone(), server_name }
    }

    /// The name that a replica at this host must have in its certificate.
    pub fn server_name(&self, host: &str) -> Option<ServerName<'static>> {
        self.server_name.clone().or_else(|| name_of(host))
    }
}

impl fmt::Debug for EngineTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineTls({:?})", self.server_name)
    }
}

/// Equal settings that were read twice differ, because the files may have changed in between.
impl PartialEq for EngineTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.connector.config(), other.connector.config())
    }
}

/// TLS to a server that is used for as long as the router runs. All clones go on with what was read last.
#[derive(Clone, Debug)]
pub struct RenewableTls(Arc<ArcSwap<EngineTls>>);

impl RenewableTls {
    pub fn new(tls: Arc<EngineTls>) -> Self {
        Self(Arc::new(ArcSwap::new(tls)))
    }

    /// For a connection that is made now.
    pub fn current(&self) -> Arc<EngineTls> {
        self.0.load_full()
    }

    /// Takes up what was read again.
    pub fn renew(&self, new: &Self) {
        self.0.store(new.current());
    }
}

/// As equal as what was read last.
impl PartialEq for RenewableTls {
    fn eq(&self, other: &Self) -> bool {
        self.current() == other.current()
    }
}

fn system_roots(bundle: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let usual = || SYSTEM_BUNDLES.iter().map(Path::new).find(|it| it.exists());
    bundle.or_else(usual).map_or(Err(TlsError::NoSystemRoots), read_roots)
}

/// Reads a host as it stands in an address, where IPv6 is in brackets.
pub(super) fn name_of(host: &str) -> Option<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<std::net::IpAddr>() {
        Ok(ip) => Some(ServerName::IpAddress(IpAddr::from(ip))),
        Err(_) => ServerName::try_from(bare.to_owned()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address() {
        assert!(matches!(name_of("gpu-0.internal"), Some(ServerName::DnsName(_))));
        assert!(matches!(name_of("10.0.0.1"), Some(ServerName::IpAddress(_))));
        assert!(matches!(name_of("[::1]"), Some(ServerName::IpAddress(_))));
        assert!(name_of("a b").is_none());
    }

    #[test]
    fn files_that_do_not_serve_are_named() {
        let files = |ca: &str| EngineTlsFiles { ca: Some(ca.into()), ..EngineTlsFiles::default() };
        let error = EngineTls::read(&files("/nowhere/ca.pem"), None).unwrap_err();
        assert!(error.to_string().starts_with("cannot read /nowhere/ca.pem: "), "{error}");
        let error = EngineTls::read(&files("/dev/null"), None).unwrap_err();
        assert_eq!(error.to_string(), "no usable PEM in /dev/null: it has no certificate");
    }
}
