//! How two routers know each other by certificates: each shows its own, and checks that the other's is signed by the CA of
//! the routers. A router that dials also checks the name. A router that is dialled knows no name to check by, unless
//! one is given that all routers have.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::TlsError;
use super::client::name_of;
use super::pem::{read_certs, read_key, read_roots};

/// Keeps the stream apart from other protocols behind the same CA.
const PROTOCOL: &[u8] = b"cleave-routers";

/// What is said of TLS between routers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTlsFiles {
    /// PEM of the CAs that sign routers' certificates.
    pub ca: PathBuf,
    /// PEM of this router's own certificate chain, and its key.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The name that every router's certificate has.
    pub server_name: Option<String>,
}

/// TLS between routers, ready to be used on both ends.
#[derive(Clone)]
pub struct PeerTls {
    dialling: Arc<ClientConfig>,
    accepting: Arc<ServerConfig>,
    server_name: Option<ServerName<'static>>,
}

impl PeerTls {
    pub fn read(files: &PeerTlsFiles) -> Result<Self, TlsError> {
        let PeerTlsFiles { ca, cert, key, server_name } = files;
        let roots = Arc::new(read_roots(ca)?);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut dialling = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(read_certs(cert)?, read_key(key)?)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let verifier =
            verifier.build().map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut accepting = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(read_certs(cert)?, read_key(key)?)?;
        dialling.alpn_protocols = vec![PROTOCOL.to_vec()];
        accepting.alpn_protocols = vec![PROTOCOL.to_vec()];
        let server_name = server_name.as_deref().and_then(name_of);
        Ok(Self { dialling: Arc::new(dialling), accepting: Arc::new(accepting), server_name })
    }

    pub fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.dialling))
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.accepting))
    }

    /// The name that the router at this address, `HOST:PORT`, must have in its certificate.
    pub fn name_at(&self, address: &str) -> Option<ServerName<'static>> {
        let host = address.rsplit_once(':').map_or(address, |it| it.0);
        self.server_name.clone().or_else(|| name_of(host))
    }

    /// Checks that a router which dialled has the name that all routers have, where there is one.
    pub fn check_dialler(&self, shown: Option<&[CertificateDer<'_>]>) -> Result<(), rustls::Error> {
        let Some(name) = &self.server_name else { return Ok(()) };
        let leaf = shown.and_then(<[_]>::first).ok_or(rustls::Error::NoCertificatesPresented)?;
        verify_server_name(&ParsedCertificate::try_from(leaf)?, name)
    }
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerTls({:?})", self.server_name)
    }
}

/// Files that were read twice make no difference: all that they say is taken up while the router runs.
impl PartialEq for PeerTls {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
