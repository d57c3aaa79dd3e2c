//! The messages of DNS, as far as finding replicas needs them: one question, and the addresses or
//! services in its answer. Bytes from the network are read with every bound checked; whatever does not
//! read is an error, never a guess.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const HEAD_BYTES: usize = 12;
const CLASS_IN: u16 = 1;
/// How often a name may point elsewhere in its message.
const JUMPS_MAX: u32 = 16;
const NAME_BYTES_MAX: usize = 255;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryKind {
    A,
    Aaaa,
    Srv,
}

impl QueryKind {
    const fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
            Self::Srv => 33,
        }
    }
}

/// One thing an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DnsRecord {
    Address(IpAddr),
    Service { priority: u16, port: u16, host: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DnsAnswer {
    pub(super) records: Vec<DnsRecord>,
    /// How long it may be believed; nothing for no records.
    pub(super) ttl: Option<Duration>,
}

/// Why a message cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadMessage {
    #[error("the answer does not read as one")]
    Malformed,
    #[error("the answer is to another question")]
    Unasked,
    #[error("the answer did not fit")]
    Truncated,
    #[error("the name server answered with error {0}")]
    Refused(u8),
}

/// Writes a question.
pub(super) fn question(id: u16, name: &str, kind: QueryKind) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + name.len() + 6);
    out.extend(id.to_be_bytes());
    // Recursion desired; one question and nothing else.
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).unwrap_or(0));
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out.extend(kind.code().to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out
}

/// Reads the answer to a question, which it must repeat. A name that does not exist has no records.
pub(super) fn answer(
    id: u16,
    name: &str,
    kind: QueryKind,
    message: &[u8],
) -> Result<DnsAnswer, BadMessage> {
    let mut reader = MessageReader { message, at: 0 };
    if reader.u16()? != id {
        return Err(BadMessage::Unasked);
    }
    let [flags, code] = reader.u16()?.to_be_bytes();
    if flags & 0x80 == 0 {
        return Err(BadMessage::Unasked);
    }
    let (questions, count) = (reader.u16()?, reader.u16()?);
    reader.at = HEAD_BYTES;
    let repeats = match questions {
        0 => false,
        1 => {
            reader.name()?.eq_ignore_ascii_case(name)
                && (reader.u16()?, reader.u16()?) == (kind.code(), CLASS_IN)
        }
        _ => return Err(BadMessage::Unasked),
    };
    match code & 0x0f {
        // A server that could not read the question, or would not, may leave it out.
        refused @ (1 | 2 | 4..) if repeats || questions == 0 => {
            return Err(BadMessage::Refused(refused));
        }
        _ if !repeats => return Err(BadMessage::Unasked),
        _ if flags & 0x02 != 0 => return Err(BadMessage::Truncated),
        0 => {}
        _ => return Ok(DnsAnswer { records: Vec::new(), ttl: None }),
    }
    let mut found = DnsAnswer { records: Vec::new(), ttl: None };
    for _ in 0..count {
        reader.name()?;
        let (code, class) = (reader.u16()?, reader.u16()?);
        let ttl = Duration::from_secs(reader.u32()?.into());
        let length = usize::from(reader.u16()?);
        let data_at = reader.at;
        reader.take(length)?;
        // Aliases on the way to the records asked for are of no interest, but for how long they hold.
        found.ttl = Some(found.ttl.map_or(ttl, |it| it.min(ttl)));
        if (code, class) == (kind.code(), CLASS_IN) {
            let data = &message[data_at..data_at + length];
            found.records.push(record(kind, message, data_at, data)?);
        }
    }
    Ok(found)
}

fn record(
    kind: QueryKind,
    message: &[u8],
    at: usize,
    data: &[u8],
) -> Result<DnsRecord, BadMessage> {
    let malformed = |_| BadMessage::Malformed;
    match kind {
        QueryKind::A => {
            let octets: [u8; 4] = data.try_into().map_err(malformed)?;
            Ok(DnsRecord::Address(Ipv4Addr::from(octets).into()))
        }
        QueryKind::Aaaa => {
            let octets: [u8; 16] = data.try_into().map_err(malformed)?;
            Ok(DnsRecord::Address(Ipv6Addr::from(octets).into()))
        }
        QueryKind::Srv => {
            let mut reader = MessageReader { message, at };
            let (priority, _weight, port) = (reader.u16()?, reader.u16()?, reader.u16()?);
            Ok(DnsRecord::Service { priority, port, host: reader.name()? })
        }
    }
}

struct MessageReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> MessageReader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], BadMessage> {
        let end = self.at.checked_add(bytes).ok_or(BadMessage::Malformed)?;
        let taken = self.message.get(self.at..end).ok_or(BadMessage::Malformed)?;
        self.at = end;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, BadMessage> {
        let bytes = self.take(2)?.try_into().map_err(|_| BadMessage::Malformed)?;
        Ok(u16::from_be_bytes(bytes))
    }

    fn u32(&mut self) -> Result<u32, BadMessage> {
        let bytes = self.take(4)?.try_into().map_err(|_| BadMessage::Malformed)?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// Reads a name, which may go on elsewhere in the message.
    fn name(&mut self) -> Result<String, BadMessage> {
        let mut name = String::new();
        let mut elsewhere: Option<Self> = None;
        let mut jumps = 0;
        loop {
            let reader = elsewhere.as_mut().unwrap_or(self);
            let length = reader.take(1)?[0];
            match length {
                0 => return Ok(name),
                1..=63 => {
                    let label = reader.take(length.into())?;
                    let is_plain = |it: &u8| it.is_ascii_alphanumeric() || b"-_".contains(it);
                    if !label.iter().all(is_plain) || NAME_BYTES_MAX < name.len() + label.len() {
                        return Err(BadMessage::Malformed);
                    }
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(label.iter().map(|it| char::from(it.to_ascii_lowercase())));
                }
                192.. => {
                    let low = reader.take(1)?[0];
                    jumps += 1;
                    if JUMPS_MAX < jumps {
                        return Err(BadMessage::Malformed);
                    }
                    let at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    elsewhere = Some(Self { message: self.message, at });
                }
                64..=191 => return Err(BadMessage::Malformed),
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes the answer to a question, as a name server would.
    pub(in crate::discovery) fn reply(
        question: &[u8],
        records: &[(QueryKind, u32, Vec<u8>)],
    ) -> Vec<u8> {
        let mut out = question.to_vec();
        out[2..4].copy_from_slice(&[0x81, 0x80]);
        out[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
        for (kind, ttl, data) in records {
            // The name is where the question has it.
            out.extend([0xc0, 12]);
            out.extend(kind.code().to_be_bytes());
            out.extend(CLASS_IN.to_be_bytes());
            out.extend(ttl.to_be_bytes());
            out.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            out.extend_from_slice(data);
        }
        out
    }

    pub(in crate::discovery) fn service(priority: u8, port: u16, host: &str) -> Vec<u8> {
        let mut data = vec![0, priority, 0, 0];
        data.extend(port.to_be_bytes());
        let name = question(0, host, QueryKind::A);
        data.extend_from_slice(&name[HEAD_BYTES..name.len() - 4]);
        data
    }

    #[test]
    fn addresses_and_services_are_read_with_the_shortest_time_to_live() {
        let asked = question(7, "replicas.internal", QueryKind::A);
        let records = [(QueryKind::A, 30, vec![10, 0, 0, 1]), (QueryKind::A, 5, vec![10, 0, 0, 2])];
        let found = answer(7, "replicas.internal", QueryKind::A, &reply(&asked, &records)).unwrap();
        let address = |last| DnsRecord::Address(Ipv4Addr::new(10, 0, 0, last).into());
        assert_eq!(found.records, [address(1), address(2)]);
        assert_eq!(found.ttl, Some(Duration::from_secs(5)));

        let asked = question(7, "_http._tcp.replicas.internal", QueryKind::Srv);
        let records = [(QueryKind::Srv, 9, service(1, 8000, "gpu-0.internal"))];
        let name = "_http._tcp.replicas.internal";
        let found = answer(7, name, QueryKind::Srv, &reply(&asked, &records)).unwrap();
        let host = "gpu-0.internal".to_owned();
        assert_eq!(found.records, [DnsRecord::Service { priority: 1, port: 8000, host }]);
    }

    #[test]
    fn what_is_no_answer_is_an_error_and_no_such_name_is_nobody() {
        let asked = question(7, "replicas.internal", QueryKind::A);
        let sound = reply(&asked, &[(QueryKind::A, 1, vec![1, 2, 3, 4])]);
        let name = "replicas.internal";
        let check = |message: &[u8], want| assert_eq!(answer(7, name, QueryKind::A, message), want);
        check(&asked, Err(BadMessage::Unasked));
        check(&sound[..sound.len() - 1], Err(BadMessage::Malformed));
        assert_eq!(answer(8, name, QueryKind::A, &sound), Err(BadMessage::Unasked));
        let with = |at: usize, byte: u8| {
            let mut message = sound.clone();
            message[at] = byte;
            message
        };
        check(&with(2, 0x83), Err(BadMessage::Truncated));
        check(&with(3, 0x82), Err(BadMessage::Refused(2)));
        check(&with(3, 0x83), Ok(DnsAnswer { records: Vec::new(), ttl: None }));
        // A name that points at itself.
        check(
            &with(asked.len() + 1, u8::try_from(asked.len()).unwrap()),
            Err(BadMessage::Malformed),
        );
    }

    #[test]
    fn an_answer_must_repeat_the_question() {
        let record = [(QueryKind::A, 1, vec![1, 2, 3, 4])];
        let check = |name: &str, kind: QueryKind, code: u8, is_ours: bool| {
            let mut message = reply(&question(7, name, kind), &record);
            message[3] = 0x80 | code;
            let found = answer(7, "replicas.internal", QueryKind::A, &message);
            assert_eq!(found != Err(BadMessage::Unasked), is_ours, "{name} {kind:?} {code}");
        };
        for code in [0, 2, 3, 5] {
            check("replicas.internal", QueryKind::A, code, true);
            check("Replicas.INTERNAL", QueryKind::A, code, true);
            check("replicas.example", QueryKind::A, code, false);
            check("replicas.internal.example", QueryKind::A, code, false);
            check("replicas.internal", QueryKind::Aaaa, code, false);
        }
        // Without a question only a refusal can be ours.
        let mut message = vec![0, 7, 0x81, 0x80, 0, 0, 0, 1, 0, 0, 0, 0];
        message.extend([0, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1, 2, 3, 4]);
        let found = |message: &[u8]| answer(7, "replicas.internal", QueryKind::A, message);
        assert_eq!(found(&message), Err(BadMessage::Unasked));
        message[3] = 0x83;
        assert_eq!(found(&message), Err(BadMessage::Unasked));
        message[3] = 0x81;
        assert_eq!(found(&message), Err(BadMessage::Refused(1)));
    }

    proptest! {
        #[test]
        fn any_bytes_can_come(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
        ) {
            for kind in [QueryKind::A, QueryKind::Aaaa, QueryKind::Srv] {
                _ = answer(0, "a.b", kind, &bytes);
                let mut message = reply(&question(0, "a.b", kind), &[(kind, 1, vec![0; 16])]);
                let at = at.index(message.len());
                message.splice(at.., bytes.iter().copied());
                _ = answer(0, "a.b", kind, &message);
            }
        }
    }
}
