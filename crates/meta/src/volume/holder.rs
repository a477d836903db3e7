//! The holder's note: the object that names the gateway that holds a volume, and whether it has stopped in order.
//!
//! A gateway writes it before it opens the metadata for writing, and once more when it stops or its start fails. Each write replaces
//! exactly the version that was read, so of two gateways that start at the same moment one fails here, before it can
//! fence the other. In between it is not written: an idle volume makes no requests, and the note does not show
//! whether its gateway still runs.
//!
//! ```text
//! {"forebay":"holder","format":1,"volume":"<32 hex digits>","gateway":"<32 hex digits>","instance":"<32 hex digits>",
//!  "host":"nas1","process":4711,"address":"127.0.0.1:2049","data_dir":"/var/lib/forebay","since":<seconds since 1970>,
//!  "publishes_every_ms":5000,"has_log":true,"stopped":{"at":<seconds since 1970>,"unpublished_bytes":0}}\n   (one line)
//! crc32 <8 hex digits>\n                                      of the first line with its line break
//! ```
//!
//! `stopped` is `null` while the volume is held. The note protects against mistakes, not against attackers: anyone
//! with write access to the bucket can write it. No field of it is needed to read the volume.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use forebay_types::VolumeId;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use serde::{Deserialize, Serialize};

use super::checksum_line;

/// Name of the note under the volume's prefix.
pub const HOLDER_NAME: &str = "forebay.holder";

/// The format that this program reads and writes.
const FORMAT: u32 = 1;

/// Longest note that is read. A real one has some 500 bytes.
const MAX_NOTE_BYTES: u64 = 16 << 10;

/// Longest text of a note that is shown, in characters.
const SHOWN_CHARACTERS: usize = 256;

/// Which gateway holds a volume, or held it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The volume.
    pub volume: VolumeId,
    /// Identity of the gateway's local folder.
    pub gateway: [u8; 16],
    /// A random number drawn at each start.
    pub instance: [u8; 16],
    /// Name of its machine.
    pub host: String,
    /// Its process id there.
    pub process: u32,
    /// Address where it serves NFS.
    pub address: String,
    /// Its local folder.
    pub data_dir: String,
    /// When it opened the volume, in seconds since 1970.
    pub since: u64,
    /// How long a change may stay unpublished while the bucket answers, in milliseconds.
    pub publishes_every_ms: u64,
    /// Whether its own log on disk holds acknowledged changes until they are published.
    pub has_log: bool,
    /// Set by an orderly stop.
    pub stopped: Option<StoppedInOrder>,
}

/// How a gateway left the volume after an orderly stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoppedInOrder {
    /// When, in seconds since 1970.
    pub at: u64,
    /// Bytes of its log that the bucket does not have.
    pub unpublished_bytes: u64,
}

/// The first line as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    forebay: String,
    format: u32,
    volume: String,
    gateway: String,
    instance: String,
    host: String,
    process: u32,
    address: String,
    data_dir: String,
    since: u64,
    publishes_every_ms: u64,
    has_log: bool,
    stopped: Option<StoppedInOrder>,
}

/// The fields of the first line in each format.
#[derive(Deserialize)]
struct AnyFormat {
    forebay: String,
    format: u32,
}

/// A note as stored in the bucket.
#[derive(Debug)]
pub struct StoredHolder {
    /// Its content, or the reason why it cannot be read.
    pub holder: Result<Holder, String>,
    /// The version to replace.
    pub version: UpdateVersion,
}

/// The result of writing a note.
#[derive(Debug)]
pub enum HolderPut {
    /// The bucket has it, as this version.
    Done(UpdateVersion),
    /// The bucket has another version than the one that was to be replaced.
    Conflict,
}

impl StoredHolder {
    /// Reads the note of the volume under `root`; `None` if there is none.
    ///
    /// # Errors
    /// When the bucket fails. A note that cannot be read is no error.
    pub async fn load(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
    ) -> Result<Option<StoredHolder>, Error> {
        let found = match store.get(&location(root)).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let version = UpdateVersion {
            e_tag: found.meta.e_tag.clone(),
            version: found.meta.version.clone(),
        };
        let holder = match found.meta.size > MAX_NOTE_BYTES {
            true => Err("it is far too long".to_owned()),
            false => Holder::decode(&found.bytes().await?),
        };
        Ok(Some(StoredHolder { holder, version }))
    }
}

impl Holder {
    /// Writes the note in place of the version `replaced`, or where there is none.
    ///
    /// # Errors
    /// When the bucket fails. It may have the note then, or not.
    pub async fn put(
        &self,
        store: &Arc<dyn ObjectStore>,
        root: &Path,
        replaced: Option<UpdateVersion>,
    ) -> Result<HolderPut, Error> {
        let mode = replaced.map_or(PutMode::Create, PutMode::Update);
        let (location, note) = (location(root), Bytes::from(self.encode()));
        let put = store.put_opts(&location, note.into(), PutOptions::from(mode));
        match put.await {
            Ok(done) => Ok(HolderPut::Done(UpdateVersion {
                e_tag: done.e_tag,
                version: done.version,
            })),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                Ok(HolderPut::Conflict)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether it records that the bucket has everything and no gateway holds the volume.
    pub fn is_free(&self) -> bool {
        self.stopped
            .is_some_and(|stopped| stopped.unpublished_bytes == 0)
    }

    /// The note as text.
    pub fn encode(&self) -> Vec<u8> {
        let text = Text {
            forebay: "holder".into(),
            format: FORMAT,
            volume: self.volume.to_string(),
            gateway: hex(&self.gateway),
            instance: hex(&self.instance),
            host: self.host.clone(),
            process: self.process,
            address: self.address.clone(),
            data_dir: self.data_dir.clone(),
            since: self.since,
            publishes_every_ms: self.publishes_every_ms,
            has_log: self.has_log,
            stopped: self.stopped,
        };
        // Strings and numbers only: writing them as JSON cannot fail.
        let mut out = serde_json::to_vec(&text).unwrap_or_default();
        out.push(b'\n');
        let crc = crc32fast::hash(&out);
        out.extend(checksum_line(crc).into_bytes());
        out
    }

    /// Decodes the output of [`Holder::encode`].
    ///
    /// # Errors
    /// The defect of the text, as a message that is safe to print.
    pub fn decode(bytes: &[u8]) -> Result<Holder, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let (line, crc) = text.split_once('\n').ok_or("its second line is missing")?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(line.as_bytes());
        hasher.update(b"\n");
        if crc != checksum_line(hasher.finalize()) {
            return Err("its checksum does not match".to_owned());
        }
        let not_read = |error: serde_json::Error| shown(&error.to_string());
        let any: AnyFormat = serde_json::from_str(line).map_err(not_read)?;
        if any.forebay != "holder" {
            return Err("it does not name the holder of a volume".to_owned());
        }
        if any.format > FORMAT {
            return Err(format!(
                "it has format {}, and this program reads formats up to {FORMAT}: use a newer Forebay",
                any.format
            ));
        }
        let text: Text = serde_json::from_str(line).map_err(not_read)?;
        let identity = |text: &str| unhex(text).ok_or("an identity is not 32 hexadecimal digits");
        Ok(Holder {
            volume: text
                .volume
                .parse()
                .map_err(|()| "its volume id is not 32 hexadecimal digits")?,
            gateway: identity(&text.gateway)?,
            instance: identity(&text.instance)?,
            host: text.host,
            process: text.process,
            address: text.address,
            data_dir: text.data_dir,
            since: text.since,
            publishes_every_ms: text.publishes_every_ms,
            has_log: text.has_log,
            stopped: text.stopped,
        })
    }
}

impl fmt::Display for Holder {
    /// The gateway, and its start time. Texts from the bucket are shown without control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the gateway on host {}, process {}, instance {}, which serves {} with data_dir {} since {}",
            shown(&self.host),
            self.process,
            &hex(&self.instance)[..8],
            shown(&self.address),
            shown(&self.data_dir),
            time(self.since),
        )
    }
}

/// A moment in seconds since 1970, for people.
pub fn time(seconds: u64) -> String {
    let moment = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0));
    match moment {
        Some(moment) => moment.to_string(),
        None => format!("{seconds} s after 1970"),
    }
}

/// A text that anybody may have written, for a message.
fn shown(text: &str) -> String {
    let escaped = text.escape_debug();
    escaped.take(SHOWN_CHARACTERS).collect()
}

fn location(root: &Path) -> Path {
    root.clone().join(HOLDER_NAME)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let bytes = pairs.iter().map(|pair| {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        u8::try_from(high? << 4 | low?).ok()
    });
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn holder() -> Holder {
        Holder {
            volume: VolumeId([7; 16]),
            gateway: [1; 16],
            instance: [2; 16],
            host: "nas1".to_owned(),
            process: 4711,
            address: "127.0.0.1:2049".to_owned(),
            data_dir: "/var/lib/forebay".to_owned(),
            since: 1_790_000_000,
            publishes_every_ms: 5000,
            has_log: true,
            stopped: None,
        }
    }

    fn bucket() -> (Arc<dyn ObjectStore>, Path) {
        (Arc::new(InMemory::new()), Path::from("some/prefix"))
    }

    #[test]
    fn a_note_is_read_back_held_and_stopped() {
        let stopped = Holder {
            stopped: Some(StoppedInOrder {
                at: 1_790_000_100,
                unpublished_bytes: 0,
            }),
            ..holder()
        };
        let left = Holder {
            stopped: Some(StoppedInOrder {
                at: 1_790_000_100,
                unpublished_bytes: 1,
            }),
            ..holder()
        };
        for (note, is_free) in [(holder(), false), (stopped, true), (left, false)] {
            assert_eq!(Holder::decode(&note.encode()), Ok(note.clone()));
            assert_eq!(note.is_free(), is_free);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_note_is_noticed() {
        let bytes = holder().encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            Holder::decode(&damaged).unwrap_err();
        }
    }

    #[test]
    fn a_note_shows_no_control_characters_and_has_a_bound() {
        let hostile = Holder {
            host: format!("\x1b[2Jnas\n{}", "x".repeat(10_000)),
            ..holder()
        };
        let read = Holder::decode(&hostile.encode()).unwrap();
        let shown = read.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.len() < 1000, "{}", shown.len());
        assert!(shown.contains("2026-09-21"), "{shown}");
    }

    #[tokio::test]
    async fn of_two_that_replace_one_version_the_second_fails() {
        let (store, root) = bucket();
        assert!(StoredHolder::load(&store, &root).await.unwrap().is_none());
        let put = holder().put(&store, &root, None).await.unwrap();
        assert!(matches!(put, HolderPut::Done(_)));
        let again = holder().put(&store, &root, None).await.unwrap();
        assert!(matches!(again, HolderPut::Conflict));
        let found = StoredHolder::load(&store, &root).await.unwrap().unwrap();
        let other = Holder {
            instance: [3; 16],
            ..holder()
        };
        let put = other.put(&store, &root, Some(found.version.clone()));
        assert!(matches!(put.await.unwrap(), HolderPut::Done(_)));
        let (late, version) = (holder(), Some(found.version));
        let put = late.put(&store, &root, version).await;
        assert!(matches!(put.unwrap(), HolderPut::Conflict));
        let found = StoredHolder::load(&store, &root).await.unwrap().unwrap();
        assert_eq!(found.holder, Ok(other));
    }

    #[tokio::test]
    async fn a_note_that_is_something_else_is_found_and_not_believed() {
        let (store, root) = bucket();
        for bytes in [
            &b""[..],
            b"{}",
            b"{}\ncrc32 00000000\n",
            &vec![b'x'; 1 << 20],
        ] {
            store
                .put(&location(&root), bytes.to_vec().into())
                .await
                .unwrap();
            let found = StoredHolder::load(&store, &root).await.unwrap().unwrap();
            found.holder.unwrap_err();
        }
    }
}
