//! The region and endpoint of an AWS KMS key.

use super::{Value, Written};

/// Stands for a region or endpoint that is determined automatically.
const AUTO: &str = "auto";

/// The region of a key; `None` is determined automatically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region(pub Option<String>);

impl Value for Region {
    const KIND: &'static str = "region";
    const EXAMPLE: &'static str = "auto, or a region such as eu-central-1";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == AUTO {
            return Ok(Region(None));
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        // It becomes a part of a host name.
        if text.is_empty() || text.len() > 63 || !text.bytes().all(fits) {
            return Err("not the name of a region".to_owned());
        }
        Ok(Region(Some(text.to_owned())))
    }

    fn write(&self) -> Written {
        Written::Text(self.0.as_deref().unwrap_or(AUTO).to_owned())
    }
}

/// The URL of a service; `None` is determined automatically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint(pub Option<String>);

impl Value for Endpoint {
    const KIND: &'static str = "URL";
    const EXAMPLE: &'static str = "auto, or a URL such as https://kms.example.com";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == AUTO {
            return Ok(Endpoint(None));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("neither a word nor a URL".to_owned());
        };
        if !matches!(scheme, "http" | "https") {
            return Err(format!("`{scheme}` is not supported: use http or https"));
        }
        if rest.contains('@') {
            return Err(
                "credentials do not belong in settings, which are shown; KMS takes those of AWS"
                    .to_owned(),
            );
        }
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte);
        if rest.is_empty() || rest.starts_with('/') || !rest.bytes().all(fits) {
            return Err("not the URL of a service".to_owned());
        }
        Ok(Endpoint(Some(text.to_owned())))
    }

    fn write(&self) -> Written {
        Written::Text(self.0.as_deref().unwrap_or(AUTO).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_is_written_so_that_it_reads_back() {
        for text in ["auto", "eu-central-1", "us-gov-west-1"] {
            assert_eq!(Region::read(text).unwrap().write().to_string(), text);
        }
        for text in [
            "auto",
            "https://kms.example.com",
            "http://127.0.0.1:4566/path",
        ] {
            assert_eq!(Endpoint::read(text).unwrap().write().to_string(), text);
        }
        assert_eq!(Region::read(" auto "), Ok(Region(None)));
        assert_eq!(Endpoint::read("auto"), Ok(Endpoint(None)));
    }

    #[test]
    fn what_is_wrong_is_refused_and_says_why() {
        for text in ["", "eu central", "eu-central-1.example.com", "é"] {
            let error = Region::read(text).unwrap_err();
            assert!(error.contains("not the name"), "{text}: {error}");
        }
        for (text, why) in [
            ("", "neither"),
            ("kms.example.com", "neither"),
            ("ftp://kms", "`ftp`"),
            ("https://", "not the URL"),
            ("https:///path", "not the URL"),
            ("https://a b", "not the URL"),
            ("https://a?b", "not the URL"),
            ("https://me:secret@kms", "credentials"),
        ] {
            let error = Endpoint::read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
