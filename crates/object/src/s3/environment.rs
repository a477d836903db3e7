//! Checks of the variables and settings that become part of a header or an address: the SDK assumes that they are valid
//! there, and panics where they are not.

use std::ffi::OsStr;

use crate::{Encryption, OpenError, StoreOptions};

/// The prefix of all variables that the SDK reads.
const PREFIX: &str = "AWS_";

const NEWLINE: &str =
    "ends in a line break: write it without, as `printf %s VALUE` does and `echo VALUE` does not";
const SPACE: &str = "begins or ends with a space: write it without";
const CONTROL: &str = "holds a line break or another control character: correct it";
const NOT_TEXT: &str = "is not UTF-8 text: correct it";

fn wrong(name: &str, why: &str) -> OpenError {
    OpenError::Setting {
        name: name.to_owned(),
        why: why.to_owned(),
    }
}

/// Checks the variables that the SDK reads.
///
/// # Errors
/// The first one that cannot be used; the message does not contain its value.
pub fn check_environment() -> Result<(), OpenError> {
    let mut variables: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(|name| name.starts_with(PREFIX)))
        .collect();
    variables.sort();
    variables
        .iter()
        .try_for_each(|(name, value)| check_variable(&name.to_string_lossy(), value))
}

fn check_variable(name: &str, value: &OsStr) -> Result<(), OpenError> {
    let value = value.to_str().ok_or_else(|| wrong(name, NOT_TEXT))?;
    check_text(name, value)?;
    match name {
        "AWS_REGION" | "AWS_DEFAULT_REGION" if !value.is_empty() => check_region(name, value),
        _ => Ok(()),
    }
}

/// Whether a value can be part of a header.
pub(super) fn check_text(name: &str, value: &str) -> Result<(), OpenError> {
    let why = match value {
        _ if value.ends_with(['\n', '\r']) => NEWLINE,
        _ if value.trim() != value => SPACE,
        _ if value.contains(char::is_control) => CONTROL,
        _ => return Ok(()),
    };
    Err(wrong(name, why))
}

/// Whether `value`, which `name` has set, can be a region.
///
/// # Errors
/// When it cannot.
pub fn check_region(name: &str, value: &str) -> Result<(), OpenError> {
    check_text(name, value)?;
    let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !value.is_empty() && value.len() <= 63 && value.chars().all(is_sound) {
        true => Ok(()),
        false => Err(wrong(
            name,
            "is not a region: write it like us-east-1, in letters, digits and hyphens",
        )),
    }
}

/// Checks the fields of `options` that become part of headers.
pub(super) fn check_options(options: &StoreOptions) -> Result<(), OpenError> {
    let texts = [
        ("s3_storage_class", options.storage_class.as_deref()),
        ("the profile", options.profile.as_deref()),
        (
            "s3_kms_key",
            match &options.encryption {
                Encryption::Kms { key } => key.as_deref(),
                Encryption::Bucket | Encryption::Aes256 => None,
            },
        ),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            check_text(name, value)?;
            if !value.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
                return Err(wrong(
                    name,
                    "holds a character that no header may have: correct it",
                ));
            }
        }
    }
    match &options.region {
        Some(region) => check_region("the region", region),
        None => Ok(()),
    }
}

/// The endpoint that `name` has set, in the form that the SDK expects: a path ends in a slash, without which the SDK
/// would append the bucket to it without a separator.
///
/// # Errors
/// When it is no address of a server.
pub fn endpoint(name: &str, url: &str) -> Result<String, OpenError> {
    check_text(name, url)?;
    let no_url = |why: &str| {
        Err(wrong(
            name,
            &format!("{why}: write it like https://HOST, http://HOST:PORT or https://HOST/PATH"),
        ))
    };
    let Some((scheme, rest)) = url.split_once("://") else {
        return no_url("has no http:// or https://");
    };
    let scheme = scheme.to_ascii_lowercase();
    if !matches!(scheme.as_str(), "http" | "https") {
        return no_url("begins with something other than http:// or https://");
    }
    if rest.contains('@') {
        return no_url(
            "holds a user or a key, which belong into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        );
    }
    if rest.contains(['?', '#', '\\', '%']) || !rest.bytes().all(|b| b.is_ascii_graphic()) {
        return no_url("holds a character that no address of a server has");
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if !is_authority(authority) {
        return no_url("has no host, or an invalid port");
    }
    let path = path.trim_end_matches('/');
    let end = if path.is_empty() { "" } else { "/" };
    Ok(format!("{scheme}://{authority}{path}{end}"))
}

/// Whether this is a host, with an optional port.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address lie within brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !host.is_empty() && host.chars().all(is_sound)
        }
    };
    is_host && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_variable_that_cannot_be_sent_is_named_and_its_value_is_not_told() {
        for (value, why) in [
            ("SECRET\n", "line break"),
            ("SECRET\r\n", "line break"),
            (" SECRET", "space"),
            ("SECRET\t", "space"),
            ("SEC\nRET", "control"),
            ("SEC\0RET", "control"),
        ] {
            let error = check_variable("AWS_ACCESS_KEY_ID", OsStr::new(value));
            let error = error.unwrap_err().to_string();
            assert!(
                error.starts_with("AWS_ACCESS_KEY_ID ") && error.contains(why),
                "{error}"
            );
            assert!(
                !error.contains("SECRET") && !error.contains('\n'),
                "{error}"
            );
        }
        let bytes = OsStr::from_bytes(b"\xff");
        let error = check_variable("AWS_PROFILE", bytes).unwrap_err();
        assert!(error.to_string().contains("not UTF-8 text"), "{error}");
        check_variable("AWS_PROFILE", OsStr::new("my profile")).unwrap();
        check_variable("AWS_REGION", OsStr::new("")).unwrap();
        check_variable("AWS_REGION", OsStr::new("eu-central-1")).unwrap();
        for region in ["eu central", "eu/1", "é", &"x".repeat(64)] {
            check_variable("AWS_REGION", OsStr::new(region)).unwrap_err();
        }
    }

    #[test]
    fn a_path_of_an_endpoint_ends_in_a_slash_and_nothing_else_does() {
        for (url, expected) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http://127.0.0.1:9000/", "http://127.0.0.1:9000"),
            ("HTTPS://s3.example", "https://s3.example"),
            (
                "https://s3.example/storage/v1/s3",
                "https://s3.example/storage/v1/s3/",
            ),
            (
                "https://s3.example/storage/v1/s3//",
                "https://s3.example/storage/v1/s3/",
            ),
            ("http://[::1]:9000/a", "http://[::1]:9000/a/"),
            ("http://[fd00::1]", "http://[fd00::1]"),
        ] {
            assert_eq!(endpoint("AWS_ENDPOINT_URL", url).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_the_name_of_what_has_set_it() {
        for (url, why) in [
            ("", "http://"),
            ("minio:9000", "http://"),
            ("ftp://minio", "something other"),
            ("http://", "no host"),
            ("http://minio:port", "no host"),
            ("http://minio:0", "no host"),
            ("http://minio:99999", "no host"),
            ("http://key:secret@minio", "AWS_ACCESS_KEY_ID"),
            ("http://minio?x=1", "character"),
            ("http://mi nio", "character"),
            ("http://minio/ü", "character"),
            ("http://minio\n", "line break"),
            ("http://[::1", "no host"),
        ] {
            let error = endpoint("AWS_ENDPOINT_URL", url).unwrap_err().to_string();
            assert!(
                error.starts_with("AWS_ENDPOINT_URL ") && error.contains(why),
                "{url}: {error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
