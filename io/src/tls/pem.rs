//! Certificates and keys from PEM files.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

pub(super) fn read_certs(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |message: String| TlsError::Pem { path: path.to_owned(), message };
    let certs = CertificateDer::pem_reader_iter(open(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem(error.to_string()))?;
    if certs.is_empty() { Err(pem("it has no certificate".to_owned())) } else { Ok(certs) }
}

pub(super) fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_reader(open(path)?)
        .map_err(|error| TlsError::Pem { path: path.to_owned(), message: error.to_string() })
}

/// Reads certificates that are trusted to sign others. In a bundle of many, those that are no CA's are
/// passed over, as other programs do; there must be one that is.
pub(super) fn read_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(read_certs(path)?);
    if added == 0 {
        let message = "it has no certificate that can be trusted to sign".to_owned();
        return Err(TlsError::Pem { path: path.to_owned(), message });
    }
    Ok(roots)
}

fn open(path: &Path) -> Result<BufReader<File>, TlsError> {
    File::open(path)
        .map(BufReader::new)
        .map_err(|error| TlsError::Read { path: path.to_owned(), error })
}
