//! The files of the page, as they are in `web/`: from the binary in release builds, from the folder in debug
//! builds. They hold nothing secret, so they need no token; what they show does.

use std::hash::Hasher as _;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rust_embed::RustEmbed;
use twox_hash::XxHash3_64;

/// Scripts, styles and data from here and from nowhere else, and no script or style inside the markup. So text that
/// looks like markup stays text even if it got into the page as markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

#[derive(RustEmbed)]
#[folder = "../web"]
struct PageFiles;

const INDEX: &str = "index.html";
/// Stands in the markup where the page's build goes.
const BUILD_HERE: &str = "BUILD-OF-THE-PAGE";

pub(in crate::admin) async fn index(headers: HeaderMap) -> Response {
    serve(INDEX, &headers)
}

pub(in crate::admin) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    serve(&name, &headers)
}

/// Names the page by all its files: a build whose page differs has another name, whatever its version says.
pub(super) fn build() -> String {
    let mut names: Vec<_> = PageFiles::iter().filter(|it| kind_of(it).is_some()).collect();
    names.sort();
    let mut hasher = XxHash3_64::new();
    for (name, file) in names.iter().filter_map(|it| Some((it, PageFiles::get(it)?))) {
        hasher.write(name.as_bytes());
        hasher.write(&file.metadata.sha256_hash());
    }
    format!("{:016x}", hasher.finish())
}

fn serve(name: &str, headers: &HeaderMap) -> Response {
    let (Some(file), Some(kind)) = (PageFiles::get(name), kind_of(name)) else {
        return (StatusCode::NOT_FOUND, "the page has no such file\n").into_response();
    };
    let (data, tag) = if name == INDEX {
        // The markup says which page it is of, so that it can tell when its router serves another.
        let build = build();
        let text = String::from_utf8_lossy(&file.data).replace(BUILD_HERE, &build);
        (text.into_bytes(), build)
    } else {
        let digest = file.metadata.sha256_hash();
        let start = digest.first_chunk().map_or(0, |it| u64::from_be_bytes(*it));
        (file.data.into_owned(), format!("{start:016x}"))
    };
    let tag = format!("\"{tag}\"");
    let known =
        headers.get(header::IF_NONE_MATCH).is_some_and(|it| it.as_bytes() == tag.as_bytes());
    let mut answer = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, kind)], data).into_response()
    };
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Asked for each time, so that a page is never older than its router.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let headers = answer.headers_mut();
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers.extend(HeaderValue::from_str(&tag).ok().map(|it| (header::ETAG, it)));
    answer
}

/// Names what a file is; nothing for one that is no part of the page.
fn kind_of(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn every_file_is_served_under_a_policy_that_lets_nothing_else_in() {
        let all = PageFiles::iter().map(Cow::into_owned);
        let served: Vec<String> = all.filter(|it| kind_of(it).is_some()).collect();
        assert!(served.iter().any(|it| it == "index.html") && 5 < served.len(), "{served:?}");
        for name in served {
            let answer = serve(&name, &HeaderMap::new());
            assert_eq!(answer.status(), 200, "{name}");
            assert_eq!(answer.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
            let again = HeaderMap::from_iter([(
                header::IF_NONE_MATCH,
                answer.headers()[header::ETAG].clone(),
            )]);
            assert_eq!(serve(&name, &again).status(), 304, "{name}");
        }
        assert_eq!(serve("nothing.js", &HeaderMap::new()).status(), 404);
        assert_eq!(serve("../Cargo.toml", &HeaderMap::new()).status(), 404);
        assert_eq!(serve("types.d.ts", &HeaderMap::new()).status(), 404);
    }

    #[tokio::test]
    async fn the_markup_says_of_which_build_it_is() {
        let answer = index(HeaderMap::new()).await;
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains(&format!("name=\"cleave-page\" content=\"{}\"", build())), "{text}");
        assert!(!text.contains(BUILD_HERE));
    }

    #[test]
    fn the_markup_names_no_other_origin_and_has_no_script_inside() {
        for name in PageFiles::iter().filter(|it| it.ends_with(".html") || it.ends_with(".css")) {
            let file = PageFiles::get(&name).unwrap();
            let text = String::from_utf8(file.data.into_owned()).unwrap();
            assert!(!text.contains("http://") && !text.contains("https://"), "{name}");
            assert!(!text.contains("style=\"") && !text.contains("onclick"), "{name}");
            let scripts = text.matches("<script").count();
            assert_eq!(scripts, text.matches("<script type=\"module\" src=\"web/").count());
        }
    }
}
