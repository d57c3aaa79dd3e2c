//! From when until when a certificate holds. The two dates are read out of its DER (RFC 5280, section 4.1) and nothing
//! else is: whether the certificate is any good is for rustls to say. Any bytes may come.

/// The dates of one certificate, in seconds of Unix time; below 0 before 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) begins_s: i64,
    pub(super) ends_s: i64,
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which the oldest certificates leave out.
const VERSION: u8 = 0xa0;

impl Validity {
    /// Reads the dates of a certificate; nothing of what is none.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let (certificate, _) = take(der, &[SEQUENCE])?;
        let (mut body, _) = take(certificate, &[SEQUENCE])?;
        if let Some((_, rest)) = take(body, &[VERSION]) {
            body = rest;
        }
        // The serial number, the algorithm of the signature, and the issuer.
        for tag in [INTEGER, SEQUENCE, SEQUENCE] {
            body = take(body, &[tag])?.1;
        }
        let (dates, _) = take(body, &[SEQUENCE])?;
        let (begins_s, rest) = take_time(dates)?;
        let (ends_s, _) = take_time(rest)?;
        Some(Self { begins_s, ends_s })
    }
}

/// Takes a value with one of these tags off the front; returns it, and what comes after it.
fn take<'a>(der: &'a [u8], tags: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, mut rest) = rest.split_first().filter(|_| tags.contains(tag))?;
    let mut length = usize::from(*first);
    if 0x80 <= *first {
        // The length of the length, and the length itself: no certificate takes more than four bytes for it.
        let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if bytes.is_empty() || 4 < bytes.len() {
            return None;
        }
        length = bytes.iter().fold(0, |all, it| all << 8 | usize::from(*it));
        rest = after;
    }
    rest.split_at_checked(length)
}

fn take_time(der: &[u8]) -> Option<(i64, &[u8])> {
    let is_short = der.first() == Some(&UTC_TIME);
    let (text, rest) = take(der, &[UTC_TIME, GENERALIZED_TIME])?;
    let digits = text.strip_suffix(b"Z")?;
    let year_digits = if is_short { 2 } else { 4 };
    if digits.len() != year_digits + 10 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |it: &[u8]| it.iter().fold(0, |all, it| 10 * all + i64::from(it - b'0'));
    let (year, others) = digits.split_at(year_digits);
    let year = match number(year) {
        // Two digits mean 1950 to 2049.
        short @ 0..50 if is_short => 2000 + short,
        short if is_short => 1900 + short,
        year => year,
    };
    let mut others = others.chunks(2).map(number);
    let [month, day, hour, minute, second] = std::array::from_fn(|_| others.next().unwrap_or(0));
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    let unix_s = days_of(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    is_date.then_some((unix_s, rest))
}

/// Counts the days from 1970 to a date of the Gregorian calendar. Years begin in March, so that a leap day is the last
/// of its year.
const fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes a value with its tag and its length.
    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    fn certificate(version: &[u8], dates: &[u8]) -> Vec<u8> {
        let parts =
            [version, &value(INTEGER, b"1"), &value(SEQUENCE, b""), &value(SEQUENCE, b"issuer")];
        let body = [&parts.concat(), &value(SEQUENCE, dates)[..], b"subject"].concat();
        value(SEQUENCE, &[&value(SEQUENCE, &body)[..], b"signature"].concat())
    }

    fn dates(not_before: &str, not_after: &str) -> Option<(i64, i64)> {
        let time = |text: &str| {
            let tag = if text.len() == 13 { UTC_TIME } else { GENERALIZED_TIME };
            value(tag, text.as_bytes())
        };
        let dates = [time(not_before), time(not_after)].concat();
        let read = |version: &[u8]| {
            let it = Validity::read(&certificate(version, &dates))?;
            Some((it.begins_s, it.ends_s))
        };
        let old = read(b"");
        assert_eq!(read(&value(VERSION, b"2")), old);
        old
    }

    #[test]
    fn both_forms_of_a_date_are_read() {
        assert_eq!(dates("700101000000Z", "20380119031408Z"), Some((0, 1 << 31)));
        assert_eq!(dates("000229235959Z", "491231235959Z"), Some((951_868_799, 2_524_607_999)));
        assert_eq!(
            dates("500101000000Z", "99991231235959Z"),
            Some((-631_152_000, 253_402_300_799))
        );
    }

    #[test]
    fn what_is_no_date_is_not_read() {
        let year = "20250101000000Z";
        for wrong in ["20251301000000Z", "20250100000000Z", "2025010100000Z", "20250101000000", ""]
        {
            assert_eq!(dates(year, wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_may_come(bytes in prop::collection::vec(any::<u8>(), 0..64), cut in 0..128_usize) {
            _ = Validity::read(&bytes);
            let time = value(GENERALIZED_TIME, b"20250101000000Z");
            let whole = certificate(b"", &[time.clone(), time].concat());
            prop_assert!(Validity::read(&whole).is_some());
            let end = cut.min(whole.len() - 1);
            prop_assert!(Validity::read(&whole[..end]).is_none(), "cut off at {end}");
        }
    }
}
