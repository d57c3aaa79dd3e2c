//! A wire with an ear: passes everything on and writes down every byte, in both directions; on request it
//! speaks TLS on its near side, so that a plain replica stands behind `https://`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What went over the wire.
type Heard = Arc<Mutex<Vec<u8>>>;

#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    forth: Heard,
    back: Heard,
    tls: Arc<Mutex<Option<Arc<ServerConfig>>>>,
    _server: JoinSet<()>,
}

impl Tap {
    /// Starts to pass connections on to `to`.
    pub(crate) async fn start(to: SocketAddr) -> Self {
        Self::listen(to, None).await
    }

    /// The same, under TLS.
    pub(crate) async fn under_tls(to: SocketAddr, tls: Arc<ServerConfig>) -> Self {
        Self::listen(to, Some(tls)).await
    }

    /// Speaks TLS otherwise to all that connect from now on.
    pub(crate) fn renew(&self, tls: Arc<ServerConfig>) {
        *self.tls.lock().unwrap() = Some(tls);
    }

    async fn listen(to: SocketAddr, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (forth, back) = (Heard::default(), Heard::default());
        let ears = (Arc::clone(&forth), Arc::clone(&back));
        let tls = Arc::new(Mutex::new(tls));
        let renewed = Arc::clone(&tls);
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let tls = renewed.lock().unwrap().clone();
                let (forth, back) = ears.clone();
                connections.spawn(async move {
                    let Ok(far) = TcpStream::connect(to).await else { return };
                    match tls {
                        None => join(near, far, forth, back).await,
                        Some(tls) => {
                            let Ok(near) = TlsAcceptor::from(tls).accept(near).await else {
                                return;
                            };
                            join(near, far, forth, back).await;
                        }
                    }
                });
            }
        });
        Self { address, forth, back, tls, _server: server }
    }

    /// All that was sent through it.
    pub(crate) fn forth(&self) -> String {
        String::from_utf8_lossy(&self.forth.lock().unwrap()).into_owned()
    }

    /// All that came back.
    pub(crate) fn back(&self) -> String {
        String::from_utf8_lossy(&self.back.lock().unwrap()).into_owned()
    }
}

async fn join(near: impl AsyncRead + AsyncWrite, far: TcpStream, forth: Heard, back: Heard) {
    let (near_in, near_out) = tokio::io::split(near);
    let (far_in, far_out) = far.into_split();
    // When either side ends, both do.
    tokio::select! {
        () = copy(near_in, far_out, forth) => {}
        () = copy(far_in, near_out, back) => {}
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, ear: Heard) {
    let mut piece = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        ear.lock().unwrap().extend_from_slice(&piece[..read]);
        if to.write_all(&piece[..read]).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    _ = to.shutdown().await;
}

/// A CA of the test's own.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    cert: CertificateDer<'static>,
    pub(crate) file: PathBuf,
}

/// A certificate and its key, in memory and in files.
pub(crate) struct Identity {
    cert: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pub(crate) files: [PathBuf; 2],
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        let file = fresh_file("ca");
        std::fs::write(&file, cert.pem()).unwrap();
        Self { cert: cert.der().clone(), issuer: Issuer::new(params, key), file }
    }

    /// Makes a certificate for this name that ends in a year of our era.
    pub(crate) fn sign(&self, name: &str, until: i32) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let files = [fresh_file("crt"), fresh_file("key")];
        std::fs::write(&files[0], cert.pem()).unwrap();
        std::fs::write(&files[1], key.serialize_pem()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Identity { cert: cert.der().clone(), key, files }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.cert.clone()).unwrap();
        roots
    }

    /// Connects under TLS as one that trusts this authority; nothing where another certificate is shown.
    pub(crate) async fn connect(&self, address: SocketAddr) -> Option<TlsStream<TcpStream>> {
        self.connect_offering(address, &[]).await
    }

    /// The same with an offer of protocols, the preferred one first.
    pub(crate) async fn connect_offering(
        &self,
        address: SocketAddr,
        alpn: &[&str],
    ) -> Option<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
    }

    /// Makes a server that shows `identity` and, if it `asks`, takes only clients of this authority.
    pub(crate) fn server(&self, identity: &Identity, asks: bool) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let roots = Arc::new(self.roots());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let builder = if asks {
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = identity.key.clone_key();
        Arc::new(builder.with_single_cert(vec![identity.cert.clone()], key).unwrap())
    }
}

fn fresh_file(end: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("made-{}-{number}.{end}", std::process::id());
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}
