//! A restart without a gap: a second process takes the listener, the first one drains, and no client
//! notices.

use tokio::task::JoinSet;

use crate::support::{Mock, Request, Router, Scripted, Wire, ask, eventually};

#[tokio::test]
async fn a_successor_takes_the_listener_and_streams_at_the_old_one_finish() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let mut router = Router::start(&[replica.url()], "").await;
    let (mut client, mut exchange) = requests.begin(router.address, &Request::stream("hi")).await;
    // Connected before, asks after: it is served all the same.
    let mut early = Wire::connect(router.address).await;

    router.process.signal("USR2");
    router.says("successor serves").await;
    let successor = router.successor();
    assert_eq!(early.ask(&Request::get("/v1/models")).await.status(), 200);
    eventually("the successor has its replica", async || {
        ask(router.address, &Request::get("/v1/models")).await.status() == 200
    })
    .await;
    exchange.chunk("data: 2\n\n").await;
    exchange.send("0\r\n\r\n").await;
    assert_eq!(client.body().await.unwrap(), b"data: 2\n\n");
    assert!(router.process.gone().await.success());
    router.says("drained, nothing cut").await;
    // The successor goes on alone, and ends like any other.
    assert_eq!(ask(router.address, &Request::get("/v1/models")).await.status(), 200);
    drop(successor);
}

#[tokio::test]
async fn no_request_is_lost_over_a_restart_under_load() {
    let mock = Mock::start(&["--speed", "inf"]);
    let mut router = Router::start(&[mock.url()], "").await;
    let address = router.address;
    let mut load = JoinSet::new();
    load.spawn(async move {
        for number in 0..400 {
            let answer = ask(address, &Request::chat(&format!("turn {number}"))).await;
            assert_eq!(answer.status(), 200, "{number}: {}", answer.text());
        }
    });
    router.process.signal("USR2");
    router.says("successor serves").await;
    let successor = router.successor();
    load.join_next().await.unwrap().unwrap();
    assert!(router.process.gone().await.success());
    drop(successor);
}

#[tokio::test]
async fn a_successor_knows_what_the_process_before_it_knew() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "50"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let folder = std::env::temp_dir().join(format!("cleave-handover-{}", std::process::id()));
    let settings = format!("policy = \"priced\"\n[subsets]\nstate_dir = {folder:?}\n");
    let mut router = Router::start(&urls, &settings).await;
    let turn = async |address, session: usize, turn: usize| {
        let text =
            format!("{session} is a number. ").repeat(200) + &"and another turn. ".repeat(turn);
        let request = Request::chat(&text).session(&format!("s-{session}"));
        let answer = ask(address, &request).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        answer.header("x-mock-replica").unwrap().to_owned()
    };
    let mut homes = Vec::new();
    for session in 0..12 {
        homes.push(turn(router.address, session, 0).await);
    }
    router.process.signal("USR2");
    router.says("took over what the process before knew").await;
    router.says("successor serves").await;
    let successor = router.successor();
    assert!(router.process.gone().await.success());
    for (session, home) in homes.iter().enumerate() {
        assert_eq!(turn(router.address, session, 1).await, *home, "{session}");
    }
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    let is_socket = |it: &std::fs::DirEntry| it.path().extension().is_some_and(|it| it == "sock");
    assert!(!left.iter().any(is_socket), "{left:?}");
    drop(successor);
    _ = std::fs::remove_dir_all(&folder);
}

#[tokio::test]
async fn without_a_successor_the_old_process_goes_on() {
    let mock = Mock::start(&["--speed", "inf"]);
    let router = Router::start(&[mock.url()], "").await;
    router.write("nonsense = true\n");
    router.process.signal("USR2");
    router.says("no successor, going on").await;
    assert_eq!(router.ask(&Request::chat("still here")).await.status(), 200);
    eventually("the admin port is back", async || {
        let connected = tokio::net::TcpStream::connect(router.admin).await;
        connected.is_ok()
    })
    .await;
}
