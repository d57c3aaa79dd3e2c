//! Asks a name server: over UDP, and over TCP when the answer does not fit. The servers are those of
//! `/etc/resolv.conf` unless the source names one. The system's own resolver would do for addresses,
//! but it says neither how long they hold nor which services there are. Search domains are not applied:
//! names are whole.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::message::{self, BadMessage, DnsAnswer, DnsRecord, QueryKind};
use super::source::Source;
use crate::replicas::Origin;

const PORT: u16 = 53;
const LIMIT: Duration = Duration::from_secs(2);
const DATAGRAM_BYTES_MAX: usize = 4096;

/// Asks for the replicas, and how long the answer holds.
pub(super) async fn resolve(source: &Source) -> io::Result<(BTreeSet<Origin>, Duration)> {
    match source {
        Source::Addresses { name, port, server, is_secure } => {
            let (v4, v6) =
                tokio::join!(ask(*server, name, QueryKind::A), ask(*server, name, QueryKind::Aaaa));
            // A name server that has no idea of one kind may well know the other.
            let answers = match (v4, v6) {
                (Err(error), Err(_)) => return Err(error),
                (one, other) => [one, other].into_iter().flatten().collect::<Vec<_>>(),
            };
            let addresses = answers.iter().flat_map(|it| &it.records);
            let there = addresses.filter_map(|it| match it {
                DnsRecord::Address(ip) => {
                    origin(*is_secure, &SocketAddr::new(*ip, *port).to_string())
                }
                DnsRecord::Service { .. } => None,
            });
            Ok((there.collect(), ttl(&answers)))
        }
        Source::Services { name, server, is_secure } => {
            let answers = [ask(*server, name, QueryKind::Srv).await?];
            let services = || {
                answers[0].records.iter().filter_map(|it| match it {
                    DnsRecord::Service { priority, port, host } => Some((*priority, *port, host)),
                    DnsRecord::Address(_) => None,
                })
            };
            // Services of a higher number are for when none of the lowest is there.
            let first = services().map(|it| it.0).min();
            let there = services()
                .filter(|it| Some(it.0) == first)
                .filter_map(|(_, port, host)| origin(*is_secure, &format!("{host}:{port}")));
            Ok((there.collect(), ttl(&answers)))
        }
        Source::File(_) | Source::Kubernetes(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn origin(is_secure: bool, authority: &str) -> Option<Origin> {
    let scheme = if is_secure { "https" } else { "http" };
    format!("{scheme}://{authority}").parse().ok()
}

fn ttl(answers: &[DnsAnswer]) -> Duration {
    answers.iter().filter_map(|it| it.ttl).min().unwrap_or_default()
}

/// Asks the servers one after the other, until one answers.
async fn ask(server: Option<SocketAddr>, name: &str, kind: QueryKind) -> io::Result<DnsAnswer> {
    let servers = match server {
        Some(server) => vec![server],
        None => configured(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no name server is configured");
    for server in servers {
        match timeout(LIMIT, ask_one(server, name, kind)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, "no name server answers"),
        }
    }
    Err(last)
}

/// Lists the name servers of a `resolv.conf`.
fn configured(text: &str) -> Vec<SocketAddr> {
    let mut servers: Vec<SocketAddr> = text
        .lines()
        .filter_map(|it| it.trim().strip_prefix("nameserver")?.trim().parse::<IpAddr>().ok())
        .map(|ip| SocketAddr::new(ip, PORT))
        .collect();
    if servers.is_empty() {
        servers.push((Ipv4Addr::LOCALHOST, PORT).into());
    }
    servers
}

async fn ask_one(server: SocketAddr, name: &str, kind: QueryKind) -> io::Result<DnsAnswer> {
    let own: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    // A port and an id of chance keep a stranger from answering; the question must come back too.
    let id = u16::from_be_bytes(uuid::Uuid::new_v4().as_bytes()[..2].try_into().unwrap_or([0, 0]));
    let question = message::question(id, name, kind);
    let socket = UdpSocket::bind(own).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match message::answer(id, name, kind, &buffer[..length]) {
            Ok(answer) => return Ok(answer),
            // Late, or a stranger's: ours may still come.
            Err(BadMessage::Unasked) => {}
            Err(BadMessage::Truncated) => return ask_over_tcp(server, id, name, kind).await,
            Err(bad) => return Err(io::Error::new(io::ErrorKind::InvalidData, bad)),
        }
    }
}

async fn ask_over_tcp(
    server: SocketAddr,
    id: u16,
    name: &str,
    kind: QueryKind,
) -> io::Result<DnsAnswer> {
    let mut stream = TcpStream::connect(server).await?;
    let question = message::question(id, name, kind);
    let length = u16::try_from(question.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes(), &question[..]].concat()).await?;
    let mut buffer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut buffer).await?;
    message::answer(id, name, kind, &buffer)
        .map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::message::tests::{reply, service};
    use super::*;

    /// Answers the next question over UDP with what `write` makes of it.
    async fn answer_one(socket: &UdpSocket, write: impl Fn(&[u8]) -> Vec<u8>) {
        let mut buffer = [0; 512];
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(&write(&buffer[..length]), from).await.unwrap();
    }

    fn origins(there: &BTreeSet<Origin>) -> Vec<&str> {
        there.iter().map(Origin::as_str).collect()
    }

    #[tokio::test]
    async fn services_of_the_first_priority_are_found_with_their_ports() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = Some(socket.local_addr().unwrap());
        let source =
            Source::Services { name: "_http._tcp.fleet".to_owned(), server, is_secure: false };
        let records = [
            (QueryKind::Srv, 9, service(1, 8001, "gpu-1")),
            (QueryKind::Srv, 7, service(1, 8000, "gpu-0")),
            (QueryKind::Srv, 9, service(2, 8000, "spare")),
        ];
        let (found, ()) =
            tokio::join!(resolve(&source), answer_one(&socket, |it| reply(it, &records)));
        let (there, ttl) = found.unwrap();
        assert_eq!(origins(&there), ["http://gpu-0:8000", "http://gpu-1:8001"]);
        assert_eq!(ttl, Duration::from_secs(7));
    }

    #[tokio::test]
    async fn an_answer_that_does_not_fit_is_asked_for_over_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(address).await.unwrap();
        let (name, server) = ("_http._tcp.fleet".to_owned(), Some(address));
        let source = Source::Services { name, server, is_secure: true };
        let truncated = |question: &[u8]| {
            let mut message = reply(question, &[]);
            message[2] |= 0x02;
            message
        };
        let over_tcp = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = vec![0; stream.read_u16().await.unwrap().into()];
            stream.read_exact(&mut question).await.unwrap();
            let message = reply(&question, &[(QueryKind::Srv, 3, service(0, 1, "gpu-0"))]);
            stream.write_u16(u16::try_from(message.len()).unwrap()).await.unwrap();
            stream.write_all(&message).await.unwrap();
        };
        let (found, (), ()) =
            tokio::join!(resolve(&source), answer_one(&socket, truncated), over_tcp);
        assert_eq!(origins(&found.unwrap().0), ["https://gpu-0:1"]);
    }

    #[test]
    fn name_servers_are_read_from_the_system_s_file() {
        let text =
            "search example.com\nnameserver 10.0.0.2\nnameserver ::1\n# nameserver 9.9.9.9\n";
        let servers = configured(text);
        assert_eq!(servers, ["10.0.0.2:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert_eq!(configured(""), ["127.0.0.1:53".parse().unwrap()]);
    }
}
