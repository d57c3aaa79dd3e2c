//! The certificates that the router shows: taken up anew when their files change.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;

use super::Router;
use crate::tls::ServerTls;

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
}
