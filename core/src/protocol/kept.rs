//! What engines keep by id: which paths and fields name such an id, and where an answer says under which id
//! something is kept from now on. An answer is read in pieces as they come, and of a response only as far as its
//! id, which stands near its beginning. A client can have text of its own echoed in an answer, so an id counts only
//! in its place: at the top of a whole answer, or in the `response` of a stream's event.

use memchr::memchr_iter;

use super::SessionId;
use super::content::SseLine;
use super::word::Word;

/// The longest id that is read. Those of engines have some 40 bytes.
const ID_BYTES_MAX: usize = 128;
/// The longest key that is looked for has fewer bytes.
const KEY_BYTES_MAX: usize = 16;
/// An answer that has shown no id up to here has none.
const READ_BYTES_MAX: usize = 1 << 20;

/// Where the things are that engines keep, as `/v1/files/ID`.
const COLLECTIONS: &[&str] = &["responses", "conversations", "files", "batches", "videos"];
/// What may follow a collection and is no id.
const NO_IDS: &[&str] = &["input_tokens", "compact", "render", "derender"];
/// Where the object of a batch says which files came of it.
const OUTPUT_FILES: [&[u8]; 2] = [b"output_file_id", b"error_file_id"];

/// What a path has to do with things that are kept by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptPath<'a> {
    /// Nothing.
    None,
    /// A list of them, where new ones are made.
    Collection,
    /// One of them, or something about it. The object of a batch names the files that came of it.
    Item { id: &'a str, is_batch: bool },
}

impl<'a> KeptPath<'a> {
    /// Reads a path, without its query.
    pub fn read(path: &'a str) -> Self {
        let Some(path) = path.strip_prefix("/v1").unwrap_or(path).strip_prefix('/') else {
            return Self::None;
        };
        let found = COLLECTIONS.iter().find_map(|it| Some((*it, path.strip_prefix(it)?)));
        let Some((name, rest)) = found else { return Self::None };
        let Some(rest) = rest.strip_prefix('/').or(Some(rest).filter(|it| it.is_empty())) else {
            return Self::None;
        };
        let id = rest.split('/').next().unwrap_or("");
        if id.is_empty() || NO_IDS.contains(&id) {
            return Self::Collection;
        }
        Self::Item { id, is_batch: name == "batches" && id == rest }
    }
}

impl KeptPath<'_> {
    /// Names the session of a question about one thing, so that it goes to the same replica each time.
    pub fn session(self) -> Option<SessionId> {
        match self {
            Self::Item { id, .. } => Some(SessionId::bounded(id.as_bytes())),
            Self::None | Self::Collection => None,
        }
    }
}

/// A field of a body that names something which is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptField {
    PreviousResponse,
    Conversation,
    InputFile,
}

impl KeptField {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreviousResponse => "previous_response_id",
            Self::Conversation => "conversation",
            Self::InputFile => "input_file_id",
        }
    }
}

/// Reads the ids out of an answer.
#[derive(Debug)]
pub struct IdReader {
    /// The object at the top in which the id stands, in the events of a stream.
    within: Option<&'static [u8]>,
    /// Whether there is more to know than the first id.
    reads_all: bool,
    walk: IdWalk,
    line: SseLine,
    read_bytes: usize,
    is_done: bool,
}

/// Where one JSON object is being read.
#[derive(Debug, Default)]
struct IdWalk {
    depth: u32,
    /// The depth at which keys count less one: 1 inside of the object that is looked into.
    inside: u32,
    in_string: bool,
    escaped: bool,
    /// Whether a colon came since the last comma, at the depth that counts.
    in_value: bool,
    key: Word<KEY_BYTES_MAX>,
    value: Word<ID_BYTES_MAX>,
}

impl IdReader {
    /// Reads an answer in one piece, or the events of a stream; up to the first id, or all of them.
    pub fn new(stream: bool, reads_all: bool) -> Self {
        let within: Option<&[u8]> = stream.then_some(b"response");
        let (walk, line) = Default::default();
        Self { within, reads_all, walk, line, read_bytes: 0, is_done: false }
    }

    /// Goes on with the next piece, and hands out each id that is read in it.
    pub fn on_chunk(&mut self, chunk: &[u8], mut found: impl FnMut(&str)) {
        if self.is_done {
            return;
        }
        self.read_bytes = self.read_bytes.saturating_add(chunk.len());
        let (reads_all, mut is_found) = (self.reads_all, false);
        let mut found = |id: &str| {
            if reads_all || !is_found {
                found(id);
            }
            is_found = true;
        };
        let is_over = if self.within.is_none() {
            self.walk.on_text(chunk, None, &mut found)
        } else {
            self.on_events(chunk, &mut found);
            false
        };
        self.is_done = is_over || is_found && !reads_all || READ_BYTES_MAX < self.read_bytes;
    }

    fn on_events(&mut self, chunk: &[u8], found: &mut impl FnMut(&str)) {
        let mut start = 0;
        for end in memchr_iter(b'\n', chunk).chain([chunk.len()]) {
            let text = self.line.on_text(&chunk[start..end]);
            if self.line == SseLine::Data {
                self.walk.on_text(text, self.within, found);
            }
            if end < chunk.len() {
                (self.line, self.walk) = (SseLine::default(), IdWalk::default());
            }
            start = end + 1;
        }
    }
}

impl IdWalk {
    /// Goes on with some of an object; tells whether it is over.
    fn on_text(
        &mut self,
        text: &[u8],
        within: Option<&'static [u8]>,
        found: &mut impl FnMut(&str),
    ) -> bool {
        for &byte in text {
            if self.in_string {
                self.on_letter(byte, within, found);
                continue;
            }
            match byte {
                b'"' => self.begin_string(),
                b'{' | b'[' => self.open(byte, within),
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == self.inside {
                        // Out of the object that was looked into, or of all.
                        (self.inside, self.in_value) = (0, true);
                    }
                    if self.depth == 0 {
                        return true;
                    }
                }
                b':' if self.counts() => self.in_value = true,
                b',' if self.counts() => self.in_value = false,
                _ => {}
            }
        }
        false
    }

    const fn counts(&self) -> bool {
        self.depth == self.inside + 1
    }

    fn begin_string(&mut self) {
        self.in_string = true;
        if self.counts() && self.in_value {
            self.value = Word::default();
        } else if self.counts() {
            self.key = Word::default();
        }
    }

    fn open(&mut self, byte: u8, within: Option<&'static [u8]>) {
        let looks_into = within.is_some_and(|it| self.key.is(it)) && byte == b'{';
        if looks_into && self.inside == 0 && self.counts() && self.in_value {
            (self.inside, self.in_value) = (1, false);
        }
        self.depth = self.depth.saturating_add(1);
    }

    fn on_letter(&mut self, byte: u8, within: Option<&'static [u8]>, found: &mut impl FnMut(&str)) {
        if byte == b'"' && !self.escaped {
            self.in_string = false;
            return self.end_string(within, found);
        }
        self.escaped = byte == b'\\' && !self.escaped;
        if !self.counts() {
            return;
        }
        if self.in_value {
            self.value.push(&[byte]);
        } else {
            self.key.push(&[byte]);
        }
    }

    fn end_string(&self, within: Option<&'static [u8]>, found: &mut impl FnMut(&str)) {
        let is_watched = self.counts() && self.in_value && (within.is_some() == (self.inside == 1));
        let names_one = self.key.is(b"id") || OUTPUT_FILES.iter().any(|it| self.key.is(it));
        let id = self.value.known().filter(|_| is_watched && names_one);
        let id = id.and_then(|it| std::str::from_utf8(it).ok());
        // No id of an engine has an escape in it.
        if let Some(id) = id.filter(|it| !it.is_empty() && !it.contains('\\')) {
            found(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_one_thing_that_is_kept_or_a_list_or_neither() {
        for path in ["/v1/responses", "/responses", "/v1/files", "/v1/batches", "/v1/files/"] {
            assert_eq!(KeptPath::read(path), KeptPath::Collection, "{path}");
        }
        for path in ["/v1/responses/input_tokens", "/v1/responses/compact"] {
            assert_eq!(KeptPath::read(path), KeptPath::Collection, "{path}");
        }
        for path in [
            "/v1/responses/x-1",
            "/v1/responses/x-1/cancel",
            "/v1/conversations/x-1/items/msg_2",
            "/files/x-1/content",
            "/v1/batches/x-1",
        ] {
            let is_batch = path.contains("batches");
            assert_eq!(KeptPath::read(path), KeptPath::Item { id: "x-1", is_batch }, "{path}");
        }
        for path in [
            "/",
            "*",
            "",
            "/v1",
            "/v1/",
            "/v1/chat/completions",
            "/v1/models/responses",
            "/v1/responsesx",
        ] {
            assert_eq!(KeptPath::read(path), KeptPath::None, "{path}");
        }
    }

    /// Reads an answer whole and byte by byte, which must be the same.
    fn read(stream: bool, all: bool, answer: &str) -> Vec<String> {
        let ids_of = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let (mut reader, mut ids) = (IdReader::new(stream, all), Vec::new());
            pieces.for_each(|it| reader.on_chunk(it, |id| ids.push(id.to_owned())));
            ids
        };
        let whole = ids_of(&mut [answer.as_bytes()].into_iter());
        assert_eq!(ids_of(&mut answer.as_bytes().chunks(1)), whole);
        whole
    }

    fn ids(stream: bool, answer: &str) -> Vec<String> {
        read(stream, false, answer)
    }

    #[test]
    fn the_id_of_a_whole_answer_is_the_one_at_its_top() {
        assert_eq!(ids(false, r#"{"id":"resp_1","object":"response"}"#), ["resp_1"]);
        let late =
            r#" {"metadata":{"id":"mine"},"tools":[{"id":"t"},["id","x"]], "id" : "resp_2" }"#;
        assert_eq!(ids(false, late), ["resp_2"]);
        let echoed =
            r#"{"instructions":"\"id\":\"evil\",{","output":[{"id":"msg_1"}],"id":"resp_3"}"#;
        assert_eq!(ids(false, echoed), ["resp_3"]);
        for none in ["", "[]", r#"{"id":7}"#, r#"{"id":""}"#, r#"{"x":"id"}"#, r#"[{"id":"a"}]"#] {
            assert!(ids(false, none).is_empty(), "{none}");
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(200));
        assert!(ids(false, &long).is_empty());
    }

    #[test]
    fn the_files_of_a_batch_are_ids_too() {
        let batch =
            r#"{"id":"b1","input_file_id":"f0","output_file_id":"f1","error_file_id":null}"#;
        assert_eq!(read(false, true, batch), ["b1", "f1"]);
        assert_eq!(read(false, false, batch), ["b1"]);
    }

    #[test]
    fn the_id_of_a_stream_is_in_its_first_response() {
        let stream = ": ping\n\nevent: response.created\ndata: {\"type\":\"response.created\",\"id\":\
                      \"no\",\"response\":{\"metadata\":{\"id\":\"evil\"},\"id\":\"resp_1\"}}\n\n\
                      data: {\"response\":{\"id\":\"resp_2\"}}\n\n";
        assert_eq!(ids(true, stream), ["resp_1"]);
        assert_eq!(ids(true, &stream.replace('\n', "\r\n")), ["resp_1"]);
        let without = "data: {\"item\":{\"id\":\"msg_1\"}}\n\ndata: [DONE]\n\n";
        assert!(ids(true, without).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_answer_makes_it_panic(stream: bool, pieces: Vec<Vec<u8>>) {
            let mut reader = IdReader::new(stream, true);
            for piece in pieces {
                reader.on_chunk(&piece, |_| ());
            }
        }
    }
}
