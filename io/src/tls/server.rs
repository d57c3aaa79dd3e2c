//! The certificate that clients see.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

use super::TlsError;
use super::pem::{read_certs, read_key};

/// A certificate chain and its key, ready to be used.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// Reads two PEM files; `alpn` are the protocols that are offered, the preferred one first.
    pub fn read(cert: &Path, key: &Path, alpn: &[&str]) -> Result<Self, TlsError> {
        let (certs, key) = (read_certs(cert)?, read_key(key)?);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certs, key)?;
        config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        Ok(Self(Arc::new(config)))
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls(…)")
    }
}
