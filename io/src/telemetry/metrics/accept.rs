//! Which text format of metrics a client takes, by the weights of its `Accept` headers.

use cleave_core::domain::whole;

use super::text::MetricsFormat;

/// How closely a range names a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    Any,
    Family,
    Named,
    Version,
}

/// How much a format is wanted: what is refused the least, then what no range covers, then by weight; among equals
/// what is named more closely.
type Acceptance = (u64, Option<Closeness>);

impl MetricsFormat {
    /// Reads what `Accept` headers say. Of two formats that are named and wanted alike it is `OpenMetrics`, which
    /// says more; where neither is named the older one, which more programs read. One of them is written also for a
    /// client that takes neither.
    pub fn accepted(accept: &[&str]) -> Self {
        let [open, old] = [Self::OpenMetrics, Self::Prometheus].map(|it| wanted(it, accept));
        let is_named = Some(Closeness::Named) <= open.1;
        if open > old || open == old && is_named { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// Judges a format by the range that names it most closely.
fn wanted(format: MetricsFormat, accept: &[&str]) -> Acceptance {
    let ranges = accept.iter().flat_map(|it| it.split(',')).filter_map(|it| covers(format, it));
    match ranges.max() {
        None => (1, None),
        Some((closeness, 0)) => (0, Some(closeness)),
        Some((closeness, thousandths)) => (1 + thousandths, Some(closeness)),
    }
}

/// Reads one range with its weight in thousandths, if it covers the format.
fn covers(format: MetricsFormat, range: &str) -> Option<(Closeness, u64)> {
    let (kind, family, version) = match format {
        MetricsFormat::Prometheus => ("text/plain", "text/*", "0.0.4"),
        MetricsFormat::OpenMetrics => ("application/openmetrics-text", "application/*", "1.0.0"),
    };
    let mut words = range.split(';').map(str::trim);
    let mut closeness = match words.next()? {
        it if it.eq_ignore_ascii_case(kind) => Closeness::Named,
        it if it.eq_ignore_ascii_case(family) => Closeness::Family,
        "*/*" => Closeness::Any,
        _ => return None,
    };
    let mut thousandths = 1_000;
    for (name, value) in words.filter_map(|it| it.split_once('=')) {
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name.eq_ignore_ascii_case("q") {
            let weight = value.parse::<f64>().ok().filter(|it| (0.0..=1.0).contains(it))?;
            thousandths = whole((weight * 1e3).round());
        } else if name.eq_ignore_ascii_case("version") {
            if value != version {
                return None;
            }
            closeness = Closeness::Version;
        }
        // How names are escaped and letters are written makes no difference here.
    }
    Some((closeness, thousandths))
}

#[cfg(test)]
mod tests {
    use super::MetricsFormat::{OpenMetrics, Prometheus};
    use super::*;

    fn accepted(accept: &str) -> MetricsFormat {
        MetricsFormat::accepted(&[accept])
    }

    #[test]
    fn what_prometheus_sends_is_answered_with_openmetrics() {
        for accept in [
            // 3, and 2 from 2.39 on.
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,\
             */*;q=0.2",
            "application/openmetrics-text;version=1.0.0,\
             application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,\
             */*;q=0.1",
        ] {
            assert_eq!(accepted(accept), OpenMetrics, "{accept}");
        }
        // One that knows no OpenMetrics of today, and one that is told to take the older format first.
        let before =
            "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(accepted(before), Prometheus);
        let old = "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2";
        assert_eq!(accepted(old), Prometheus);
    }

    #[test]
    fn weights_decide_then_closeness_then_what_says_more() {
        for (accept, want) in [
            ("text/plain", Prometheus),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; Q=0.2, text/plain; q=\"0.1\"", OpenMetrics),
            ("application/openmetrics-text;q=0.5,text/plain", Prometheus),
            ("text/plain,application/openmetrics-text", OpenMetrics),
            ("application/openmetrics-text,text/plain;version=0.0.4", Prometheus),
            ("text/*,application/openmetrics-text", OpenMetrics),
            ("application/*", OpenMetrics),
            ("application/*,*/*", OpenMetrics),
            ("*/*", Prometheus),
            ("application/json", Prometheus),
            ("", Prometheus),
        ] {
            assert_eq!(accepted(accept), want, "{accept}");
        }
        assert_eq!(MetricsFormat::accepted(&[]), Prometheus);
        let lines = ["text/plain;q=0.5", "application/openmetrics-text;q=0.6"];
        assert_eq!(MetricsFormat::accepted(&lines), OpenMetrics, "several headers");
    }

    #[test]
    fn a_weight_of_zero_is_a_refusal() {
        for (accept, want) in [
            ("application/openmetrics-text;q=0", Prometheus),
            ("application/openmetrics-text;q=0.000,*/*", Prometheus),
            ("text/plain;q=0,*/*;q=0.1", OpenMetrics),
            ("text/plain;q=0", OpenMetrics),
            ("*/*;q=0", Prometheus),
            (
                "application/openmetrics-text;version=1.0.0;q=0,application/openmetrics-text",
                Prometheus,
            ),
        ] {
            assert_eq!(accepted(accept), want, "{accept}");
        }
    }

    #[test]
    fn a_weight_that_is_none_takes_its_range_away() {
        for weight in ["x", "-1", "2", "nan", "1e9", ""] {
            let accept = format!("application/openmetrics-text;q={weight},text/plain;q=0.1");
            assert_eq!(accepted(&accept), Prometheus, "{weight}");
        }
    }
}
