//! A reader of `/events`, as an operator's dashboard would be one.

use std::net::SocketAddr;

use serde::Deserialize;

use super::client::Request;
use super::wire::Wire;

/// One event, as far as tests look.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Happened {
    pub(crate) id: u64,
    pub(crate) kind: String,
    pub(crate) replica: Option<String>,
    pub(crate) state: String,
    pub(crate) before: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) detail: Option<String>,
    pub(crate) alert: bool,
}

#[derive(Debug)]
pub(crate) struct News {
    wire: Wire,
    text: String,
}

impl News {
    /// Reads from the event after `last` on.
    pub(crate) async fn after(admin: SocketAddr, last: u64) -> Self {
        let mut wire = Wire::connect(admin).await;
        let request = Request::get("/events").header("last-event-id", last.to_string());
        wire.send(&request.bytes()).await;
        let head = wire.head().await.expect("an answer");
        assert_eq!((head.status(), head.header("content-type")), (200, Some("text/event-stream")));
        Self { wire, text: String::new() }
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> Happened {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                // A comment keeps the connection alive and says nothing.
                if let Some(data) = event.lines().find_map(|it| it.strip_prefix("data: ")) {
                    let happened: Happened = serde_json::from_str(data).expect("as documented");
                    assert!(event.contains(&format!("event: {}", happened.kind)));
                    assert!(event.contains(&format!("id: {}", happened.id)));
                    return happened;
                }
            }
            let piece = self.wire.piece().await.expect("a whole piece").expect("it goes on");
            self.text.push_str(std::str::from_utf8(&piece).expect("events are text"));
        }
    }

    /// Waits for the next event that is wanted; those before it are passed over.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Happened) -> bool) -> Happened {
        loop {
            let next = self.next().await;
            if wanted(&next) {
                return next;
            }
        }
    }
}
