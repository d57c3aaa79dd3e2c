//! What a store keeps of one pool: its orders or its plan, written as they are told to other routers, with the version
//! of that form before it.

use super::codec::{Malformed, Reader, write_count, write_number};
use super::encoding::{encode_all, read_news};
use super::frame::{VERSION, VERSION_MIN};
use super::news::News;

/// The version since which orders and plans are written as they are now: a router that is older than this one but not
/// than that reads what this one keeps.
const RECORD_VERSION: u32 = 3;
/// No record has more entries.
const ENTRIES_MAX: usize = 1 << 16;

/// Writes news down that are to be kept.
pub fn write_record(news: &[News]) -> Vec<u8> {
    let mut into = Vec::new();
    write_number(&mut into, RECORD_VERSION.into());
    write_count(&mut into, news.len());
    into.extend_from_slice(&encode_all(news));
    into
}

/// Reads orders and plans; whatever else is in a record is passed over.
pub fn read_record(bytes: &[u8]) -> Result<Vec<News>, Malformed> {
    let mut reader = Reader::new(bytes);
    let version = reader.small()?;
    if !(VERSION_MIN..=VERSION).contains(&version) {
        return Err(Malformed::Flawed);
    }
    let count = reader.count(ENTRIES_MAX, 1)?;
    let mut news = Vec::new();
    for _ in 0..count {
        let it = read_news(&mut reader)?;
        if matches!(it, News::Ordered { .. } | News::Assigned(_)) {
            news.push(it);
        }
    }
    if reader.is_empty() { Ok(news) } else { Err(Malformed::Rest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{SharedOrder, Stamp};
    use crate::domain::{Place, RouterId};

    #[test]
    fn orders_come_back_and_nothing_else_does() {
        let stamp = Stamp { number: 3, router: RouterId(9) };
        let order = SharedOrder::Drain { replica: Place(7), is_on: true };
        let ordered = News::Ordered { order, stamp };
        let bytes = write_record(&[ordered.clone(), News::Forgot]);
        assert_eq!(bytes[0], 3, "routers of version 3 read it");
        assert_eq!(read_record(&bytes), Ok(vec![ordered]));
        assert_eq!(read_record(&bytes[..bytes.len() - 1]), Err(Malformed::Short));
        assert_eq!(read_record(&[bytes, vec![0]].concat()), Err(Malformed::Rest));
        assert_eq!(read_record(&[99, 0]), Err(Malformed::Flawed), "of a newer router");
        assert_eq!(read_record(&[]), Err(Malformed::Short));
    }
}
