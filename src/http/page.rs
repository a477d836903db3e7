//! The page of the gateway at `/`: files of this program, which browsers run without a build step.
//!
//! They read `/health/ready` and `/api/v1`, and give the orders of `actions`. Nothing of the gateway is in
//! them, so they are the same for everyone. `guard` adds the headers that bind browsers to this server.

use axum::extract::Path;
use axum::http::Uri;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};

use super::reply;

/// A file of the page.
#[derive(Debug)]
struct File {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the folder `page`.
macro_rules! file {
    ($name:literal, $kind:expr) => {
        File {
            name: $name,
            kind: $kind,
            content: include_str!(concat!("page/", $name)),
        }
    };
}

const INDEX: File = file!("index.html", HTML);

/// All other files, below `/page/`.
const FILES: [File; 10] = [
    file!("style.css", "text/css; charset=utf-8"),
    file!("icon.svg", "image/svg+xml"),
    file!("main.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("events.js", SCRIPT),
    file!("format.js", SCRIPT),
    file!("orders.js", SCRIPT),
    file!("panels.js", SCRIPT),
    file!("plot.js", SCRIPT),
    file!("table.js", SCRIPT),
];

impl File {
    fn answer(&self) -> Response {
        let kind = HeaderValue::from_static(self.kind);
        ([(CONTENT_TYPE, kind)], self.content).into_response()
    }
}

/// The page itself.
pub(super) async fn index() -> Response {
    INDEX.answer()
}

/// A file that the page names.
pub(super) async fn file(Path(name): Path<String>, uri: Uri) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => file.answer(),
        None => reply::no_such_path(uri).await.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of all files: small enough to load over any tunnel.
    const MOST_BYTES: usize = 64 << 10;

    #[test]
    fn the_page_is_small_and_names_no_other_host() {
        let files = FILES.iter().chain([&INDEX]);
        let bytes: usize = files.clone().map(|file| file.content.len()).sum();
        assert!(bytes <= MOST_BYTES, "{bytes} bytes");
        for File { name, content, .. } in files {
            // The names of XML's vocabularies look like addresses, and are none.
            let content = content.replace("http://www.w3.org/2000/svg", "");
            for foreign in ["http:", "https:", "src=\"//", "url(", "@import"] {
                assert!(!content.contains(foreign), "{name} has {foreign}");
            }
        }
    }

    #[test]
    fn each_file_is_named_by_another_one() {
        let all: String = FILES
            .iter()
            .chain([&INDEX])
            .map(|one| one.content)
            .collect();
        for File { name, .. } in &FILES {
            let named = [format!("\"page/{name}\""), format!("\"./{name}\"")];
            assert!(named.iter().any(|one| all.contains(one)), "{name}");
        }
    }

    #[test]
    fn nothing_foreign_is_read_as_html() {
        let all: String = FILES.iter().map(|one| one.content).collect();
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
        ] {
            assert!(!all.contains(sink), "{sink}");
        }
        // Neither code nor style within the page, which the policy would refuse.
        for inline in ["<script>", "<style", " style=", " onclick=", "javascript:"] {
            assert!(!INDEX.content.contains(inline), "{inline}");
        }
    }
}
