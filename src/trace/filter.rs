//! Which calls a trace shows.

use std::net::IpAddr;
use std::time::Duration;

use forebay_nfs::nfs3::PROCEDURES;
use forebay_nfs::{CallFilter, SeenCall};
use serde::{Deserialize, Serialize};

use super::call::WithPaths;
use super::{Paths, TracedCall};

/// A request for a trace: the calls that are answered from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Only those of this client.
    #[serde(default)]
    pub client: Option<IpAddr>,
    /// Only those about this path from the root of the volume, and about everything below it.
    #[serde(default)]
    pub path: Option<String>,
    /// Only those that take at least this long.
    #[serde(default)]
    pub slower_than: Option<Duration>,
    /// Only those of this procedure.
    #[serde(default)]
    pub procedure: Option<String>,
}

impl TraceRequest {
    /// The part of the filter that needs no paths.
    ///
    /// # Errors
    /// There is no such procedure.
    pub(crate) fn filter(&self) -> Result<CallFilter, String> {
        let procedure = self.procedure.as_deref();
        let procedure = procedure.map(|wanted| {
            let mut known = PROCEDURES.into_iter();
            known
                .find(|known| known.eq_ignore_ascii_case(wanted))
                .ok_or_else(|| format!("there is no procedure `{wanted}` in NFSv3"))
        });
        Ok(CallFilter {
            client: self.client.map(|client| client.to_canonical()),
            procedure: procedure.transpose()?,
            at_least: self.slower_than.unwrap_or_default(),
        })
    }

    /// The call with its paths, if it is about the wanted one.
    pub(crate) async fn traced(&self, seen: SeenCall, paths: &impl Paths) -> Option<TracedCall> {
        let found = WithPaths::of(seen, paths).await;
        let is_wanted = self.path.as_ref().is_none_or(|wanted| {
            let mut own = found.paths.iter();
            own.any(|path| is_below(path, wanted.as_bytes()))
        });
        is_wanted.then_some(found.call)
    }
}

/// Whether `path` is `directory`, or lies below it.
pub fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let ending = directory.iter().rposition(|byte| *byte != b'/');
    let directory = &directory[..ending.map_or(0, |last| last + 1)];
    match path.strip_prefix(directory) {
        Some(rest) => rest.first().is_none_or(|byte| *byte == b'/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::call::tests::{OneDirectory, seen};

    #[test]
    fn a_path_is_below_its_directories_and_not_below_their_neighbours() {
        for (path, directory, expected) in [
            ("/a/b", "/a", true),
            ("/a/b", "/a/", true),
            ("/a", "/a/", true),
            ("/a", "/", true),
            ("/", "/", true),
            ("/ab", "/a", false),
            ("/a", "/a/b", false),
            ("/b/a", "/a", false),
        ] {
            let is = is_below(path.as_bytes(), directory.as_bytes());
            assert_eq!(is, expected, "{path} {directory}");
        }
    }

    #[tokio::test]
    async fn a_call_without_a_known_path_is_below_none() {
        let request = TraceRequest {
            path: Some("/".to_owned()),
            ..TraceRequest::default()
        };
        let mut call = seen("GETATTR");
        assert!(request.traced(call.clone(), &OneDirectory).await.is_some());
        call.fileid = Some(0);
        assert!(request.traced(call.clone(), &OneDirectory).await.is_none());
        // One of two is enough.
        call.to = Some((1, b"name".to_vec()));
        assert!(request.traced(call.clone(), &OneDirectory).await.is_some());
        call.fileid = None;
        call.to = None;
        let all = TraceRequest::default();
        assert!(all.traced(call, &OneDirectory).await.is_some());
    }

    #[test]
    fn procedures_are_known_by_their_names_in_any_case() {
        let filter = |name: &str| {
            let request = TraceRequest {
                procedure: Some(name.to_owned()),
                ..TraceRequest::default()
            };
            request.filter().map(|filter| filter.procedure)
        };
        assert_eq!(filter("readdirplus"), Ok(Some("READDIRPLUS")));
        assert!(filter("READV").is_err_and(|problem| problem.contains("READV")));
    }
}
