//! What is written is read again, but for secrets, which are never written.

use super::*;

#[test]
fn every_example_reads_and_every_default_is_written_as_it_is_read() {
    fn check<K: TextValue>(text: &str) {
        assert_eq!(K::read(text).map(|it| it.write()).ok().as_deref(), Some(text));
    }
    check::<SocketAddr>(SocketAddr::EXAMPLE);
    check::<Duration>(Duration::EXAMPLE);
    check::<Duration>("1h 5m");
    check::<Origin>(Origin::EXAMPLE);
    check::<HeaderName>(HeaderName::EXAMPLE);
    check::<PathAndQuery>(PathAndQuery::EXAMPLE);
    check::<AllowedPath>(AllowedPath::EXAMPLE);
    check::<LogFilter>(LogFilter::EXAMPLE);
    check::<HostName>(HostName::EXAMPLE);
    PolicyKind::choices().into_iter().for_each(check::<PolicyKind>);
    CacheScope::choices().into_iter().for_each(check::<CacheScope>);
    LogFormat::choices().into_iter().for_each(check::<LogFormat>);
    check::<HashedKey>(HashedKey::EXAMPLE);
    check::<WorkloadId>(WorkloadId::EXAMPLE);
    UnknownKeys::choices().into_iter().for_each(check::<UnknownKeys>);
}

#[test]
fn a_secret_is_never_written() {
    assert_eq!(Secret::read("hunter2").unwrap().write(), "…");
}
