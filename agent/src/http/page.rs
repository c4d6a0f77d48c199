//! The page: static files in the binary, shown by any browser without asking another host.
//!
//! All addresses in it are relative, so that it also works behind `kubectl port-forward` and the
//! API server's pod proxy.

use axum::{
    Router,
    http::{HeaderName, header},
    response::{IntoResponse, Response},
    routing::get,
};

/// A file: its path, type and content.
type File = (&'static str, &'static str, &'static str);

/// What the page consists of.
const FILES: [File; 9] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/page/main.js", SCRIPT, include_str!("page/main.js")),
    ("/page/ask.js", SCRIPT, include_str!("page/ask.js")),
    ("/page/join.js", SCRIPT, include_str!("page/join.js")),
    ("/page/words.js", SCRIPT, include_str!("page/words.js")),
    ("/page/list.js", SCRIPT, include_str!("page/list.js")),
    ("/page/rollout.js", SCRIPT, include_str!("page/rollout.js")),
    ("/page/timeline.js", SCRIPT, include_str!("page/timeline.js")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Nothing from elsewhere, nothing inline, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page's routes.
pub(crate) fn page() -> Router {
    FILES.into_iter().fold(Router::new(), |router, file| {
        router.route(file.0, get(move || async move { answer(file) }))
    })
}

fn answer((_, media_type, content): File) -> Response {
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // An agent that was upgraded must not be shown by yesterday's page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small() {
        let bytes: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(bytes < 150_000, "{bytes} bytes");
    }

    #[test]
    fn the_page_names_no_other_host_and_has_nothing_inline() {
        for (path, media_type, content) in FILES {
            let content = content.replace("http://www.w3.org/2000/svg", "");
            for word in ["http:", "https:", "innerHTML", "eval(", "style=", "onclick="] {
                assert!(!content.contains(word), "{path} has {word:?}");
            }
            if media_type.starts_with("text/html") {
                assert_eq!(content.matches("<script").count(), 1, "one script, from a file");
                assert!(!content.contains("<style"));
            }
        }
    }
}
