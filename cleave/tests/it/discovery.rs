//! Replicas that are found in a file or by name: they join, and those that leave are drained.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::support::{Authority, Exchange, Mock, Request, Router, Scripted, Tap, Wire};

/// A file that ends with the test.
struct List(std::path::PathBuf);

impl List {
    fn new(name: &str, lines: &[String]) -> Self {
        let name = format!("{name}-{}.txt", std::process::id());
        let list = Self(std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name));
        list.write(lines);
        list
    }

    /// Replaces it, at once and whole.
    fn write(&self, lines: &[String]) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, lines.join("\n")).unwrap();
        std::fs::rename(new, &self.0).unwrap();
    }
}

impl Drop for List {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

fn router(source: &str) -> Router {
    Router::start_with(&format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nthreads = 2\n\
         health.interval = \"100ms\"\n[[pools]]\nname = \"found\"\ndiscover = \"{source}\"\n"
    ))
}

#[tokio::test]
async fn replicas_of_a_file_join_and_whoever_is_taken_out_finishes_its_streams() {
    let (leaving, mut requests) = Scripted::by_hand().await;
    let list = List::new("replicas", &[leaving.url()]);
    let router = router(&format!("file:{}", list.0.display()));
    router.until("the first one is up", |it| it.count(|it| it.state == "up") == 1).await;
    let (client, exchange) = requests.begin(router.address, &Request::stream("hi")).await;

    let staying = Mock::start(&["--speed", "inf"]);
    list.write(&[format!("{} # new", staying.url())]);
    leaves_when_its_stream_has_ended(&router, client, exchange).await;
}

/// Of two replicas one serves a stream and is told to leave: it does so when the stream has ended.
pub(crate) async fn leaves_when_its_stream_has_ended(
    router: &Router,
    mut client: Wire,
    mut exchange: Exchange,
) {
    router
        .until("one leaves, one is up", |it| {
            it.count(|it| it.state == "leaving") == 1 && it.count(|it| it.state == "up") == 1
        })
        .await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    exchange.chunk("data: 2\n\n").await;
    exchange.send("0\r\n\r\n").await;
    assert_eq!(client.body().await.unwrap(), b"data: 2\n\n");
    router.until("it has left", |it| it.replicas().count() == 1).await;
}

/// A name server for one name, whose addresses the test sets.
struct Names {
    address: SocketAddr,
    there: Arc<Mutex<Vec<Ipv4Addr>>>,
    _serving: JoinSet<()>,
}

impl Names {
    async fn start(there: &[Ipv4Addr]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let there = Arc::new(Mutex::new(there.to_vec()));
        let mut serving = JoinSet::new();
        let known = Arc::clone(&there);
        serving.spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let reply = reply(&buffer[..length], &known.lock().unwrap().clone());
                _ = socket.send_to(&reply, from).await;
            }
        });
        Self { address, there, _serving: serving }
    }
}

/// Answers a question for addresses; those of the other family are none.
fn reply(question: &[u8], there: &[Ipv4Addr]) -> Vec<u8> {
    let wants_v4 = question[question.len() - 4..] == [0, 1, 0, 1];
    let there = if wants_v4 { there } else { &[] };
    let mut out = question.to_vec();
    out[2..4].copy_from_slice(&[0x81, 0x80]);
    out[7] = u8::try_from(there.len()).unwrap();
    for address in there {
        // The question's name, an address, for one second.
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        out.extend(address.octets());
    }
    out
}

#[tokio::test]
async fn every_address_of_a_name_is_a_replica_and_one_that_stays_away_leaves() {
    let one = Mock::start(&["--speed", "inf"]);
    let port = one.address.port();
    let other = Mock::start_on(port, &["--speed", "inf", "--host", "127.0.0.2"]);
    let (first, second) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    let names = Names::start(&[first]).await;
    let router = router(&format!("dns://{}/replicas.internal:{port}", names.address));
    router.until("the first one is up", |it| it.count(|it| it.state == "up") == 1).await;
    *names.there.lock().unwrap() = vec![first, second];
    router.until("both are up", |it| it.count(|it| it.state == "up") == 2).await;
    *names.there.lock().unwrap() = vec![second];
    router.until("one has left", |it| it.replicas().count() == 1).await;
    assert_eq!(router.status().await.replica(other.address).state, "up");
    // An empty list is not believed at once: the last replica goes on serving.
    names.there.lock().unwrap().clear();
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn replicas_under_tls_are_found_by_name_and_checked_by_that_name() {
    let authority = Authority::new();
    let engine = Mock::start(&["--speed", "inf"]);
    let server = authority.server(&authority.sign("found.test", 4000), false);
    let door = Tap::under_tls(engine.address, server).await;
    let names = Names::start(&[Ipv4Addr::LOCALHOST]).await;
    let start = |name: &str| {
        Router::start_with(&format!(
            "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nhealth.interval = \"100ms\"\n\
             engine_tls.ca = \"{}\"\n[[pools]]\nname = \"found\"\n\
             discover = \"dns+https://{}/{name}:{}\"\n",
            authority.file.display(),
            names.address,
            door.address.port()
        ))
    };
    let router = start("found.test");
    router.until("it is up", |it| it.count(|it| it.state == "up") == 1).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    let other = start("other.test");
    other.until("it is found", |it| it.replicas().count() == 1).await;
    other.until("why is said", |it| it.count(|it| it.reason.as_deref() == Some("tls")) == 1).await;
}
