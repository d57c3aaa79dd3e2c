//! The stream to another router, plain or under TLS with certificates on both ends, and what is done about a router that is
//! not admitted: it is logged, counted by the reason, and where an operator can mend it, told once a minute.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tracing::warn;

use super::Cluster;
use super::handshake::{Refused, Side};
use crate::telemetry::Incident;
use crate::tls::PeerTls;

/// How long the same trouble with the same router is not told again.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
/// Troubles that are remembered.
const TOLD_MAX: usize = 256;
/// By these the other end says that it does not accept a certificate.
const CERTIFICATE_ALERTS: [AlertDescription; 9] = [
    AlertDescription::UnknownCA,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateUnknown,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateRequired,
    AlertDescription::DecryptError,
    AlertDescription::AccessDenied,
];

/// What carries the frames of a connection.
pub(super) trait PeerSocket: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> PeerSocket for S {}

/// Puts a connection under TLS where routers know each other by certificates. `address` is what was dialled.
pub(super) async fn secure(
    stream: TcpStream,
    side: Side,
    tls: Option<&PeerTls>,
    address: &str,
) -> Result<Box<dyn PeerSocket>, Refused> {
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    match side {
        Side::Dialled => {
            let name = tls.name_at(address).ok_or_else(|| io::Error::other("it has no name"))?;
            Ok(Box::new(tls.connector().connect(name, stream).await?))
        }
        Side::Accepted => {
            let stream = tls.acceptor().accept(stream).await?;
            tls.check_dialler(stream.get_ref().1.peer_certificates()).map_err(refusal)?;
            Ok(Box::new(stream))
        }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>()) {
            Some(tls) => refusal(tls.clone()),
            None => Self::Io(error),
        }
    }
}

/// Says what an error of TLS means between two routers.
fn refusal(error: rustls::Error) -> Refused {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    let text = error.to_string();
    if matches!(error, InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) {
        Refused::Certificate(text)
    } else if matches!(error, InvalidMessage(_)) {
        Refused::Plain
    } else if matches!(error, AlertReceived(alert) if CERTIFICATE_ALERTS.contains(&alert)) {
        Refused::NotAccepted(text)
    } else {
        Refused::Tls(text)
    }
}

/// What was told of routers that were not admitted: by their address and the reason, and when.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BTreeMap<(String, &'static str), Instant>>);

impl Refusals {
    /// Notes a refusal; tells whether it is to be told.
    fn note(&self, address: &str, reason: &'static str, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.duration_since(*at) < TOLD_AGAIN);
        let key = (address.to_owned(), reason);
        if told.contains_key(&key) || TOLD_MAX <= told.len() {
            return false;
        }
        told.insert(key, now);
        true
    }
}

impl Cluster {
    /// Logs, counts and tells that a router was not admitted.
    pub(super) fn on_refused(&self, address: &str, error: &Refused) {
        let reason = error.reason();
        warn!(address, %error, reason, "another router is not admitted");
        self.router.metrics.on_router_refused(reason);
        if error.is_alert() && self.refusals.note(address, reason, Instant::now()) {
            self.router.events.publish(Incident {
                kind: "cluster",
                state: "refused",
                reason: Some(reason),
                detail: Some(format!("the router at {address} is not admitted: {error}")),
                alert: true,
                ..Incident::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_is_told_once_a_minute_and_no_more_are_remembered_than_fit() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        assert!(refusals.note("a:1", "plain", start));
        assert!(!refusals.note("a:1", "plain", start + TOLD_AGAIN / 2));
        assert!(refusals.note("a:1", "secret", start) && refusals.note("b:1", "plain", start));
        assert!(refusals.note("a:1", "plain", start + TOLD_AGAIN));
        let later = start + 3 * TOLD_AGAIN;
        let told = (0..2 * TOLD_MAX).filter(|it| refusals.note(&it.to_string(), "plain", later));
        assert_eq!(told.count(), TOLD_MAX);
    }
}
