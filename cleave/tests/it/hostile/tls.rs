//! TLS towards clients: both protocols by ALPN, and no plain text on the same port.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{Http2, Request, Router, Scripted, Wire, config, json_answer, next_piece};

/// A certificate for `localhost` that only its own client trusts.
struct Identity {
    cert: CertificateDer<'static>,
    files: [PathBuf; 2],
}

impl Identity {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = |end| folder.join(format!("identity-{}.{end}", std::process::id()));
        let files = [file("crt"), file("key")];
        std::fs::write(&files[0], made.cert.pem()).unwrap();
        std::fs::write(&files[1], made.signing_key.serialize_pem()).unwrap();
        Self { cert: made.cert.der().clone(), files }
    }

    async fn connect(&self, router: &Router, alpn: &[&str]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.cert.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(router.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        for file in &self.files {
            _ = std::fs::remove_file(file);
        }
    }
}

#[tokio::test]
async fn clients_choose_their_protocol_under_tls() {
    let identity = Identity::new();
    let replica = Scripted::answering(json_answer(200, "{\"well\":1}")).await;
    let [cert, key] = identity.files.each_ref().map(|it| it.display());
    let settings = format!("tls.cert = \"{cert}\"\ntls.key = \"{key}\"\ntimeouts.header = \"2s\"");
    let router = Router::start_with(&config(&[(&replica.url(), 1.0)], &settings));
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;

    let stream = identity.connect(&router, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = Http2::over(stream).await;
    let answer = client.post("/v1/chat/completions", "{\"model\":\"m\"}").await;
    assert_eq!(answer.status(), 200);
    assert_eq!(next_piece(&mut answer.into_body()).await.unwrap(), "{\"well\":1}");

    for alpn in [&["http/1.1"][..], &[]] {
        let stream = identity.connect(&router, alpn).await;
        let answer = Wire::over(stream).ask(&Request::chat("hi")).await;
        assert_eq!((answer.status(), answer.text()), (200, "{\"well\":1}"));
    }

    // Plain text gets no HTTP, and a handshake that is never finished gets an end.
    let mut plain = Wire::connect(router.address).await;
    plain.send(&Request::chat("hi").bytes()).await;
    plain.drained().await;
    let mut silent = Wire::connect(router.address).await;
    silent.drained().await;
    assert_eq!(replica.hits(), 3);
}
