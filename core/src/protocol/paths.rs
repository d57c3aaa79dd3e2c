//! Which paths the client port serves: those by which clients use a model, of the OpenAI, Anthropic, vLLM,
//! SGLang, TensorRT-LLM and llama.cpp APIs. Everything else is closed, because engines keep their
//! administration on the same port: metrics, adapters, caches, profiles, sleep. An operator can open more.

use super::api::{ApiPath, Effect};

/// What becomes of a request by its method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathVerdict {
    Open,
    /// The path is not served here.
    Closed,
    /// The path is served, but not for this method: for these, as a header lists them.
    Method {
        allow: String,
    },
}

/// What computes something takes `POST`. SGLang takes `PUT` there too, and no client needs it.
const COMPUTES: &[&str] = &["POST"];
/// What can be got can be asked for its head.
const SHOWS: &[&str] = &["GET", "HEAD"];

/// Open paths beside those whose bodies are known, which compute, with their methods as the APIs define them.
/// `{id}` stands for one segment, `{name}` for all the rest. Nothing takes `OPTIONS`: pages of other origins are
/// for what stands before the router.
const OPEN: &[(&str, &[&str])] = &[
    // The router's own.
    ("/health", SHOWS),
    ("/v1/models", SHOWS),
    ("/v1/models/{name}", SHOWS),
    // Forms.
    ("/v1/audio/transcriptions", COMPUTES),
    ("/v1/audio/translations", COMPUTES),
    ("/v1/audio/speech", COMPUTES),
    ("/v1/images/generations", COMPUTES),
    ("/v1/images/edits", COMPUTES),
    ("/v1/images/variations", COMPUTES),
    ("/audio/transcriptions", COMPUTES),
    // State that an engine keeps by id.
    ("/v1/responses/{id}", &["GET", "HEAD", "DELETE"]),
    ("/v1/responses/{id}/cancel", &["POST"]),
    ("/v1/responses/{id}/input_items", SHOWS),
    ("/v1/conversations", &["POST"]),
    ("/v1/conversations/{id}", &["GET", "HEAD", "POST", "DELETE"]),
    ("/v1/conversations/{id}/items", &["GET", "HEAD", "POST"]),
    ("/v1/conversations/{id}/items/{id}", &["GET", "HEAD", "DELETE"]),
    ("/v1/files", &["GET", "HEAD", "POST"]),
    ("/v1/files/{id}", &["GET", "HEAD", "DELETE"]),
    ("/v1/files/{id}/content", SHOWS),
    ("/v1/batches", &["GET", "HEAD", "POST"]),
    ("/v1/batches/{id}", SHOWS),
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

    fn covers(&self, path: &str) -> bool {
        if self.is_beginning { path.starts_with(&self.path) } else { path == self.path }
    }

    fn admits(&self, method: &str, path: &str) -> bool {
        self.covers(path) && self.method.as_deref().is_none_or(|it| it == method)
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
    let known: &[&str] = if known.effect == Effect::Unknown {
        OPEN.iter().find(|it| fits(it.0, path)).map_or(&[], |it| it.1)
    } else {
        COMPUTES
    };
    if known.contains(&method) || allowed.iter().any(|it| it.admits(method, path)) {
        return PathVerdict::Open;
    }
    let mut methods = known.to_vec();
    let opened = allowed.iter().filter(|it| it.covers(path)).filter_map(|it| it.method.as_deref());
    for it in opened {
        if !methods.contains(&it) {
            methods.push(it);
        }
    }
    if methods.is_empty() {
        return PathVerdict::Closed;
    }
    PathVerdict::Method { allow: methods.join(", ") }
}

/// Tells whether a path has the form of a pattern.
fn fits(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut there) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), there.next()) {
            (None, None) => return true,
            (Some("{name}"), Some(segment)) => return !segment.is_empty(),
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

    const METHODS: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"];

    #[test]
    fn every_entry_is_open_for_its_methods_and_names_them_to_all_others() {
        let known = API_PATHS.iter().map(|it| (it.0, COMPUTES));
        for (pattern, methods) in known.chain(OPEN.iter().copied()) {
            let path = pattern.replace("{id}", "x_1").replace("{name}", "org/x-1");
            assert_eq!(methods.contains(&"GET"), methods.contains(&"HEAD"), "{pattern}");
            for method in METHODS {
                let allow = methods.join(", ");
                let want = if methods.contains(&method) {
                    PathVerdict::Open
                } else {
                    PathVerdict::Method { allow }
                };
                assert_eq!(of(method, &path), want, "{method} {path}");
            }
            let is_name = pattern.ends_with("{name}") || pattern == "/v1/models";
            let below = of("GET", &format!("{path}/x/y/z"));
            assert_eq!(below == PathVerdict::Closed, !is_name, "{path}");
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
        let allowed = ["/ping", "GET /version", "/docs/*", "OPTIONS /generate"]
            .map(|it| AllowedPath::read(it).unwrap());
        let of = |method: &str, path: &str| {
            path_verdict(method, path, ApiPath::read(path).unwrap(), &allowed)
        };
        assert_eq!(
            (of("GET", "/ping"), of("POST", "/ping")),
            (PathVerdict::Open, PathVerdict::Open)
        );
        assert_eq!(of("GET", "/version"), PathVerdict::Open);
        let only = |allow: &str| PathVerdict::Method { allow: allow.to_owned() };
        assert_eq!(of("POST", "/version"), only("GET"));
        assert_eq!(of("PUT", "/generate"), only("POST, OPTIONS"), "what it takes anyway too");
        assert_eq!(of("OPTIONS", "/generate"), PathVerdict::Open);
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
