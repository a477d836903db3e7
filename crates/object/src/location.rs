//! Parsing of store URLs.

use std::fmt;
use std::path::{Path as FsPath, PathBuf};

use object_store::path::Path;

use crate::OpenError;

/// The location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A folder, always absolute.
    File(PathBuf),
    /// Memory of this process, shared under a name or private.
    Memory(Option<String>),
    /// A prefix of a bucket.
    S3 {
        /// Name of the bucket.
        bucket: String,
        /// Prefix in the bucket, which may be empty.
        prefix: Path,
    },
}

impl Location {
    /// Reads a store's URL. `file:` takes the rest of the text as the path, byte for byte, with or
    /// without the two slashes: `file:///srv/volume`, `file:/srv/volume`, `file:volume`.
    pub(crate) fn parse(url: &str) -> Result<Location, OpenError> {
        let invalid = |why: &str| OpenError::InvalidUrl {
            url: without_secrets(url),
            why: why.to_owned(),
        };
        if let Some(rest) = url.strip_prefix("file:") {
            let folder = match rest.strip_prefix("//") {
                Some(absolute) if absolute.starts_with('/') => absolute,
                Some(_) => {
                    return Err(invalid(
                        "an absolute path has three slashes (file:///srv/volume), a relative one none (file:volume)",
                    ));
                }
                None => rest,
            };
            if folder.is_empty() {
                return Err(invalid("it names no folder, as file:///srv/volume would"));
            }
            let folder = std::path::absolute(FsPath::new(folder))
                .map_err(|error| invalid(&format!("the working directory is unknown: {error}")))?;
            return Ok(Location::File(folder));
        }
        if let Some(name) = url.strip_prefix("memory://") {
            return Ok(Location::Memory(
                (!name.is_empty()).then(|| name.to_owned()),
            ));
        }
        if let Some(rest) = url.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.contains(['@', ':']) {
                return Err(invalid(
                    "keys, hosts and ports do not belong in the URL: use AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL",
                ));
            }
            let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            if bucket.is_empty() || !bucket.chars().all(sound) {
                return Err(invalid("it names no bucket, as s3://bucket/prefix would"));
            }
            let prefix = Path::parse(prefix.trim_end_matches('/'))
                .map_err(|error| invalid(&format!("the prefix cannot be used: {error}")))?;
            return Ok(Location::S3 {
                bucket: bucket.to_owned(),
                prefix,
            });
        }
        Err(OpenError::UnknownScheme {
            url: without_secrets(url),
        })
    }
}

/// The URL without the part before an `@`.
fn without_secrets(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}***{}", &url[..scheme + 3], &url[at..])
        }
        _ => url.to_owned(),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File(folder) => write!(f, "file://{}", folder.display()),
            Location::Memory(name) => write!(f, "memory://{}", name.as_deref().unwrap_or_default()),
            Location::S3 { bucket, prefix } if prefix.as_ref().is_empty() => {
                write!(f, "s3://{bucket}")
            }
            Location::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        Location::parse(url).unwrap().to_string()
    }

    #[test]
    fn every_kind_of_store_is_understood_and_shown() {
        assert_eq!(shown("file:///srv/a volume"), "file:///srv/a volume");
        assert_eq!(shown("file:/srv/volume"), "file:///srv/volume");
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            shown("file:volume"),
            format!("file://{}/volume", here.display())
        );
        assert_eq!(shown("memory://"), "memory://");
        assert_eq!(shown("memory://name"), "memory://name");
        assert_eq!(shown("s3://bucket"), "s3://bucket");
        assert_eq!(shown("s3://bucket/"), "s3://bucket");
        assert_eq!(shown("s3://my.bucket-1/a/b/"), "s3://my.bucket-1/a/b");
    }

    #[test]
    fn what_is_no_store_is_refused_with_the_way_out() {
        for (url, hint) in [
            ("", "file:///"),
            ("/srv/volume", "file:///"),
            ("gs://bucket", "s3://bucket/prefix"),
            ("S3://bucket", "s3://bucket/prefix"),
            ("file:", "names no folder"),
            ("file://srv/volume", "three slashes"),
            ("s3://", "names no bucket"),
            ("s3:///prefix", "names no bucket"),
            ("s3://bu cket", "names no bucket"),
            ("s3://bucket/a//b", "prefix"),
            ("s3://bucket/../b", "prefix"),
            ("s3://host:9000/bucket", "AWS_ENDPOINT_URL"),
            ("s3://key:secret@bucket", "AWS_ACCESS_KEY_ID"),
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(error.contains(hint), "{url}: {error}");
            assert!(!error.contains("secret@"), "{error}");
        }
    }
}
