//! What a request claims: its class and its deadlines, read from headers and from what the body
//! says. Our own header is read strictly, because a misspelt class should not go unnoticed; others'
//! headers that make no sense are taken for absent, because they may be meant for another program.

use std::time::Duration;

use cleave_core::domain::Moment;
use cleave_core::protocol::Urgency;
use cleave_core::queue::{Claim, ClassId, Classes};
use http::{HeaderMap, HeaderName};

use super::headers::values_of;
use super::tenants::RequestTenant;

/// The names of the headers that are read here, by what they say.
struct ClaimNames {
    class: [HeaderName; 1],
    priority: [HeaderName; 1],
    timeout_ms: [HeaderName; 1],
    ttl: [HeaderName; 2],
    ttft_ms: [HeaderName; 3],
}

static NAMES: ClaimNames = ClaimNames {
    class: [HeaderName::from_static("x-cleave-class")],
    priority: [HeaderName::from_static("x-priority")],
    timeout_ms: [HeaderName::from_static("x-request-timeout-ms")],
    // llm-d's names, the present one first.
    ttl: [
        HeaderName::from_static("x-llm-d-inference-ttl"),
        HeaderName::from_static("x-gateway-inference-ttl"),
    ],
    ttft_ms: [
        HeaderName::from_static("x-llm-d-slo-ttft-ms"),
        HeaderName::from_static("x-gateway-slo-ttft-ms"),
        HeaderName::from_static("x-slo-ttft-ms"),
    ],
};

impl ClaimNames {
    /// Tells whether a header is one of them; nearly all are told by their beginning.
    fn has(&self, name: &HeaderName) -> bool {
        let Self { class, priority, timeout_ms, ttl, ttft_ms } = self;
        name.as_str().starts_with("x-")
            && (class.contains(name)
                || priority.contains(name)
                || timeout_ms.contains(name)
                || ttl.contains(name)
                || ttft_ms.contains(name))
    }
}

/// No client waits longer than this for an answer.
const SPAN_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// There is no class of the name that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownClass {
    pub(super) available: String,
}

/// Reads what a request claims, as far as its caller may claim it.
pub(super) fn claim(
    now: Moment,
    headers: &HeaderMap,
    urgency: &Urgency,
    caller: &RequestTenant<'_>,
    classes: &Classes,
    bytes: usize,
) -> Result<Claim, UnknownClass> {
    // Most requests claim nothing, which one look at their headers tells.
    let none = HeaderMap::new();
    let headers = if headers.keys().any(|it| NAMES.has(it)) { headers } else { &none };
    let after = |span: Option<Duration>| span.map(|it| now + it);
    Ok(Claim {
        tenant: caller.tenant,
        weight: caller.weight(),
        class: caller.class(asked_class(headers, urgency, classes)?),
        sent_by: after(first(headers, &NAMES.ttl, read_span)),
        first_token_by: after(first(headers, &NAMES.ttft_ms, read_ms)),
        done_by: after(first(headers, &NAMES.timeout_ms, read_ms)),
        bytes,
    })
}

fn asked_class(
    headers: &HeaderMap,
    urgency: &Urgency,
    classes: &Classes,
) -> Result<Option<ClassId>, UnknownClass> {
    if let Some(value) = headers.get(&NAMES.class[0]) {
        let found = value.to_str().ok().and_then(|it| classes.find(it.trim()));
        return found.map(Some).ok_or_else(|| UnknownClass {
            available: classes.iter().map(|it| it.1.name.as_str()).collect::<Vec<_>>().join(", "),
        });
    }
    let header = first(headers, &NAMES.priority, |it| {
        by_word(it, classes).or_else(|| by_number(it, classes))
    });
    let tier = || by_word(urgency.service_tier.as_deref()?, classes);
    let priority = || Some(classes.below_default(urgency.priority?.signum()));
    Ok(header.or_else(tier).or_else(priority))
}

/// Reads a class, or a tier by the words that APIs use for it.
fn by_word(word: &str, classes: &Classes) -> Option<ClassId> {
    match word {
        "priority" => Some(classes.below_default(-1)),
        "default" | "auto" | "standard_only" => Some(classes.default_id()),
        "flex" => Some(classes.below_default(1)),
        _ => classes.find(word),
    }
}

/// Reads a number as engines do: 0 is the default, what is below goes earlier.
fn by_number(text: &str, classes: &Classes) -> Option<ClassId> {
    let number: i64 = text.parse().ok()?;
    Some(classes.below_default(number.signum()))
}

fn first<T>(
    headers: &HeaderMap,
    names: &[HeaderName],
    read: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    values_of(headers, names).filter_map(|it| it.to_str().ok()).map(str::trim).find_map(read)
}

/// Reads milliseconds. Less than none is none: such a request is late already.
fn read_ms(text: &str) -> Option<Duration> {
    let ms: f64 = text.parse().ok().filter(|it: &f64| !it.is_nan())?;
    Some(Duration::try_from_secs_f64(ms.max(0.0) / 1e3).unwrap_or(SPAN_MAX).min(SPAN_MAX))
}

/// Reads a span with its unit, as in `30s`, or milliseconds; less than none is none here too.
fn read_span(text: &str) -> Option<Duration> {
    let with_unit = || {
        let (span, span_max) = match text.strip_prefix('-') {
            Some(past) => (past, Duration::ZERO),
            None => (text, SPAN_MAX),
        };
        humantime::parse_duration(span).ok().map(|it| it.min(span_max))
    };
    read_ms(text).or_else(with_unit)
}

#[cfg(test)]
mod tests {
    use cleave_core::queue::Tenant;
    use http::HeaderValue;

    use super::super::tenants::Identity;
    use super::*;

    const NOW: Moment = Moment::from_nanos(1_000_000_000);

    fn read(
        headers: &[(&'static str, &'static str)],
        urgency: Urgency,
    ) -> Result<Claim, UnknownClass> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let identity = Identity::Keyless;
        let caller =
            RequestTenant { tenant: Tenant(7), salt: 0, identity, settings: None, at: None };
        claim(NOW, &headers.collect(), &urgency, &caller, &Classes::default(), 10)
    }

    fn class(headers: &[(&'static str, &'static str)], urgency: Urgency) -> Option<u8> {
        read(headers, urgency).unwrap().class.map(|it| it.0)
    }

    fn body(priority: Option<i64>, tier: Option<&str>) -> Urgency {
        Urgency { priority, service_tier: tier.map(ToOwned::to_owned) }
    }

    #[test]
    fn a_class_comes_from_the_header_then_from_the_body() {
        let none = || body(None, None);
        assert_eq!(class(&[], none()), None);
        assert_eq!(class(&[("x-cleave-class", "Batch")], body(Some(-1), None)), Some(2));
        assert_eq!(class(&[("x-priority", "-100")], none()), Some(0));
        assert_eq!(class(&[("x-priority", "batch")], none()), Some(2));
        assert_eq!(class(&[], body(Some(1), Some("priority"))), Some(0));
        assert_eq!(class(&[], body(None, Some("flex"))), Some(2));
        assert_eq!(class(&[], body(Some(i64::MAX), None)), Some(2));
        assert_eq!(class(&[], body(Some(0), None)), Some(1));
        assert_eq!(class(&[], body(None, Some("platinum"))), None);
        let unknown = read(&[("x-cleave-class", "gold")], none()).unwrap_err();
        assert_eq!(unknown.available, "interactive, standard, batch");
    }

    #[test]
    fn deadlines_are_read_by_all_their_names() {
        let at = |ms: u64| Some(NOW + Duration::from_millis(ms));
        let one = |name, value| read(&[(name, value)], body(None, None)).unwrap();
        assert_eq!(one("x-request-timeout-ms", "1500").done_by, at(1_500));
        assert_eq!(one("x-llm-d-inference-ttl", "30s").sent_by, at(30_000));
        assert_eq!(one("x-gateway-inference-ttl", "250").sent_by, at(250));
        assert_eq!(one("x-llm-d-slo-ttft-ms", "200").first_token_by, at(200));
        assert_eq!(
            one("x-slo-ttft-ms", "0.5").first_token_by,
            Some(NOW + Duration::from_micros(500))
        );
    }

    #[test]
    fn deadlines_that_make_no_sense_do_no_harm() {
        let done =
            |value| read(&[("x-request-timeout-ms", value)], body(None, None)).unwrap().done_by;
        assert_eq!(done("-5"), Some(NOW), "late already");
        let sent =
            |value| read(&[("x-llm-d-inference-ttl", value)], body(None, None)).unwrap().sent_by;
        assert_eq!((sent("-3"), sent("-3s")), (Some(NOW), Some(NOW)), "with or without a unit");
        assert_eq!((sent("-"), sent("--3s"), sent("-soon")), (None, None, None));
        assert_eq!(done("1e300"), Some(NOW + SPAN_MAX));
        assert_eq!(done("inf"), Some(NOW + SPAN_MAX));
        for nonsense in ["NaN", "soon", "", "12 34", "0x10"] {
            assert_eq!(done(nonsense), None, "{nonsense}");
        }
    }
}
