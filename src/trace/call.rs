//! A call with its paths, as JSON and as a line of text.

use std::fmt;
use std::time::{Duration, SystemTime};

use forebay_nfs::SeenCall;
use serde::{Deserialize, Serialize};

use super::{Paths, soon};
use crate::logging::escaped;

/// Bytes of a path that are shown.
const PATH_BYTES: usize = 4 << 10;

/// A call that was answered.
///
/// Paths and names have no character that affects lines or terminals: these are escaped as in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedCall {
    /// When its last byte was read, in seconds since 1970, by this machine's clock.
    pub unix_seconds: f64,
    /// Address of the client.
    pub client: String,
    /// The user, as the call claims; null without AUTH_SYS.
    pub uid: Option<u32>,
    /// Name of the procedure.
    pub procedure: String,
    /// The object that the call names first: for calls with a name, the directory.
    #[serde(flatten)]
    pub object: TracedName,
    /// The name that RENAME and LINK make.
    pub to: Option<TracedName>,
    /// Offset in bytes of READ, WRITE and COMMIT.
    pub offset: Option<u64>,
    /// Bytes that are read, written, committed, or wanted of a listing.
    pub size: Option<u64>,
    /// `ok`, the name of an `nfsstat3`, or `refused`.
    pub result: String,
    /// From its last byte to the reply.
    pub seconds: f64,
    /// What it has waited for. Waits of different kinds may overlap.
    pub waits: Vec<TracedWait>,
    /// The requests to the bucket that it has caused, by method.
    pub requests: Vec<TracedRequests>,
}

/// An object, or a name in a directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracedName {
    /// Number of the file or directory; null if the handle is none of this volume.
    pub fileid: Option<u64>,
    /// Path from the root of the volume, with the name, if there is one; null if it is not known.
    pub path: Option<String>,
    /// The name in the directory `fileid`.
    pub name: Option<String>,
}

/// A wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedWait {
    /// What for: the words of docs/commands.md.
    #[serde(rename = "for")]
    pub what: String,
    /// How long, together.
    pub seconds: f64,
}

/// Requests to the bucket of one method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedRequests {
    /// Their method, in the words of the metrics: `get`, `put` ...
    pub method: String,
    /// Their number.
    pub requests: u64,
    /// Bytes of their bodies.
    pub sent_bytes: u64,
    /// Bytes of the bodies of their answers.
    pub received_bytes: u64,
    /// Time until their answers began, together.
    pub seconds: f64,
}

/// A call, and the paths that it is about in the bytes that clients gave them.
pub(super) struct WithPaths {
    pub(super) call: TracedCall,
    pub(super) paths: Vec<Vec<u8>>,
}

impl WithPaths {
    /// Finds the paths of a call.
    pub(super) async fn of(seen: SeenCall, paths: &impl Paths) -> WithPaths {
        let mut found = Vec::new();
        let object = traced_name(seen.fileid, seen.name, paths, &mut found).await;
        let to = match seen.to {
            Some((fileid, name)) => {
                Some(traced_name(Some(fileid), Some(name), paths, &mut found).await)
            }
            None => None,
        };
        let since = seen.arrived.duration_since(SystemTime::UNIX_EPOCH);
        let waits = seen.summary.waits.into_iter();
        let requests = seen.summary.requests.into_iter();
        let call = TracedCall {
            unix_seconds: since.unwrap_or_default().as_secs_f64(),
            client: seen.client.to_string(),
            uid: seen.user,
            procedure: seen.procedure.to_owned(),
            object,
            to,
            offset: seen.offset,
            size: seen.size,
            result: seen.result.to_owned(),
            seconds: seen.time.as_secs_f64(),
            waits: waits
                .map(|(what, time)| TracedWait {
                    what: what.name().to_owned(),
                    seconds: time.as_secs_f64(),
                })
                .collect(),
            requests: requests
                .map(|own| TracedRequests {
                    method: own.method.to_owned(),
                    requests: own.requests,
                    sent_bytes: own.sent_bytes,
                    received_bytes: own.received_bytes,
                    seconds: own.time.as_secs_f64(),
                })
                .collect(),
        };
        WithPaths { call, paths: found }
    }
}

async fn traced_name(
    fileid: Option<u64>,
    name: Option<Vec<u8>>,
    paths: &impl Paths,
    found: &mut Vec<Vec<u8>>,
) -> TracedName {
    let path = match fileid {
        Some(fileid) => soon(paths, fileid).await,
        None => None,
    };
    let path = path.map(|path| match &name {
        Some(name) => below(path, name),
        // The root.
        None if path.is_empty() => b"/".to_vec(),
        None => path,
    });
    let shown = |bytes: &[u8]| escaped(&String::from_utf8_lossy(bytes), PATH_BYTES);
    let traced = TracedName {
        fileid,
        path: path.as_deref().map(shown),
        name: name.as_deref().map(shown),
    };
    found.extend(path);
    traced
}

/// The path of a name in a directory.
fn below(mut directory: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if directory.last() != Some(&b'/') {
        directory.push(b'/');
    }
    directory.extend_from_slice(name);
    directory
}

impl TracedCall {
    /// What it has waited for, as text; empty if it has not waited.
    pub(super) fn waited(&self) -> String {
        let waits = self.waits.iter();
        let waits = waits.map(|wait| format!("{} for {}", time(wait.seconds), wait.what));
        waits.collect::<Vec<_>>().join(", ")
    }

    /// The requests that it has caused, as text; empty if there were none.
    pub(super) fn caused(&self) -> String {
        let requests = self.requests.iter().map(|own| {
            let (count, method) = (own.requests, &own.method);
            let bytes = own.sent_bytes + own.received_bytes;
            format!("{count} {method} ({bytes} bytes, {})", time(own.seconds))
        });
        requests.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for TracedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.fileid, &self.name) {
            (Some(path), _, _) => f.write_str(path),
            (None, Some(fileid), None) => write!(f, "fileid {fileid}"),
            (None, Some(fileid), Some(name)) => write!(f, "{name} in fileid {fileid}"),
            (None, None, _) => f.write_str("-"),
        }
    }
}

impl fmt::Display for TracedCall {
    /// As a line, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may come from a gateway of another version.
        let since = Duration::try_from_secs_f64(self.unix_seconds).unwrap_or_default();
        let since = Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or_default());
        match SystemTime::UNIX_EPOCH.checked_add(since) {
            // The last second that has a name.
            Some(at) if since.as_secs() < 253_402_300_800 => {
                write!(f, "{} ", humantime::format_rfc3339_millis(at))?;
            }
            Some(_) | None => write!(f, "{} ", self.unix_seconds)?,
        }
        let (client, procedure) = (&self.client, &self.procedure);
        match self.uid {
            Some(uid) => write!(f, "{client} uid {uid} {procedure}")?,
            None => write!(f, "{client} - {procedure}")?,
        }
        if self.object.fileid.is_some() {
            write!(f, " {}", self.object)?;
        }
        if let Some(to) = &self.to {
            write!(f, " to {to}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        if let Some(size) = self.size {
            write!(f, " {size} bytes")?;
        }
        write!(f, ": {} in {}", self.result, time(self.seconds))?;
        if !self.waits.is_empty() {
            write!(f, "; waited {}", self.waited())?;
        }
        if !self.requests.is_empty() {
            write!(f, "; caused {}", self.caused())?;
        }
        Ok(())
    }
}

/// A time as people read it: three digits and the unit.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        1.0.. => format!("{seconds:.2} s"),
        0.001.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} us", seconds * 1e6),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::IpAddr;

    use forebay_waits::{Requested, Summary};

    use super::*;

    /// Every object but number 0 has the path `/dir`.
    pub(in crate::trace) struct OneDirectory;

    impl Paths for OneDirectory {
        async fn path_of(&self, fileid: u64) -> Option<Vec<u8>> {
            (fileid > 0).then(|| b"/dir".to_vec())
        }
    }

    pub(in crate::trace) fn seen(procedure: &'static str) -> SeenCall {
        SeenCall {
            arrived: SystemTime::UNIX_EPOCH + Duration::from_millis(1_764_211_111_500),
            client: IpAddr::from([192, 0, 2, 7]),
            user: Some(1000),
            procedure,
            fileid: Some(7),
            name: None,
            to: None,
            offset: None,
            size: None,
            result: "ok",
            time: Duration::from_micros(1234),
            summary: Summary::default(),
        }
    }

    async fn line(seen: SeenCall) -> String {
        WithPaths::of(seen, &OneDirectory).await.call.to_string()
    }

    #[tokio::test]
    async fn a_call_is_one_line() {
        let read = SeenCall {
            offset: Some(4096),
            size: Some(65536),
            time: Duration::from_millis(1234),
            summary: Summary {
                waits: vec![(forebay_waits::For::Bucket, Duration::from_millis(1200))],
                requests: vec![Requested {
                    method: "get",
                    requests: 2,
                    sent_bytes: 0,
                    received_bytes: 65600,
                    time: Duration::from_millis(1500),
                }],
            },
            ..seen("READ")
        };
        assert_eq!(
            line(read).await,
            "2025-11-27T02:38:31.500Z 192.0.2.7 uid 1000 READ /dir at 4096 65536 bytes: ok in 1.23 s; \
             waited 1.20 s for bucket; caused 2 get (65600 bytes, 1.50 s)"
        );
        let rename = SeenCall {
            user: None,
            fileid: Some(0),
            name: Some(b"a".to_vec()),
            to: Some((7, b"b".to_vec())),
            result: "NFS3ERR_NOENT",
            ..seen("RENAME")
        };
        assert_eq!(
            line(rename).await,
            "2025-11-27T02:38:31.500Z 192.0.2.7 - RENAME a in fileid 0 to /dir/b: NFS3ERR_NOENT in 1.2 ms"
        );
        let null = SeenCall {
            fileid: None,
            time: Duration::from_micros(12),
            ..seen("NULL")
        };
        assert!(line(null).await.ends_with("uid 1000 NULL: ok in 12 us"));
    }

    #[tokio::test]
    async fn hostile_names_stay_in_their_line() {
        let lookup = SeenCall {
            name: Some(b"a\nb\x1b[2J\xff\xe2\x80\xae".to_vec()),
            ..seen("LOOKUP")
        };
        let traced = WithPaths::of(lookup, &OneDirectory).await;
        let expected = "/dir/a\\nb\\u{1b}[2J\u{fffd}\\u{202e}";
        assert_eq!(traced.call.object.path.as_deref(), Some(expected));
        assert_eq!(traced.call.to_string().lines().count(), 1);
        assert_eq!(traced.paths, [b"/dir/a\nb\x1b[2J\xff\xe2\x80\xae"]);
    }

    #[tokio::test]
    async fn a_call_reads_back_from_its_json() {
        let mut call = seen("LINK");
        call.to = Some((9, b"name".to_vec()));
        let call = WithPaths::of(call, &OneDirectory).await.call;
        let json = serde_json::to_value(&call).unwrap();
        assert_eq!(json["path"], "/dir");
        assert_eq!(json["to"]["path"], "/dir/name");
        assert_eq!(serde_json::from_value::<TracedCall>(json).unwrap(), call);
    }

    #[test]
    fn the_root_has_no_second_slash() {
        assert_eq!(below(b"/".to_vec(), b"a"), b"/a");
        assert_eq!(below(Vec::new(), b"a"), b"/a");
    }
}
