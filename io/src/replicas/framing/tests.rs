//! Answers well and badly framed, whole and in pieces.

use proptest::prelude::*;

use super::*;

/// Reads an answer that arrives in the given pieces.
fn read(pieces: &[&[u8]], closed: bool) -> Result<(u16, Vec<u8>, bool), BadAnswer> {
    let mut buffer = BytesMut::new();
    let mut head: Option<Head> = None;
    let mut interim = 0;
    let mut body = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if head.is_none() {
            head = take_head(&mut buffer, &Method::POST, &mut interim)?;
        }
        if let Some(head) = &mut head {
            while let Some(data) = head.framing.take(&mut buffer)? {
                body.extend_from_slice(&data);
            }
        }
    }
    let head = head.ok_or(BadAnswer::Head)?;
    let whole = head.framing.is_done() || (closed && head.framing == Framing::UntilClose);
    Ok((head.status.as_u16(), body, whole))
}

fn check(answer: &str, want: Result<(u16, &str, bool), BadAnswer>) {
    let got = read(&[answer.as_bytes()], true);
    let got = got
        .as_ref()
        .map(|(status, body, whole)| (*status, std::str::from_utf8(body).unwrap(), *whole));
    assert_eq!(got, want.as_ref().copied(), "{answer}");
}

#[test]
fn a_body_ends_where_its_framing_says() {
    check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", Ok((200, "abc", true)));
    check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", Ok((200, "ab", false)));
    check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Ok((200, "", true)));
    check("HTTP/1.1 200 OK\r\n\r\nabc", Ok((200, "abc", true)));
    check("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, "", true)));
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    check(
        &format!("{chunked}3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"),
        Ok((200, "abc0123456789", true)),
    );
    check(&format!("{chunked}1\r\na\r\n0\r\ntrailer: x\r\n\r\n"), Ok((200, "a", true)));
    check(&format!("{chunked}3\r\nabc\r\n"), Ok((200, "abc", false)));
}

#[test]
fn interim_answers_are_passed_over() {
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
        Ok((200, "x", true)),
    );
    check("HTTP/1.1 101 Switching\r\n\r\n", Err(BadAnswer::Switched));
}

#[test]
fn a_storm_of_interim_answers_or_trailers_is_refused_however_it_is_cut() {
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let well = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
    check(&format!("{}{well}", interim.repeat(16)), Ok((200, "x", true)));
    check(&format!("{}{well}", interim.repeat(17)), Err(BadAnswer::Interim));
    let pieces = vec![interim.as_bytes(); 17];
    assert_eq!(read(&pieces, false), Err(BadAnswer::Interim));
    let ended = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n";
    check(&format!("{ended}{}\r\n", "x: y\r\n".repeat(128)), Ok((200, "", true)));
    check(&format!("{ended}{}", "x: y\r\n".repeat(129)), Err(BadAnswer::Chunk));
}

#[test]
fn a_body_has_begun_at_its_first_byte_and_not_at_what_stands_before_it() {
    let begin = |framing: Framing, received: &str| {
        let (mut framing, mut buffer) = (framing, BytesMut::from(received));
        framing.begin(&mut buffer).map(|begun| (begun, framing, buffer.len()))
    };
    let (size, data) = (Framing::Chunked(Chunk::Size), Framing::Chunked(Chunk::Data(3)));
    assert_eq!(begin(size, ""), Ok((false, size, 0)));
    assert_eq!(begin(size, "3"), Ok((false, size, 1)));
    assert_eq!(begin(size, "3\r\n"), Ok((false, data, 0)));
    assert_eq!(begin(size, "3\r\nab"), Ok((true, data, 2)));
    assert_eq!(begin(size, "0\r\n\r\n"), Ok((true, Framing::Done, 0)));
    assert_eq!(begin(size, "zz\r\n"), Err(BadAnswer::Chunk));
    assert_eq!(begin(Framing::UntilClose, "a"), Ok((true, Framing::UntilClose, 1)));
    assert_eq!(begin(Framing::Length(9), ""), Ok((false, Framing::Length(9), 0)));
}

#[test]
fn bad_framing_is_refused() {
    check("SMTP hello\r\n\r\n", Err(BadAnswer::Head));
    for length in ["-1", "+3", "3, 4", "", "0x3", "99999999999999999999"] {
        check(
            &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"),
            Err(BadAnswer::Length),
        );
    }
    check(
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n",
        Err(BadAnswer::Length),
    );
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for bad in ["x\r\n", "\r\n", "-3\r\n", "3\nabc", "3\r\nabcd\r\n", "1234567890abcdef0\r\n"] {
        check(&format!("{chunked}{bad}"), Err(BadAnswer::Chunk));
    }
    check(&format!("{chunked}{}", "1".repeat(LINE_BYTES_MAX)), Err(BadAnswer::Chunk));
    check(
        &format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_BYTES_MAX)),
        Err(BadAnswer::HeadTooLarge),
    );
}

#[test]
fn a_connection_is_kept_only_when_both_sides_know_where_the_answer_ends() {
    let keeps = |head: &str| {
        let mut buffer = BytesMut::from(head);
        take_head(&mut buffer, &Method::GET, &mut 0).unwrap().unwrap().keeps_alive
    };
    assert!(keeps("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"));
    assert!(keeps("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"));
    assert!(!keeps(
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: keep-alive, Close\r\n\r\n"
    ));
    assert!(!keeps("HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\n"));
    assert!(!keeps("HTTP/1.1 200 OK\r\n\r\n"));
    assert!(!keeps("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n"));
}

proptest! {
    #[test]
    fn where_the_network_cuts_does_not_matter(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..10),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in &chunks {
            answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            answer.extend_from_slice(chunk);
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"0\r\n\r\n");
        let mut cuts: Vec<usize> = cuts.iter().map(|it| it.index(answer.len())).collect();
        cuts.extend([0, answer.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|it| &answer[it[0]..it[1]]).collect();
        prop_assert_eq!(read(&pieces, false), Ok((200, chunks.concat(), true)));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), chunked: bool) {
        let head: &[u8] =
            if chunked { b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" } else { b"HTTP/1.1 " };
        _ = read(&[head, &bytes], true);
    }
}
