//! Which API a path belongs to: it decides how a body is read, how an error looks, and whether tenants
//! can be kept apart in an engine's cache. Servers decode and normalise paths in ways of their own, so a
//! path that any of them could read as another one is refused: what is decided here about a path must
//! hold for the server behind.

/// The APIs whose bodies are understood; anything else passes through unread but for its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    Chat,
    Completions,
    Responses,
    /// Anthropic's.
    Messages,
    #[default]
    Other,
}

/// What an engine does with the body that is sent to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It computes a prompt, and obeys a salt for its cache, if the engine does at all.
    Salted,
    /// It computes a prompt and may find it in a cache that all tenants share.
    Unsalted,
    /// As `Unsalted`, and it writes text in a form of its own, which is not read. Such an answer is charged by
    /// its bytes.
    Written,
    /// It computes no prompt.
    Uncached,
    /// Unknown.
    Unknown,
}

/// A path that means the same here and to every server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiPath {
    pub api: Api,
    pub effect: Effect,
}

/// Why a path is refused. The client can correct each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("the path has a character that is escaped with `%`: write it as it is")]
    Escaped,
    #[error("the path has a character beyond visible ASCII")]
    NotAscii,
    #[error("the path has a backslash: write `/`")]
    Backslash,
    #[error("the path has a parameter after `;`: leave it out")]
    Parameter,
    #[error("the path has an empty segment: write `/` once")]
    Empty,
    #[error("the path has a segment `.` or `..`: leave it out")]
    Dots,
    #[error("the path ends with a slash: leave it out")]
    Slash,
}

/// The paths whose bodies are known, as vLLM, SGLang, TensorRT-LLM and llama.cpp serve them. All take
/// JSON, however it is labelled.
pub(super) const API_PATHS: &[(&str, Api, Effect)] = &[
    ("/v1/chat/completions", Api::Chat, Effect::Salted),
    ("/v1/completions", Api::Completions, Effect::Salted),
    ("/v1/responses", Api::Responses, Effect::Salted),
    ("/v1/messages", Api::Messages, Effect::Salted),
    ("/v1/messages/count_tokens", Api::Messages, Effect::Uncached),
    ("/chat/completions", Api::Chat, Effect::Salted),
    ("/completions", Api::Completions, Effect::Salted),
    ("/responses", Api::Responses, Effect::Salted),
    ("/messages", Api::Messages, Effect::Salted),
    ("/v1/embeddings", Api::Other, Effect::Salted),
    ("/embeddings", Api::Other, Effect::Salted),
    ("/pooling", Api::Other, Effect::Salted),
    ("/classify", Api::Other, Effect::Salted),
    ("/score", Api::Other, Effect::Salted),
    ("/v1/score", Api::Other, Effect::Salted),
    ("/rerank", Api::Other, Effect::Salted),
    ("/v1/rerank", Api::Other, Effect::Salted),
    ("/v2/rerank", Api::Other, Effect::Salted),
    ("/v1/chat/completions/batch", Api::Other, Effect::Written),
    ("/v1/classify", Api::Other, Effect::Unsalted),
    ("/v2/embed", Api::Other, Effect::Unsalted),
    ("/cohere/v2/chat", Api::Other, Effect::Written),
    ("/inference/v1/generate", Api::Other, Effect::Written),
    ("/invocations", Api::Other, Effect::Written),
    ("/generate", Api::Other, Effect::Written),
    ("/vertex_generate", Api::Other, Effect::Written),
    ("/encode", Api::Other, Effect::Unsalted),
    ("/generative_scoring", Api::Other, Effect::Unsalted),
    ("/api/chat", Api::Other, Effect::Written),
    ("/api/generate", Api::Other, Effect::Written),
    ("/completion", Api::Other, Effect::Written),
    ("/infill", Api::Other, Effect::Written),
    ("/tokenize", Api::Other, Effect::Uncached),
    ("/detokenize", Api::Other, Effect::Uncached),
    ("/v1/tokenize", Api::Other, Effect::Uncached),
    ("/v1/detokenize", Api::Other, Effect::Uncached),
    ("/apply-template", Api::Other, Effect::Uncached),
];

impl Api {
    pub fn of(path: &str) -> Self {
        find(path).map_or(Self::Other, |it| it.api)
    }
}

impl ApiPath {
    /// Reads a path as it stands in the request, without its query.
    pub fn read(path: &str) -> Result<Self, BadPath> {
        if let Some(known) = find(path) {
            return Ok(known);
        }
        for byte in path.bytes() {
            match byte {
                b'%' => return Err(BadPath::Escaped),
                b'\\' => return Err(BadPath::Backslash),
                b';' => return Err(BadPath::Parameter),
                b'!'..=b'~' => {}
                _ => return Err(BadPath::NotAscii),
            }
        }
        // What ends with a slash has an empty segment at its end, which is no fault in itself.
        let bare = path.strip_suffix('/').unwrap_or(path);
        for segment in bare.split('/').skip(1) {
            match segment {
                "" => return Err(BadPath::Empty),
                "." | ".." => return Err(BadPath::Dots),
                _ => {}
            }
        }
        // Some servers answer it as the path without the slash, others send the client there.
        if bare.len() < path.len() && find(bare).is_some() {
            return Err(BadPath::Slash);
        }
        Ok(Self { api: Api::Other, effect: Effect::Unknown })
    }

    /// Tells whether the server reads a body as JSON, however the client labels it.
    pub fn takes_json(self) -> bool {
        self.effect != Effect::Unknown
    }
}

fn find(path: &str) -> Option<ApiPath> {
    let known = API_PATHS.iter().find(|it| it.0 == path);
    known.map(|&(_, api, effect)| ApiPath { api, effect })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_known_path_is_read_as_it_stands_and_in_no_other_spelling() {
        for &(path, api, effect) in API_PATHS {
            assert_eq!(ApiPath::read(path), Ok(ApiPath { api, effect }), "{path}");
            assert_eq!(Api::of(path), api);
            assert_eq!(ApiPath::read(&format!("{path}/")), Err(BadPath::Slash), "{path}");
            assert_eq!(ApiPath::read(&format!("/{path}")), Err(BadPath::Empty), "{path}");
            assert_eq!(ApiPath::read(&format!("{path}//")), Err(BadPath::Empty), "{path}");
            assert_eq!(ApiPath::read(&format!("/.{path}")), Err(BadPath::Dots), "{path}");
            assert_eq!(ApiPath::read(&format!("/x/..{path}")), Err(BadPath::Dots), "{path}");
            assert_eq!(ApiPath::read(&format!("{path};x")), Err(BadPath::Parameter), "{path}");
            assert_eq!(ApiPath::read(&path.replace('/', "\\")), Err(BadPath::Backslash), "{path}");
            for (at, letter) in path.char_indices() {
                let escaped =
                    format!("{}%{:02x}{}", &path[..at], u32::from(letter), &path[at + 1..]);
                assert_eq!(ApiPath::read(&escaped), Err(BadPath::Escaped), "{escaped}");
            }
        }
    }

    #[test]
    fn other_paths_pass_if_they_can_be_read_in_one_way_only() {
        for path in ["/", "*", "/docs/", "/v1/responses/resp_1/cancel", "/a:b@c/~d/...", "/.x/y."] {
            let unknown = ApiPath { api: Api::Other, effect: Effect::Unknown };
            assert_eq!(ApiPath::read(path), Ok(unknown), "{path}");
        }
        assert_eq!(ApiPath::read("/a b"), Err(BadPath::NotAscii));
        assert_eq!(ApiPath::read("/caf\u{e9}"), Err(BadPath::NotAscii));
        assert_eq!(ApiPath::read("/a/.."), Err(BadPath::Dots));
        assert_eq!(ApiPath::read("/a/../"), Err(BadPath::Dots));
    }

    /// Decodes and normalises in every way that a server is known to.
    fn as_servers_read(path: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = path.as_bytes();
        while let Some((first, tail)) = rest.split_first() {
            let digits = tail.get(..2).and_then(|it| std::str::from_utf8(it).ok());
            let byte = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
            if let Some(byte) = byte.filter(|_| *first == b'%') {
                bytes.push(byte);
                rest = &tail[2..];
            } else {
                bytes.push(*first);
                rest = tail;
            }
        }
        let text = String::from_utf8_lossy(&bytes).replace('\\', "/");
        let mut segments = Vec::new();
        for segment in text.split('/') {
            match segment.split(';').next().unwrap_or("") {
                "" | "." => {}
                ".." => _ = segments.pop(),
                plain => segments.push(plain.to_owned()),
            }
        }
        format!("/{}", segments.join("/"))
    }

    proptest! {
        #[test]
        fn what_passes_as_unknown_is_no_spelling_of_a_known_path(
            which in any::<prop::sample::Index>(),
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..8), 0..4),
        ) {
            let mut path = API_PATHS[which.index(API_PATHS.len())].0.to_owned();
            for (at, edit) in edits {
                let at = at.index(path.len());
                match edit {
                    0 => path.insert(at, '/'),
                    1 => path.insert_str(at, "/."),
                    2 => path.insert_str(at, "/x/.."),
                    3 => path.insert_str(at, ";p=1"),
                    4 => path.insert(at, '\\'),
                    5 => {
                        let byte = path.as_bytes()[at];
                        path.replace_range(at..=at, &format!("%{byte:02X}"));
                    }
                    6 => path.push('/'),
                    _ => path.insert(0, '/'),
                }
            }
            if ApiPath::read(&path).is_ok() && find(&path).is_none() {
                let read = as_servers_read(&path);
                prop_assert!(find(&read).is_none(), "{} is read as {}", path, read);
            }
        }
    }
}
