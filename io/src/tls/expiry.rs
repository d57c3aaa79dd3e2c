//! The router's own certificates, and when they end: clients, engines and others hang up when they are shown one that
//! has ended. Operators are told in time, once a day, until it is renewed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::pem::read_certs;
use super::validity::Validity;

const DAY: Duration = Duration::from_secs(86_400);
/// How long before its end a certificate is warned of. Those that are renewed by a program are renewed earlier.
const WARNED_BEFORE: Duration = Duration::from_secs(14 * 86_400);
/// The same for one that holds for a short time only: this part of that.
const WARNED_PART: u32 = 5;
/// The last second that can be written as a date.
const DATE_MAX_S: u64 = 253_402_300_799;

/// What a certificate is shown to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShownTo {
    Clients,
    Operators,
    Routers,
    Engines,
    /// Of traces.
    Collector,
    /// That routers share.
    Store,
}

impl ShownTo {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Operators => "operators",
            Self::Routers => "routers",
            Self::Engines => "engines",
            Self::Collector => "collector",
            Self::Store => "store",
        }
    }
}

/// How a certificate stands that needs an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Soon,
    Over,
}

/// One certificate of the router's own; of a chain the one that ends first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    pub shown_to: ShownTo,
    pub file: PathBuf,
    validity: Validity,
}

impl OwnCertificate {
    /// Reads the chain in a PEM file; nothing where it has no dates that can be read.
    pub fn read(shown_to: ShownTo, file: &Path) -> Option<Self> {
        let chain = read_certs(file).ok()?;
        let dates = chain.iter().filter_map(|it| Validity::read(it));
        let validity = dates.min_by_key(|it| it.ends_s)?;
        Some(Self { shown_to, file: file.to_owned(), validity })
    }

    /// When it ends, in seconds of Unix time.
    pub const fn ends_s(&self) -> i64 {
        self.validity.ends_s
    }

    /// Tells whether it has ended, or will soon.
    pub fn ending(&self, now: SystemTime) -> Option<Expiry> {
        let Validity { begins_s, ends_s } = self.validity;
        let whole = Duration::from_secs(u64::try_from(ends_s - begins_s).unwrap_or(0));
        match ends_s - seconds_of(now) {
            ..0 => Some(Expiry::Over),
            left => {
                let left = Duration::from_secs(left.unsigned_abs());
                (left < WARNED_BEFORE.min(whole / WARNED_PART)).then_some(Expiry::Soon)
            }
        }
    }

    /// Says what it is, and how long it holds as seen `now`.
    pub fn describe(&self, now: SystemTime) -> String {
        let left_s = self.ends_s() - seconds_of(now);
        let span = rough(left_s.unsigned_abs());
        let when = date(self.ends_s());
        let how = if left_s < 0 {
            format!("ended at {when}, {span} ago")
        } else {
            format!("ends at {when}, in {span}")
        };
        format!("{self} {how}")
    }
}

impl fmt::Display for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shown_to, file, .. } = self;
        let viewer = match shown_to {
            ShownTo::Clients => "clients are",
            ShownTo::Operators => "operators are",
            ShownTo::Routers => "other routers are",
            ShownTo::Engines => "engines are",
            ShownTo::Collector => "the collector of traces is",
            ShownTo::Store => "etcd is",
        };
        write!(f, "the certificate that {viewer} shown ({})", file.display())
    }
}

fn seconds_of(now: SystemTime) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn date(unix_s: i64) -> String {
    let at = u64::try_from(unix_s).unwrap_or(0).min(DATE_MAX_S);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(at)).to_string()
}

/// Writes a time as people say it.
fn rough(seconds: u64) -> String {
    match seconds {
        0..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// What operators were told of, and when.
#[derive(Debug, Default)]
pub struct ExpiryWatch(Vec<(OwnCertificate, Expiry, SystemTime)>);

impl ExpiryWatch {
    /// Lists the certificates that operators are to be told of now: when the end is near, when it came, and a day
    /// after they were told last.
    pub fn due<'a>(
        &mut self,
        now: SystemTime,
        all: &'a [OwnCertificate],
    ) -> Vec<(&'a OwnCertificate, Expiry)> {
        let ending = all.iter().filter_map(|it| Some((it, it.ending(now)?)));
        let ending: Vec<(&OwnCertificate, Expiry)> = ending.collect();
        let is_fresh = |at: SystemTime| now.duration_since(at).is_ok_and(|it| it < DAY);
        self.0.retain(|(it, how, at)| is_fresh(*at) && ending.contains(&(it, *how)));
        let is_told = |it: &(&OwnCertificate, Expiry)| {
            self.0.iter().any(|(told, how, _)| (told, *how) == *it)
        };
        let due: Vec<_> = ending.into_iter().filter(|it| !is_told(it)).collect();
        self.0.extend(due.iter().map(|(it, how)| (OwnCertificate::clone(it), *how, now)));
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: i64 = 86_400;

    fn certificate(days: i64) -> OwnCertificate {
        let validity = Validity { begins_s: 0, ends_s: days * DAY_S };
        OwnCertificate { shown_to: ShownTo::Clients, file: "/etc/cleave/tls.crt".into(), validity }
    }

    fn at(seconds: i64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs())
    }

    #[test]
    fn two_weeks_before_its_end_a_certificate_is_warned_of_and_a_short_one_in_its_last_fifth() {
        let (year, day) = (certificate(365), certificate(1));
        assert_eq!(year.ending(at(351 * DAY_S)), None);
        assert_eq!(year.ending(at(351 * DAY_S + 1)), Some(Expiry::Soon));
        assert_eq!(year.ending(at(365 * DAY_S)), Some(Expiry::Soon), "the last second counts");
        assert_eq!(year.ending(at(365 * DAY_S + 1)), Some(Expiry::Over));
        assert_eq!(day.ending(at(DAY_S * 4 / 5)), None, "it is always within two weeks");
        assert_eq!(day.ending(at(DAY_S * 4 / 5 + 1)), Some(Expiry::Soon));
    }

    #[test]
    fn operators_are_told_once_a_day_and_at_once_when_it_ends_or_another_comes() {
        let mut watch = ExpiryWatch::default();
        let (old, new) = ([certificate(365)], [certificate(730)]);
        let begin = 360 * DAY_S;
        assert_eq!(watch.due(at(begin), &old), [(&old[0], Expiry::Soon)]);
        assert_eq!(watch.due(at(begin + DAY_S - 1), &old), []);
        assert_eq!(watch.due(at(begin + DAY_S), &old), [(&old[0], Expiry::Soon)]);
        let end = 365 * DAY_S + 60;
        assert_eq!(watch.due(at(end - 120), &old).len(), 1);
        assert_eq!(watch.due(at(end), &old), [(&old[0], Expiry::Over)], "within the day");
        assert_eq!(watch.due(at(end), &new), [], "it was renewed");
        assert_eq!(watch.due(at(end), &old).len(), 1, "and put back");
    }

    #[test]
    fn it_is_said_which_one_it_is_and_how_long_it_holds() {
        let text = certificate(365).describe(at(360 * DAY_S));
        let want = "the certificate that clients are shown (/etc/cleave/tls.crt) ends at 1971-01-01T00:00:00Z, in 5 days";
        assert_eq!(text, want);
        let text = certificate(1).describe(at(DAY_S + 7_300));
        assert!(text.ends_with("ended at 1970-01-02T00:00:00Z, 2 hours ago"), "{text}");
        let endless = Validity { begins_s: 0, ends_s: i64::MAX };
        let text = OwnCertificate { validity: endless, ..certificate(1) }.describe(at(0));
        assert!(text.contains("ends at 9999-12-31T23:59:59Z"), "{text}");
    }
}
