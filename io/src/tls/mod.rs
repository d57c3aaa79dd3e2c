//! TLS on all sides: the certificate that clients and operators see, how engines are reached over
//! `https://`, and how routers know each other. Files are read once, when settings are made, so that what is wrong with them is found
//! before anything runs; a reload reads them again. Nothing here opens a connection.

mod client;
mod expiry;
mod peer;
mod pem;
mod server;
mod validity;

use std::io;
use std::path::{Path, PathBuf};

pub use client::{EngineTls, EngineTlsFiles, RenewableTls};
pub use expiry::{Expiry, ExpiryWatch, OwnCertificate, ShownTo};
pub use peer::{PeerTls, PeerTlsFiles};
pub use server::ServerTls;

/// Why certificates or keys do not serve.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("no usable PEM in {}: {message}", path.display())]
    Pem { path: PathBuf, message: String },
    #[error("the certificate and its key do not serve: {0}")]
    Config(#[from] rustls::Error),
    #[error("this system has no bundle of CA certificates where one is usually kept")]
    NoSystemRoots,
}

impl TlsError {
    /// Tells whether this file is at fault.
    pub fn concerns(&self, file: &Path) -> bool {
        match self {
            Self::Read { path, .. } | Self::Pem { path, .. } => path == file,
            Self::Config(_) | Self::NoSystemRoots => false,
        }
    }
}
