//! Traces, from what the user said to what telemetry relies on.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::access;
use super::problem::{Findings, Wrong, join};
use super::raw::TracesSection;
use crate::telemetry::TraceSettings;
use crate::tls::ShownTo;

/// Settles the section; nothing where there is no collector.
pub(super) fn settle(raw: TracesSection, findings: &mut Findings) -> Option<TraceSettings> {
    let mut headers = HeaderMap::new();
    for (name, value) in raw.headers {
        let value = HeaderValue::try_from(value.0.0).ok().map(|mut it| {
            it.set_sensitive(true);
            it
        });
        if let (Ok(name), Some(value)) = (HeaderName::try_from(&name), value) {
            headers.insert(name, value);
        } else {
            let wrong = Wrong::new("is not a header", "use letters, digits, `-` and `_`");
            findings.report(&join("traces.headers", &name), wrong);
        }
    }
    let is_tls_said = !raw.tls.is_empty();
    let endpoint = raw.endpoint.map(|it| it.0.0);
    let Some(endpoint) = endpoint else {
        if is_tls_said || !headers.is_empty() {
            let remedy = "add traces.endpoint, or leave the section out";
            findings.report("traces", Wrong::new("says how but not where", remedy));
        }
        return None;
    };
    let is_secure = endpoint.scheme_str() == Some("https");
    let tls = is_secure
        .then(|| access::read_engine_tls("traces.tls", raw.tls, ShownTo::Collector, findings))
        .flatten();
    Some(TraceSettings {
        endpoint,
        protocol: raw.protocol.0,
        headers,
        tls,
        service_name: raw.service_name,
        sample: raw.sample,
        follows_parent: raw.follow_parent,
        interval: raw.interval.0,
        timeout: raw.timeout.0,
    })
}
