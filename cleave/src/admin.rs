//! Where a router's admin port is and what opens it, the same for every command that asks there.
//! The token is read from a file and never from a flag, because every user of the machine can see
//! flags.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use cleave_io::tls::{EngineTls, EngineTlsFiles};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

const LIMIT: Duration = Duration::from_secs(5);
const PAGE_BYTES_MAX: usize = 64 << 20;

/// How to reach an admin port.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminPort {
    /// The router's admin port, with or without http://; https:// where it has a certificate
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9090")]
    admin: String,
    /// File that holds the admin token, where the port asks for one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// PEM file of the CA that signs the admin port's certificate; those of the system without one
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// An admin port, ready to be asked. Every question has a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct AdminClient {
    /// HOST:PORT.
    authority: String,
    tls: Option<Arc<EngineTls>>,
    token: Option<String>,
}

impl AdminPort {
    /// Reads what opens the port.
    pub(crate) fn client(&self) -> anyhow::Result<AdminClient> {
        let (authority, is_secure) = self.authority()?;
        let files = EngineTlsFiles { ca: self.ca.clone(), ..EngineTlsFiles::default() };
        let tls = is_secure.then(|| EngineTls::read(&files, None)).transpose()?;
        let (authority, token) = (authority.to_owned(), self.token()?);
        Ok(AdminClient { authority, tls: tls.map(Arc::new), token })
    }

    /// Names the port as HOST:PORT, and tells whether it is under TLS.
    fn authority(&self) -> anyhow::Result<(&str, bool)> {
        let given = self.admin.trim_end_matches('/');
        match given.split_once("://") {
            None => Ok((given, self.ca.is_some())),
            Some(("http", authority)) => Ok((authority, false)),
            Some(("https", authority)) => Ok((authority, true)),
            Some(_) => bail!("{given}: give the admin port as http://HOST:PORT"),
        }
    }

    /// Reads the token, if one is given.
    fn token(&self) -> anyhow::Result<Option<String>> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the token in {}", file.display()))?;
        Ok(Some(text.trim().to_owned()))
    }
}

impl AdminClient {
    /// Names a page.
    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.authority)
    }

    /// Reads a page whole, in bounded time.
    pub(crate) async fn read(&self, path: &str) -> anyhow::Result<Bytes> {
        let page = async {
            let body = Limited::new(self.open(path).await?, PAGE_BYTES_MAX).collect().await;
            Ok(body.map_err(anyhow::Error::from_boxed)?.to_bytes())
        };
        timeout(LIMIT, page).await.context("no answer in time").flatten()
    }

    /// Opens a page that may never end; one that is refused is an error in the port's own words.
    pub(crate) async fn open(&self, path: &str) -> anyhow::Result<Incoming> {
        let answer = self.ask(path).await.with_context(|| {
            format!("no answer from a router's admin port at {}", self.authority)
        })?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            StatusCode::UNAUTHORIZED => bail!("the admin port asks for a token: give --token-file"),
            StatusCode::FORBIDDEN => {
                bail!("it does not go by this name: give its address, or list it in admin.hosts")
            }
            status => {
                let body = Limited::new(answer.into_body(), PAGE_BYTES_MAX).collect().await;
                let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
                let words = String::from_utf8_lossy(&body);
                if status == StatusCode::NOT_FOUND {
                    bail!("{}", words.trim());
                }
                bail!("the admin port answered {status}: {}", words.trim())
            }
        }
    }

    async fn ask(&self, path: &str) -> anyhow::Result<Response<Incoming>> {
        let stream = timeout(LIMIT, TcpStream::connect(&self.authority)).await??;
        let Some(tls) = &self.tls else { return self.ask_over(stream, path).await };
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |it| it.0);
        let name = tls.server_name(host).context("not the name of a host")?;
        let secure = timeout(LIMIT, tls.connector().connect(name, stream)).await??;
        self.ask_over(secure, path).await
    }

    async fn ask_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        path: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the answer's body.
        TaskTracker::new().spawn(connection);
        let mut request = Request::get(path).header(header::HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(timeout(LIMIT, sender.send_request(request.body(Empty::<Bytes>::new())?)).await??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(admin: &str) -> AdminPort {
        AdminPort { admin: admin.to_owned(), token_file: None, ca: None }
    }

    #[test]
    fn the_scheme_may_be_left_out() {
        for given in ["127.0.0.1:9090", "http://127.0.0.1:9090", "http://127.0.0.1:9090/"] {
            assert_eq!(port(given).authority().unwrap(), ("127.0.0.1:9090", false));
        }
        assert_eq!(port("https://a:1/").authority().unwrap(), ("a:1", true));
        let said = port("ftp://127.0.0.1:9090").authority().unwrap_err().to_string();
        assert!(said.contains("http://HOST:PORT"), "{said}");
    }

    #[test]
    fn a_token_is_read_without_the_end_of_its_line() {
        let file = std::env::temp_dir().join(format!("cleave-token-{}", std::process::id()));
        std::fs::write(&file, "hunter2\n").unwrap();
        let port = AdminPort { token_file: Some(file.clone()), ..port("a:1") };
        let token = port.token().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(token.as_deref(), Some("hunter2"));
        assert!(port.token().unwrap_err().to_string().contains("cleave-token-"));
    }
}
