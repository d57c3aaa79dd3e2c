//! TLS towards clients, where it is configured.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::settings::TlsSettings;

/// Why TLS cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("no usable PEM in {}: {message}", path.display())]
    Pem { path: PathBuf, message: String },
    #[error("the certificate and its key do not serve: {0}")]
    Config(#[from] rustls::Error),
}

pub(super) fn acceptor(settings: &TlsSettings) -> Result<TlsAcceptor, TlsError> {
    let pem = |message: String| TlsError::Pem { path: settings.cert.clone(), message };
    let certs = CertificateDer::pem_reader_iter(open(&settings.cert)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem(error.to_string()))?;
    if certs.is_empty() {
        return Err(pem("it has no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_reader(open(&settings.key)?).map_err(|error| {
        TlsError::Pem { path: settings.key.clone(), message: error.to_string() }
    })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certs, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn open(path: &Path) -> Result<BufReader<File>, TlsError> {
    File::open(path)
        .map(BufReader::new)
        .map_err(|error| TlsError::Read { path: path.to_owned(), error })
}
