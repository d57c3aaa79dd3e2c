//! Until when the router's own certificates hold.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// As many as the configuration names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    shown_to: &'static str,
    file: String,
}

#[derive(Debug, Default)]
pub(super) struct CertificateFamilies {
    expiry: Family<CertificateLabel, Gauge>,
}

impl CertificateFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register(
            "cleave_certificate_expiry_timestamp_seconds",
            "When a certificate of the router's own ends, in Unix time",
            self.expiry.clone(),
        );
    }

    /// Sets all of them; those that are not shown any more disappear.
    pub(super) fn set<'a>(&self, all: impl Iterator<Item = (&'static str, &'a str, i64)>) {
        self.expiry.clear();
        for (shown_to, file, ends_s) in all {
            let label = CertificateLabel { shown_to, file: file.to_owned() };
            self.expiry.get_or_create(&label).set(ends_s);
        }
    }
}
