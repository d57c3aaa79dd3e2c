//! The two text formats of metrics. What is written is `OpenMetrics`; Prometheus' older format, which is for
//! clients that do not ask for the other, names counters in their comments as they stand in the lines, and has
//! neither units nor an end.

use std::fmt::Write as _;

/// How an example begins, which only `OpenMetrics` has.
const EXEMPLAR: &str = " # {trace_id=\"";

/// What a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    Prometheus,
    OpenMetrics,
}

impl MetricsFormat {
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Writes `OpenMetrics` in this format.
    pub fn write(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Prometheus => to_prometheus(&text),
        }
    }
}

fn to_prometheus(text: &str) -> String {
    let counters: Vec<&str> = text
        .lines()
        .filter_map(|it| it.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let comment = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        let Some((name, rest)) = comment.and_then(|it| it.split_once(' ')) else {
            if !line.starts_with("# ") {
                out.push_str(line.rfind(EXEMPLAR).map_or(line, |at| &line[..at]));
                out.push('\n');
            }
            continue;
        };
        let total = if counters.contains(&name) { "_total" } else { "" };
        // Writing to a string does not fail.
        _ = writeln!(out, "{} {name}{total} {rest}", &line[..6]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_left_out_where_the_format_has_none() {
        let open =
            "# TYPE a histogram\na_bucket{le=\"1\"} 2 # {trace_id=\"4bf9\"} 0.5 1.0\n# EOF\n";
        let old = "# TYPE a histogram\na_bucket{le=\"1\"} 2\n";
        assert_eq!(MetricsFormat::Prometheus.write(open.to_owned()), old);
    }

    #[test]
    fn counters_are_named_as_in_their_lines_and_the_end_is_left_out() {
        let open = "# HELP a Things.\n# TYPE a counter\na_total{x=\"# TYPE\"} 1\n# HELP b Size.\n\
                    # TYPE b gauge\n# UNIT b bytes\nb 2\n# EOF\n";
        let old = "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"# TYPE\"} 1\n\
                   # HELP b Size.\n# TYPE b gauge\nb 2\n";
        assert_eq!(MetricsFormat::Prometheus.write(open.to_owned()), old);
        assert_eq!(MetricsFormat::OpenMetrics.write(open.to_owned()), open);
    }
}
