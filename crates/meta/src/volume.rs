//! The volume descriptor: the object that makes a prefix of a bucket a volume.
//!
//! It is written once, when the volume is formatted, and never changed but for a clone. It is text, so that a
//! person who finds it in a bucket can see what it belongs to:
//!
//! ```text
//! {"forebay":"volume","format":1,"volume":"<32 hex digits>","created":<seconds since 1970>,
//!  "block_size":4194304,"hash_key":"<64 hex digits>","sealing":"none"}\n     (one line)
//! crc32 <8 hex digits>\n                                 of the first line with its line break
//! ```
//!
//! The descriptor of a sealed volume has format 2, `"sealing":"aes-256-gcm"` and no `hash_key`, since every reader of
//! the bucket would know that key. The [key ring](keys) provides a secret in its place.
//!
//! That of a clone has format 3, also `"content":"<32 hex digits>"` and
//! `"sources":[{"at":"<prefix>","volume":"<32 hex digits>","snapshot":<number>,"last_epoch":<number>}]`: its
//! [origin]. It is replaced once, when the clone is detached.

pub mod holder;
pub mod keys;
pub mod notes;
pub mod origin;

use std::fmt;
use std::sync::Arc;

use forebay_seal::{RingError, SlotId};
use forebay_types::{BLOCK_SIZE, VolumeId};
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use serde::{Deserialize, Serialize};

use origin::{Origin, SourceText};

/// Name of the descriptor under the volume's prefix.
pub const DESCRIPTOR_NAME: &str = "forebay.volume";

/// The newest format that this program reads.
pub const FORMAT_VERSION: u32 = 3;

/// The format of volumes that are not sealed.
const UNSEALED_FORMAT: u32 = 1;
/// The format of sealed volumes: programs that do not support sealing report that they are too old.
const SEALED_FORMAT: u32 = 2;
/// The format of clones, sealed or not: programs that do not know where their packs lie report that they are too old.
const CLONE_FORMAT: u32 = 3;

/// Longest descriptor that is read, in bytes. A real one has some 300 bytes; a larger object is
/// something else under that name.
const MAX_DESCRIPTOR_BYTES: u64 = 64 << 10;

/// The properties of a volume that never change after it is formatted.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeDescriptor {
    /// Identity of the volume.
    pub volume: VolumeId,
    /// When it was formatted, in seconds since 1970-01-01 00:00 UTC.
    pub created: u64,
    /// Bytes in a block. Always [`BLOCK_SIZE`] in this version.
    pub block_size: u64,
    /// Whether its contents are sealed. Anyone with write access to the bucket can have written this: what the operator
    /// configured the gateway to [expect](keys::Expected) decides.
    pub protection: Protection,
    /// Where it comes from, if it is a clone.
    pub origin: Option<Origin>,
}

/// Whether the contents of a volume are sealed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// They are not: anyone who can read the bucket can read the files.
    None {
        /// Key of the hashes of frames and of the handles of files: 32 random bytes.
        hash_key: [u8; 32],
    },
    /// AES-256-GCM, with the keys of the volume's [key ring](keys).
    Aes256Gcm,
}

/// Text of [`Protection`] in the descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sealing {
    None,
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
}

/// Why a volume could not be formatted or opened.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// There is nothing under the prefix.
    #[error("there is no volume at {root}; make one with `forebay format`, or check the address")]
    NotFormatted {
        /// The prefix.
        root: String,
    },
    /// The prefix holds other objects and no descriptor.
    #[error(
        "{root} holds objects (such as {example}) but no forebay.volume, so it is not a volume of Forebay; choose an empty prefix, or, if it was a volume, restore that object from a copy"
    )]
    NotAVolume {
        /// The prefix.
        root: String,
        /// One of the objects.
        example: String,
    },
    /// The prefix holds a volume already.
    #[error(
        "there is a volume at {root} already; serve it as it is, or choose another prefix for a new one"
    )]
    AlreadyFormatted {
        /// The prefix.
        root: String,
    },
    /// A newer program formatted the volume.
    #[error(
        "the volume at {root} has format {found}, and this program reads formats up to {supported}; use a newer Forebay"
    )]
    Newer {
        /// The prefix.
        root: String,
        /// The volume's format.
        found: u32,
        /// The newest format that this program reads.
        supported: u32,
    },
    /// The descriptor differs from the one that was written.
    #[error(
        "the descriptor {root}/{DESCRIPTOR_NAME} is damaged: {why}; restore it (from an earlier version of the object, or a backup)"
    )]
    Damaged {
        /// The prefix.
        root: String,
        /// The defect.
        why: String,
    },
    /// A source of the clone cannot be used.
    #[error("the source {at} of this clone cannot be used: {why}")]
    Source {
        /// Its place.
        at: String,
        /// The reason.
        why: String,
    },
    /// The volume is not sealed, and was expected to be.
    #[error(
        "the volume at {root} is not sealed, but encryption = \"aes-256-gcm\" expects a sealed one; set encryption = \"off\" if it never was sealed. If it was, somebody has replaced its descriptor {DESCRIPTOR_NAME}: restore an earlier version of that object"
    )]
    NotSealed {
        /// The prefix.
        root: String,
    },
    /// The volume is sealed, and was not expected to be.
    #[error(
        "the volume at {root} is sealed; set encryption = \"aes-256-gcm\", and passphrase_file, key_file or kms_key to open it"
    )]
    Sealed {
        /// The prefix.
        root: String,
    },
    /// The volume is sealed and has no key ring.
    #[error(
        "the volume at {root} is sealed, but its key ring {object} is gone: restore it (from an earlier version of the object, or a backup). If `forebay format` was interrupted, delete the object {DESCRIPTOR_NAME} and format again"
    )]
    NoKeyRing {
        /// The prefix.
        root: String,
        /// The key ring's name.
        object: String,
    },
    /// The key ring cannot be used.
    #[error(transparent)]
    KeyRing(#[from] RingError),
    /// The change would have removed the slot that opened the key ring.
    #[error(
        "the key ring was opened with slot {0}; open it with another slot (--passphrase-file, --key-file or --kms-key), to prove that another slot still opens the volume"
    )]
    OwnSlot(SlotId),
    /// Other programs replaced the key ring during every attempt to change it.
    #[error(
        "other programs changed the key ring at the same time again and again, and this change was not made; try again later"
    )]
    KeyRingBusy,
    /// A request to the bucket failed.
    #[error("the bucket could not be used: {0}")]
    Store(#[from] object_store::Error),
}

impl VolumeError {
    /// The same error, with the prefix as people write it.
    pub fn at(mut self, address: &str) -> VolumeError {
        match &mut self {
            VolumeError::NotFormatted { root }
            | VolumeError::NotAVolume { root, .. }
            | VolumeError::AlreadyFormatted { root }
            | VolumeError::Newer { root, .. }
            | VolumeError::Damaged { root, .. }
            | VolumeError::NotSealed { root }
            | VolumeError::Sealed { root }
            | VolumeError::NoKeyRing { root, .. } => address.clone_into(root),
            VolumeError::Source { .. }
            | VolumeError::KeyRing(_)
            | VolumeError::OwnSlot(_)
            | VolumeError::KeyRingBusy
            | VolumeError::Store(_) => {}
        }
        self
    }
}

/// The first line as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    forebay: String,
    format: u32,
    volume: String,
    created: u64,
    block_size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash_key: Option<String>,
    sealing: Sealing,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sources: Option<Vec<SourceText>>,
}

/// The fields of the first line in every format.
#[derive(Deserialize)]
struct AnyFormat {
    forebay: String,
    format: u32,
}

impl VolumeDescriptor {
    /// Makes the prefix `root` a volume. The prefix must be empty.
    pub async fn create(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
        descriptor: &VolumeDescriptor,
    ) -> Result<(), VolumeError> {
        if let Some(example) = Self::any_object(store, root).await? {
            return Err(match Self::exists(store, root).await? {
                true => VolumeError::AlreadyFormatted {
                    root: root.to_string(),
                },
                false => VolumeError::NotAVolume {
                    root: root.to_string(),
                    example,
                },
            });
        }
        Self::publish(store, root, descriptor).await
    }

    /// Makes the prefix `root` a volume, whose other objects are there already.
    pub async fn publish(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
        descriptor: &VolumeDescriptor,
    ) -> Result<(), VolumeError> {
        let options = PutOptions::from(PutMode::Create);
        let location = Self::location(root);
        match store
            .put_opts(&location, descriptor.encode().into(), options)
            .await
        {
            Ok(_) => Ok(()),
            // Another program formatted it between the check and the put.
            Err(object_store::Error::AlreadyExists { .. }) => Err(VolumeError::AlreadyFormatted {
                root: root.to_string(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the descriptor of the volume under `root`; reads it once more if it arrives damaged.
    pub async fn load(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
    ) -> Result<VolumeDescriptor, VolumeError> {
        match Self::load_once(store, root).await {
            Err(error @ VolumeError::Damaged { .. }) => {
                tracing::warn!("{error}; it is read again");
                Self::load_once(store, root).await
            }
            loaded => loaded,
        }
    }

    async fn load_once(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
    ) -> Result<VolumeDescriptor, VolumeError> {
        let found = match store.get(&Self::location(root)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => {
                let root_text = root.to_string();
                return Err(match Self::any_object(store, root).await? {
                    Some(example) => VolumeError::NotAVolume {
                        root: root_text,
                        example,
                    },
                    None => VolumeError::NotFormatted { root: root_text },
                });
            }
            Err(error) => return Err(error.into()),
        };
        if found.meta.size > MAX_DESCRIPTOR_BYTES {
            return Err(VolumeError::Damaged {
                root: root.to_string(),
                why: "it is far too long".into(),
            });
        }
        Self::decode(root, &found.bytes().await?)
    }

    /// Replaces exactly this descriptor by `next`; returns whether it was still there.
    pub async fn replace(
        &self,
        store: &Arc<dyn ObjectStore>,
        root: &Path,
        next: &VolumeDescriptor,
    ) -> Result<bool, VolumeError> {
        let location = Self::location(root);
        let found = store.get(&location).await?;
        let version = UpdateVersion {
            e_tag: found.meta.e_tag.clone(),
            version: found.meta.version.clone(),
        };
        if found.bytes().await? != self.encode() {
            return Ok(false);
        }
        let options = PutOptions::from(PutMode::Update(version));
        match store
            .put_opts(&location, next.encode().into(), options)
            .await
        {
            Ok(_) => Ok(true),
            Err(object_store::Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The identity of its packs and tables.
    pub fn content(&self) -> VolumeId {
        let origin = self.origin.as_ref();
        origin.map_or(self.volume, |origin| origin.content)
    }

    /// Whether the descriptor says that the volume is sealed.
    pub fn is_sealed(&self) -> bool {
        matches!(self.protection, Protection::Aes256Gcm)
    }

    /// Location of the descriptor of the volume under `root`.
    pub fn location(root: &Path) -> Path {
        root.clone().join(DESCRIPTOR_NAME)
    }

    /// Whether there is a descriptor under `root`.
    pub async fn exists(store: &Arc<dyn ObjectStore>, root: &Path) -> Result<bool, VolumeError> {
        match store.head(&Self::location(root)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Name of some object under `root`.
    pub async fn any_object(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
    ) -> Result<Option<String>, VolumeError> {
        let mut objects = store.list(Some(root));
        let first = objects.next().await.transpose()?;
        Ok(first.map(|meta| meta.location.to_string()))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let (format, hash_key, sealing) = match &self.protection {
            Protection::None { hash_key } => (UNSEALED_FORMAT, Some(hex(hash_key)), Sealing::None),
            Protection::Aes256Gcm => (SEALED_FORMAT, None, Sealing::Aes256Gcm),
        };
        let format = match &self.origin {
            Some(_) => CLONE_FORMAT,
            None => format,
        };
        let origin = self.origin.as_ref();
        let text = Text {
            forebay: "volume".into(),
            format,
            volume: self.volume.to_string(),
            created: self.created,
            block_size: self.block_size,
            hash_key,
            sealing,
            content: origin.map(|origin| origin.content.to_string()),
            sources: origin.map(|origin| origin.sources.iter().map(SourceText::from).collect()),
        };
        // Strings and numbers only: writing them as JSON cannot fail.
        let mut out = serde_json::to_vec(&text).unwrap_or_default();
        out.push(b'\n');
        let crc = crc32fast::hash(&out);
        out.extend(checksum_line(crc).into_bytes());
        out
    }

    pub(crate) fn decode(root: &Path, bytes: &[u8]) -> Result<VolumeDescriptor, VolumeError> {
        let damaged = |why: &str| VolumeError::Damaged {
            root: root.to_string(),
            why: why.into(),
        };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
        let (line, crc) = text
            .split_once('\n')
            .ok_or_else(|| damaged("its second line is missing"))?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(line.as_bytes());
        hasher.update(b"\n");
        // Compared as text: this program never writes the same number in another way.
        if crc != checksum_line(hasher.finalize()) {
            return Err(damaged("its checksum does not match"));
        }
        // The message may quote the text, and anybody may have written that.
        let not_read =
            |error: serde_json::Error| damaged(&error.to_string().escape_debug().to_string());
        // The format comes first: the other fields of a newer one need not make sense here.
        let any: AnyFormat = serde_json::from_str(line).map_err(not_read)?;
        if any.forebay != "volume" {
            return Err(damaged("it does not describe a volume"));
        }
        if any.format > FORMAT_VERSION {
            return Err(VolumeError::Newer {
                root: root.to_string(),
                found: any.format,
                supported: FORMAT_VERSION,
            });
        }
        let text: Text = serde_json::from_str(line).map_err(not_read)?;
        if text.block_size != BLOCK_SIZE {
            return Err(damaged("its block size is not 4 MiB"));
        }
        let protection = match (text.format, text.sealing, &text.hash_key) {
            (UNSEALED_FORMAT | CLONE_FORMAT, Sealing::None, Some(hash_key)) => Protection::None {
                hash_key: unhex(hash_key)
                    .ok_or_else(|| damaged("its hash key is not 64 hexadecimal digits"))?,
            },
            (SEALED_FORMAT | CLONE_FORMAT, Sealing::Aes256Gcm, None) => Protection::Aes256Gcm,
            _ => return Err(damaged("its fields about sealing contradict each other")),
        };
        let origin = match (text.format, text.content, text.sources) {
            (CLONE_FORMAT, Some(content), Some(sources)) => {
                let origin = Origin::read(&content, sources);
                Some(origin.ok_or_else(|| damaged("where it comes from cannot be read"))?)
            }
            (UNSEALED_FORMAT | SEALED_FORMAT, None, None) => None,
            _ => return Err(damaged("its fields about its source contradict its format")),
        };
        Ok(VolumeDescriptor {
            volume: text
                .volume
                .parse()
                .map_err(|()| damaged("its volume id is not 32 hexadecimal digits"))?,
            created: text.created,
            block_size: text.block_size,
            protection,
            origin,
        })
    }
}

impl fmt::Debug for VolumeDescriptor {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeDescriptor")
            .field("volume", &self.volume)
            .field("created", &self.created)
            .field("block_size", &self.block_size)
            .field("is_sealed", &self.is_sealed())
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

fn checksum_line(crc: u32) -> String {
    format!("crc32 {crc:08x}\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes().as_chunks::<2>();
    let (pairs, []) = digits else {
        return None;
    };
    let bytes = pairs.iter().map(|pair| {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        u8::try_from(high? << 4 | low?).ok()
    });
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests;
