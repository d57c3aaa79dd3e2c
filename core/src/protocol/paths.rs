//! Which paths the client port serves: those by which clients use a model, of the OpenAI, Anthropic, vLLM,
//! SGLang, TensorRT-LLM and llama.cpp APIs. Everything else is closed, because engines keep their
//! administration on the same port: metrics, adapters, caches, profiles, sleep. An operator can open more.

use super::api::{ApiPath, Effect};

/// What becomes of a request by its method and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathVerdict {
    Open,
    /// The path is not served here.
    Closed,
    /// The path is served, but not for this method.
    Method,
}

/// Open paths beside those whose bodies are known, which take `POST`. `{id}` stands for one segment.
const OPEN: &[(&str, &[&str])] = &[
    ("/v1/models", &["GET"]),
    ("/v1/models/{id}", &["GET"]),
    // Forms.
    ("/v1/audio/transcriptions", &["POST"]),
    ("/v1/audio/translations", &["POST"]),
    ("/v1/audio/speech", &["POST"]),
    ("/v1/images/generations", &["POST"]),
    ("/v1/images/edits", &["POST"]),
    ("/v1/images/variations", &["POST"]),
    ("/audio/transcriptions", &["POST"]),
    // State that an engine keeps by id.
    ("/v1/responses/{id}", &["GET", "DELETE"]),
    ("/v1/responses/{id}/cancel", &["POST"]),
    ("/v1/responses/{id}/input_items", &["GET"]),
    ("/v1/conversations", &["POST"]),
    ("/v1/conversations/{id}", &["GET", "POST", "DELETE"]),
    ("/v1/conversations/{id}/items", &["GET", "POST"]),
    ("/v1/conversations/{id}/items/{id}", &["GET", "DELETE"]),
    ("/v1/files", &["GET", "POST"]),
    ("/v1/files/{id}", &["GET", "DELETE"]),
    ("/v1/files/{id}/content", &["GET"]),
    ("/v1/batches", &["GET", "POST"]),
    ("/v1/batches/{id}", &["GET"]),
    ("/v1/batches/{id}/cancel", &["POST"]),
];

/// A path that an operator opens: `/version`, `GET /version`, or `/docs/*` for all that begins like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedPath {
    method: Option<String>,
    path: String,
    is_beginning: bool,
}

impl AllowedPath {
    /// Reads one; `None` where it is not a path.
    pub fn read(text: &str) -> Option<Self> {
        let (method, path) = match text.split_once(' ') {
            Some((method, path)) => (Some(method.to_owned()), path),
            None => (None, text),
        };
        let is_method =
            |it: &String| !it.is_empty() && it.bytes().all(|it| it.is_ascii_uppercase());
        let (path, is_beginning) = path.strip_suffix('*').map_or((path, false), |it| (it, true));
        let is_sound = method.as_ref().is_none_or(is_method)
            && path.starts_with('/')
            && (!is_beginning || path.ends_with('/'))
            && path.bytes().all(|it| it.is_ascii_graphic() && !b"*?#%\\;".contains(&it));
        is_sound.then(|| Self { method, path: path.to_owned(), is_beginning })
    }

    /// Writes it as it was read.
    pub fn write(&self) -> String {
        let method = self.method.as_ref().map(|it| format!("{it} ")).unwrap_or_default();
        format!("{method}{}{}", self.path, if self.is_beginning { "*" } else { "" })
    }

    fn admits(&self, method: &str, path: &str) -> bool {
        let fits = if self.is_beginning { path.starts_with(&self.path) } else { path == self.path };
        fits && self.method.as_deref().is_none_or(|it| it == method)
    }
}

/// Tells whether a request may pass; `known` is what is known of its path.
pub fn path_verdict(
    method: &str,
    path: &str,
    known: ApiPath,
    allowed: &[AllowedPath],
) -> PathVerdict {
    // Of most requests the path was found before, so that nothing is looked for again.
    let methods: &[&str] = if known.effect == Effect::Unknown {
        OPEN.iter().find(|it| fits(it.0, path)).map_or(&[], |it| it.1)
    } else {
        // SGLang takes `PUT` where it takes `POST`.
        &["POST", "PUT"]
    };
    let asks = |it: &str| methods.contains(&it);
    // A browser asks first whether it may ask; what can be got can be asked for its head.
    let is_open = asks(method)
        || method == "HEAD" && asks("GET")
        || method == "OPTIONS" && !methods.is_empty()
        || allowed.iter().any(|it| it.admits(method, path));
    match (is_open, methods) {
        (true, _) => PathVerdict::Open,
        (false, []) => PathVerdict::Closed,
        (false, [..]) => PathVerdict::Method,
    }
}

/// Tells whether a path has the form of a pattern.
fn fits(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut there) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), there.next()) {
            (None, None) => return true,
            (Some("{id}"), Some(segment)) if !segment.is_empty() => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::api::API_PATHS;
    use super::*;

    fn of(method: &str, path: &str) -> PathVerdict {
        path_verdict(method, path, ApiPath::read(path).unwrap(), &[])
    }

    #[test]
    fn every_entry_is_open_for_its_methods_and_no_other() {
        let known = API_PATHS.iter().map(|it| (it.0, &["POST", "PUT"][..]));
        for (pattern, methods) in known.chain(OPEN.iter().copied()) {
            let path = pattern.replace("{id}", "x_1");
            for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
                let want =
                    if methods.contains(&method) { PathVerdict::Open } else { PathVerdict::Method };
                assert_eq!(of(method, &path), want, "{method} {path}");
            }
            assert_eq!(of("OPTIONS", &path), PathVerdict::Open, "{path}");
            assert_eq!(of("GET", &format!("{path}/x/y/z")), PathVerdict::Closed, "{path}");
            assert_eq!(of("POST", &format!("/x{path}")), PathVerdict::Closed, "{path}");
        }
    }

    #[test]
    fn of_the_routes_of_engines_those_of_inference_are_open_and_no_other() {
        let list = include_str!("../../data/engine-routes.txt");
        let lines = list.lines().filter(|it| !it.starts_with('#'));
        for line in lines {
            let [_, kind, path] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            if kind == "open" {
                assert_eq!(of("POST", path), PathVerdict::Open, "{line}");
                continue;
            }
            for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
                // What would be the id of an answer is looked up as one.
                let is_id = method != "POST" && method != "PUT" && path == "/v1/responses/render";
                let verdict = of(method, path);
                assert!(is_id || verdict != PathVerdict::Open, "{method} {line}");
            }
        }
    }

    #[test]
    fn an_operator_opens_a_path_for_a_method_or_all_that_begins_alike() {
        let allowed = ["/ping", "GET /version", "/docs/*"].map(|it| AllowedPath::read(it).unwrap());
        let of = |method: &str, path: &str| {
            path_verdict(method, path, ApiPath::read(path).unwrap(), &allowed)
        };
        assert_eq!(
            (of("GET", "/ping"), of("POST", "/ping")),
            (PathVerdict::Open, PathVerdict::Open)
        );
        assert_eq!(of("GET", "/version"), PathVerdict::Open);
        assert_eq!(of("POST", "/version"), PathVerdict::Closed);
        assert_eq!(of("GET", "/docs/a/b"), PathVerdict::Open);
        assert_eq!(
            (of("GET", "/docs"), of("GET", "/pingx")),
            (PathVerdict::Closed, PathVerdict::Closed)
        );
    }

    #[test]
    fn what_is_no_path_is_not_read_and_what_is_one_is_written_as_it_stood() {
        for text in ["/a", "GET /a/b", "/*", "POST /x/*"] {
            assert_eq!(AllowedPath::read(text).unwrap().write(), text);
        }
        for text in ["", "a", "*", "/a*", "get /a", " /a", "/a b", "/a?b", "/%61", "/a/*/b"] {
            assert_eq!(AllowedPath::read(text), None, "{text}");
        }
    }
}
