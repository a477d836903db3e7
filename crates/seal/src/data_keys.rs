//! The keys that data are sealed with.

use std::collections::BTreeMap;
use std::fmt;

use forebay_types::VolumeId;

use crate::{Entropy, ObjectId, Opener, PlaceSealer, Purpose, Salt, Sealer, Secret};

/// How the names of tables of metadata end.
const TABLE: &str = ".sst";

/// Number of a data key of a volume. Counts up from 1; the highest one seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataKeyId(pub u32);

impl fmt::Display for DataKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// There is no data key with this number: the key ring is older than the sealed data, or the number was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no data key {0} in the key ring that was read; read `forebay.keys` again, or \
     restore its newest version"
)]
pub struct UnknownDataKey(pub DataKeyId);

/// All data keys of a volume: the part of the key ring that a gateway keeps. The newest one seals,
/// and each opens what it has sealed.
pub struct DataKeys {
    volume: VolumeId,
    /// The volume whose identity packs and tables have: this one, or the first of the line that it was cloned from.
    content: VolumeId,
    current: (DataKeyId, Secret),
    older: BTreeMap<DataKeyId, Secret>,
}

impl DataKeys {
    /// The keys of `volume`; `current` seals. An older key with the same number as `current` is left out.
    pub fn new(
        volume: VolumeId,
        current: (DataKeyId, Secret),
        older: impl IntoIterator<Item = (DataKeyId, Secret)>,
    ) -> DataKeys {
        DataKeys {
            volume,
            content: volume,
            older: older
                .into_iter()
                .filter(|(id, _)| *id != current.0)
                .collect(),
            current,
        }
    }

    /// The same keys for a clone, whose packs and tables have the identity of `content`: it has some in common with its
    /// source.
    pub fn with_content(self, content: VolumeId) -> DataKeys {
        DataKeys { content, ..self }
    }

    /// The volume that they belong to.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The volume whose identity packs and tables have.
    pub fn content(&self) -> VolumeId {
        self.content
    }

    /// The key that seals.
    pub fn current(&self) -> DataKeyId {
        self.current.0
    }

    /// A sealer for an object of the volume that has a number. Each call makes another key.
    pub fn sealer(&self, purpose: Purpose, number: u64, entropy: &dyn Entropy) -> Sealer {
        self.sealer_of(self.numbered(purpose, number), entropy)
    }

    /// An opener for an object of the volume that was sealed under this number, with this data key and salt.
    pub fn opener(
        &self,
        purpose: Purpose,
        number: u64,
        id: DataKeyId,
        salt: &Salt,
    ) -> Result<Opener, UnknownDataKey> {
        self.opener_of(self.numbered(purpose, number), id, salt)
    }

    /// A sealer for an object of the volume that has a name. Each call makes another key.
    pub fn named_sealer(&self, purpose: Purpose, name: &str, entropy: &dyn Entropy) -> Sealer {
        self.sealer_of(self.named(purpose, name), entropy)
    }

    /// An opener for an object of the volume that was sealed under this name, with this data key and salt.
    pub fn named_opener(
        &self,
        purpose: Purpose,
        name: &str,
        id: DataKeyId,
        salt: &Salt,
    ) -> Result<Opener, UnknownDataKey> {
        self.opener_of(self.named(purpose, name), id, salt)
    }

    /// A sealer for an object of the volume that has a number, and parts at places of their own. Each call makes
    /// another key.
    pub fn place_sealer(
        &self,
        purpose: Purpose,
        number: u64,
        entropy: &dyn Entropy,
    ) -> PlaceSealer {
        let (id, key) = &self.current;
        PlaceSealer::new(*id, key, self.numbered(purpose, number), entropy)
    }

    fn sealer_of(&self, object: ObjectId<'_>, entropy: &dyn Entropy) -> Sealer {
        let (id, key) = &self.current;
        Sealer::new(*id, key, object, entropy)
    }

    fn opener_of(
        &self,
        object: ObjectId<'_>,
        id: DataKeyId,
        salt: &Salt,
    ) -> Result<Opener, UnknownDataKey> {
        let key = match id == self.current.0 {
            true => &self.current.1,
            false => self.older.get(&id).ok_or(UnknownDataKey(id))?,
        };
        Ok(Opener::new(key, object, salt))
    }

    fn numbered(&self, purpose: Purpose, number: u64) -> ObjectId<'static> {
        let volume = match purpose {
            Purpose::Pack => self.content,
            Purpose::Metadata | Purpose::Log => self.volume,
        };
        ObjectId {
            purpose,
            volume,
            number,
            name: "",
        }
    }

    fn named<'a>(&self, purpose: Purpose, name: &'a str) -> ObjectId<'a> {
        // The names of tables are unique in all volumes; those of manifests are not.
        let volume = match name.ends_with(TABLE) {
            true => self.content,
            false => self.volume,
        };
        ObjectId {
            purpose,
            volume,
            number: 0,
            name,
        }
    }
}

impl fmt::Debug for DataKeys {
    /// Shows the volume and the numbers, and never a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKeys")
            .field("volume", &self.volume)
            .field("current", &self.current.0)
            .field("older", &self.older.keys())
            .finish_non_exhaustive()
    }
}
