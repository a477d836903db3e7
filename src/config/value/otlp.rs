//! The address of a collector of OpenTelemetry.

use axum::http::Uri;

use super::{Value, Written};

/// The word for no collector.
const NONE: &str = "none";

/// The URL of a collector; `None` if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpEndpoint(pub Option<String>);

impl Value for OtlpEndpoint {
    const KIND: &'static str = "URL";
    const EXAMPLE: &'static str = "none, or a URL such as http://127.0.0.1:4318";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == NONE {
            return Ok(OtlpEndpoint(None));
        }
        let uri: Uri = text.parse().map_err(|_| "not a URL".to_owned())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(
                    "spans are sent without TLS: use a collector on this machine that sends them on"
                        .to_owned(),
                );
            }
            Some(scheme) => return Err(format!("`{scheme}` is not supported: use http")),
            None => return Err("not a URL".to_owned()),
        }
        if uri
            .authority()
            .is_some_and(|own| own.as_str().contains('@'))
        {
            return Err("credentials do not belong in settings, which are shown".to_owned());
        }
        if uri.query().is_some() {
            return Err("a query has no effect".to_owned());
        }
        Ok(OtlpEndpoint(Some(text.trim_end_matches('/').to_owned())))
    }

    fn write(&self) -> Written {
        Written::Text(self.0.as_deref().unwrap_or(NONE).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_is_written_so_that_it_reads_back() {
        for text in ["none", "http://127.0.0.1:4318", "http://[::1]:4318/below"] {
            assert_eq!(OtlpEndpoint::read(text).unwrap().write().to_string(), text);
        }
        let slash = OtlpEndpoint::read(" http://collector:4318/ ").unwrap();
        assert_eq!(slash.0.as_deref(), Some("http://collector:4318"));
    }

    #[test]
    fn what_is_wrong_is_refused_and_says_why() {
        for (text, why) in [
            ("", "not a URL"),
            ("127.0.0.1:4318", "not a URL"),
            ("/v1/traces", "not a URL"),
            ("http://", "not a URL"),
            ("http://a b", "not a URL"),
            ("grpc://collector:4317", "`grpc`"),
            ("https://collector:4318", "without TLS"),
            ("http://me:secret@collector", "credentials"),
            ("http://collector?a=b", "query"),
        ] {
            let error = OtlpEndpoint::read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
