//! The certificates that the router shows: taken up anew when their files change, and told of before they end.

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use tokio_rustls::TlsAcceptor;

use super::Router;
use crate::telemetry::Incident;
use crate::tls::{Expiry, OwnCertificate, ServerTls};

impl Router {
    /// Takes up a certificate that was read again. Whether there is TLS at all is settled at the start.
    pub fn renew_certificate(&self, new: Option<&ServerTls>) {
        if let (Some(_), Some(new)) = (&self.settings.tls, new) {
            self.tls.store(Some(Arc::new(new.clone())));
        }
    }

    /// Takes up the admin port's certificate at its start.
    pub(crate) fn set_admin_certificate(&self, own: Option<&ServerTls>) {
        self.admin_tls.store(own.cloned().map(Arc::new));
    }

    /// Takes up the admin port's certificate when it was read again.
    pub fn renew_admin_certificate(&self, new: Option<&ServerTls>) {
        if self.admin_tls.load().is_some() && new.is_some() {
            self.set_admin_certificate(new);
        }
    }

    pub(crate) fn admin_acceptor(&self) -> Option<TlsAcceptor> {
        self.admin_tls.load().as_ref().map(|it| it.acceptor())
    }

    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.tls.load().as_ref().map(|it| it.acceptor())
    }

    /// Takes in which certificates the router shows, as they were read, and tells operators of those that end soon.
    pub fn set_certificates(&self, all: &[OwnCertificate]) {
        let files: Vec<String> = all.iter().map(|it| it.file.display().to_string()).collect();
        let ends = all.iter().zip(&files);
        let ends = ends.map(|(it, file)| (it.shown_to.as_str(), file.as_str(), it.ends_s()));
        self.metrics.set_certificates(ends);
        self.certificates.store(Arc::new(all.to_vec()));
        self.tell_certificates();
    }

    /// Tells operators of certificates that end soon or have ended, each at most once a day.
    pub(super) fn tell_certificates(&self) {
        let (all, now) = (self.certificates.load(), SystemTime::now());
        let mut watch = self.certificate_watch.lock().unwrap_or_else(PoisonError::into_inner);
        for (it, ending) in watch.due(now, &all) {
            self.events.publish(Incident {
                kind: "certificate",
                state: match ending {
                    Expiry::Soon => "expiring",
                    Expiry::Over => "expired",
                },
                detail: Some(it.describe(now)),
                alert: true,
                ..Incident::default()
            });
        }
    }
}
