//! Orders to the admin port from a page in an operator's browser: foreign origins, a name that was
//! rebound to this address, and forms, which a page may send without asking.

use std::io;

use anyhow::Result;

use super::super::Attack;
use super::super::client::{Answer, exchange};
use super::super::plan::Plan;
use super::super::scene::Scene;
use super::super::vitals;

pub(super) const ATTACK: Attack = Attack {
    name: "foreign_pages",
    tries: "drains, freezes and reads of the admin port with foreign Origin, Host and Sec-Fetch-Site, as forms, over HTTP/1.0, and with two Host headers",
    plan: || Plan::mocks(2),
    run,
};

fn run(scene: &mut Scene) -> Result<()> {
    let admin = scene.admin.to_string();
    let replica = scene.mocks[0].address;
    let port = scene.admin.port();
    let host = format!("host: {admin}\r\n");
    let json = "content-type: application/json\r\n";
    let foreign: Vec<(&str, String)> = vec![
        ("a foreign origin", format!("{host}{json}origin: http://evil.example\r\n")),
        ("a null origin", format!("{host}{json}origin: null\r\n")),
        ("another port's origin", format!("{host}{json}origin: http://127.0.0.1:1\r\n")),
        (
            "two origins",
            format!("{host}{json}origin: http://{admin}\r\norigin: http://evil.example\r\n"),
        ),
        ("a rebound host", format!("host: evil.example:{port}\r\n{json}")),
        (
            "a host and its origin",
            format!("host: evil.example:{port}\r\n{json}origin: http://evil.example:{port}\r\n"),
        ),
        ("a host with our name in it", format!("host: 127.0.0.1.evil.example:{port}\r\n{json}")),
        ("a host with a user", format!("host: 127.0.0.1@evil.example\r\n{json}")),
        ("two hosts", format!("{host}host: evil.example\r\n{json}")),
        ("a cross-site fetch", format!("{host}{json}sec-fetch-site: cross-site\r\n")),
        ("a form", format!("{host}content-type: application/x-www-form-urlencoded\r\n")),
        ("a text", format!("{host}content-type: text/plain\r\n")),
        (
            "a form with a foreign origin",
            format!("{host}content-type: text/plain\r\norigin: http://evil.example\r\n"),
        ),
        ("no content type", host.clone()),
    ];
    for (what, headers) in &foreign {
        for path in [format!("/drain/{replica}"), "/assignment/freeze".to_owned()] {
            let answer = order(scene, &format!("POST {path} HTTP/1.1\r\n{headers}"), "{}");
            let status = answer.map_or(0, |it| it.status());
            scene.check(!(200..300).contains(&status), || format!("{what}: {path} was obeyed"));
        }
    }
    let read = order(scene, &format!("GET /status HTTP/1.1\r\nhost: evil.example:{port}\r\n"), "");
    let shown = read.is_ok_and(|it| it.status() == 200);
    scene.check(!shown, || "a rebound host may read /status".to_owned());
    let read =
        order(scene, &format!("GET /status HTTP/1.1\r\n{host}origin: http://evil.example\r\n"), "");
    let shown = read.is_ok_and(|it| {
        it.status() == 200 && it.head.header("access-control-allow-origin").is_some()
    });
    scene.check(!shown, || "a foreign origin may read /status".to_owned());
    let draining = vitals::page(scene.admin, "/assignment")?.to_string();
    scene.check(!draining.contains("\"drained\":true"), || "a replica was drained".to_owned());
    // An operator's own order must go through.
    let own = order(scene, &format!("POST /assignment/freeze HTTP/1.1\r\n{host}{json}"), "{}");
    let status = own.map_or(0, |it| it.status());
    scene.check((200..300).contains(&status), || format!("an operator's order got {status}"));
    Ok(())
}

fn order(scene: &Scene, head: &str, body: &str) -> io::Result<Answer> {
    let length = body.len();
    let text = format!("{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    exchange(scene.admin, text.as_bytes())
}
