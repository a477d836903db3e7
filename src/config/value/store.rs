//! The URL of a volume's store.

use std::fmt;
use std::path::Path;

use super::{Value, Written};

/// The URL of the bucket and prefix that hold a volume. The scheme is checked; whether the store exists is determined
/// when it is opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder, if the store is one.
    pub fn folder(&self) -> Option<&Path> {
        self.0.strip_prefix("file://").map(Path::new)
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Value for StoreUrl {
    const KIND: &'static str = "URL";
    const EXAMPLE: &'static str = "s3://BUCKET, s3://BUCKET/PREFIX or file:///PATH";

    fn read(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(if text.starts_with('/') {
                format!("not a URL; a folder is written file://{text}")
            } else if text.starts_with("file:") {
                "a folder is written with three slashes and from the root".to_owned()
            } else {
                "not a URL".to_owned()
            });
        };
        match scheme {
            "s3" => check_bucket(rest)?,
            "file" if rest.starts_with('/') => {}
            "file" => {
                return Err("a folder is written with three slashes and from the root".to_owned());
            }
            "memory" => {}
            _ => return Err(format!("no store is of the kind `{scheme}`")),
        }
        Ok(StoreUrl(text.to_owned()))
    }

    fn write(&self) -> Written {
        Written::Text(self.0.clone())
    }
}

fn check_bucket(rest: &str) -> Result<(), String> {
    let bucket = rest.split('/').next().unwrap_or_default();
    if bucket.contains('@') {
        return Err(
            "credentials do not belong in the URL; set AWS_ACCESS_KEY_ID and \
                    AWS_SECRET_ACCESS_KEY or a profile"
                .to_owned(),
        );
    }
    if bucket.is_empty() {
        return Err("no bucket is named".to_owned());
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if !bucket.bytes().all(fits) {
        return Err(format!(
            "`{bucket}` cannot be the name of a bucket; the address of a server goes into AWS_ENDPOINT_URL"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_named_by_url() {
        for text in [
            "s3://bucket",
            "s3://my-bucket.x/a/b",
            "file:///srv/volume",
            "memory://",
        ] {
            assert_eq!(StoreUrl::read(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn other_stores_are_refused_with_the_way_out() {
        for (text, reason) in [
            ("/srv/volume", "a folder is written file:///srv/volume"),
            ("bucket", "not a URL"),
            ("s3://", "no bucket"),
            ("s3:///prefix", "no bucket"),
            ("s3://key:secret@bucket", "credentials do not belong"),
            ("s3://buck et", "cannot be the name"),
            ("file://volume", "three slashes"),
            ("file:volume", "three slashes"),
            ("s3://host:9000/bucket", "AWS_ENDPOINT_URL"),
            ("gs://bucket", "no store is of the kind `gs`"),
        ] {
            let error = StoreUrl::read(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
