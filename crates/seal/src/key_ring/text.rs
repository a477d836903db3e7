//! The text format of a key ring.

use std::collections::BTreeMap;

use forebay_types::VolumeId;
use serde::{Deserialize, Serialize};

use super::{
    KEY_RING_VERSION, MAX_DATA_KEYS, MAX_KEY_RING_LEN, MAX_SERVICE_NAME_LEN, MAX_SLOTS,
    MAX_WRAPPED_LEN, RingError, SealedDataKey, Slot, SlotId, WrappedKey,
};
use crate::{Argon2Cost, DataKeyId, hex};

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    forebay: String,
    format: u32,
    volume: String,
    generation: u64,
    slots: Vec<SlotText>,
    data_keys: Vec<DataKeyText>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum SlotText {
    Passphrase {
        id: u32,
        argon2id: Argon2Cost,
        salt: String,
        wrapped: String,
    },
    KeyFile {
        id: u32,
        salt: String,
        wrapped: String,
    },
    Service {
        id: u32,
        service: String,
        key: String,
        wrapped: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataKeyText {
    id: u32,
    created: u64,
    salt: String,
    sealed: String,
}

/// The fields of the first line in every format.
#[derive(Deserialize)]
struct AnyFormat {
    forebay: String,
    format: u32,
}

/// The contents of a key ring, not yet authenticated.
pub(super) struct Content {
    pub(super) volume: VolumeId,
    pub(super) generation: u64,
    pub(super) slots: BTreeMap<SlotId, Slot>,
    pub(super) data_keys: BTreeMap<DataKeyId, SealedDataKey>,
}

/// Encodes the first line, with its line break.
pub(super) fn encode<'a>(
    volume: VolumeId,
    generation: u64,
    slots: &BTreeMap<SlotId, Slot>,
    data_keys: impl Iterator<Item = (&'a DataKeyId, &'a SealedDataKey)>,
) -> Vec<u8> {
    let text = Text {
        forebay: "keys".into(),
        format: KEY_RING_VERSION,
        volume: volume.to_string(),
        generation,
        slots: slots.iter().map(slot_text).collect(),
        data_keys: data_keys
            .map(|(id, key)| DataKeyText {
                id: id.0,
                created: key.created,
                salt: hex::encode(&key.sealed.salt),
                sealed: key.sealed.to_hex(),
            })
            .collect(),
    };
    // Strings and numbers only: writing them as JSON cannot fail.
    let mut line = serde_json::to_vec(&text).unwrap_or_default();
    line.push(b'\n');
    line
}

fn slot_text((id, slot): (&SlotId, &Slot)) -> SlotText {
    let id = id.0;
    match slot {
        Slot::Passphrase { cost, wrapped } => SlotText::Passphrase {
            id,
            argon2id: *cost,
            salt: hex::encode(&wrapped.salt),
            wrapped: wrapped.to_hex(),
        },
        Slot::KeyFile { wrapped } => SlotText::KeyFile {
            id,
            salt: hex::encode(&wrapped.salt),
            wrapped: wrapped.to_hex(),
        },
        Slot::Service {
            service,
            key,
            wrapped,
        } => SlotText::Service {
            id,
            service: service.clone(),
            key: key.clone(),
            wrapped: hex::encode(wrapped),
        },
    }
}

/// Builds the whole object: the first line, its MAC and the checksum.
pub(super) fn close(line: Vec<u8>, mac: impl FnOnce(&[u8]) -> blake3::Hash) -> Vec<u8> {
    let mac = mac(&line);
    let mut object = line;
    object.extend(format!("mac {mac}\n").into_bytes());
    let crc32 = crc32fast::hash(&object);
    object.extend(format!("crc32 {crc32:08x}\n").into_bytes());
    object
}

/// Verifies the checksum of an object; returns its first line with the line break, and the MAC.
pub(super) fn open(object: &[u8]) -> Result<(&str, blake3::Hash), RingError> {
    if object.len() > MAX_KEY_RING_LEN {
        return Err(damaged("it is far too long"));
    }
    let text = std::str::from_utf8(object).map_err(|_| damaged("it is not text"))?;
    let mut lines = text.split_inclusive('\n');
    let (Some(line), Some(mac), Some(crc32), None) =
        (lines.next(), lines.next(), lines.next(), lines.next())
    else {
        return Err(damaged("it does not have three lines"));
    };
    let expected = crc32fast::hash(&object[..line.len() + mac.len()]);
    // Compared as text, so that a checksum cannot be written in two ways.
    if crc32 != format!("crc32 {expected:08x}\n") {
        return Err(damaged("its checksum does not match"));
    }
    let mac = mac
        .strip_prefix("mac ")
        .and_then(|mac| mac.strip_suffix('\n'));
    let mac = mac
        .and_then(hex::decode_array)
        .map(blake3::Hash::from_bytes);
    let mac = mac.ok_or_else(|| damaged("its second line is not a MAC"))?;
    Ok((line, mac))
}

/// Decodes the first line.
pub(super) fn decode(line: &str) -> Result<Content, RingError> {
    let not_read =
        |error: serde_json::Error| damaged(&error.to_string().escape_debug().to_string());
    // The format comes first: the other fields of a newer one need not make sense here.
    let any: AnyFormat = serde_json::from_str(line).map_err(not_read)?;
    if any.forebay != "keys" {
        return Err(damaged("it is not a key ring"));
    }
    if any.format > KEY_RING_VERSION {
        return Err(RingError::Newer { found: any.format });
    }
    let text: Text = serde_json::from_str(line).map_err(not_read)?;
    let volume = text.volume.parse();
    let volume = volume.map_err(|()| damaged("its volume id is not 32 hexadecimal digits"))?;
    if !(1..=MAX_SLOTS).contains(&text.slots.len()) {
        return Err(damaged("it has no slots, or too many"));
    }
    if !(1..=MAX_DATA_KEYS).contains(&text.data_keys.len()) {
        return Err(damaged("it has no data keys, or too many"));
    }
    let slots = text.slots.into_iter().map(|slot| {
        slot_of(slot).ok_or_else(|| damaged("a slot has fields that none is written with"))
    });
    let data_keys = text.data_keys.into_iter().map(|key| {
        let sealed = WrappedKey::from_hex(&key.salt, &key.sealed);
        let sealed = sealed.ok_or_else(|| damaged("a data key is not hexadecimal digits"))?;
        let created = key.created;
        Ok((DataKeyId(key.id), SealedDataKey { created, sealed }))
    });
    Ok(Content {
        volume,
        generation: text.generation,
        slots: ascending(slots)?,
        data_keys: ascending(data_keys)?,
    })
}

fn slot_of(text: SlotText) -> Option<(SlotId, Slot)> {
    Some(match text {
        SlotText::Passphrase {
            id,
            argon2id: cost,
            salt,
            wrapped,
        } => {
            cost.check().ok()?;
            let wrapped = WrappedKey::from_hex(&salt, &wrapped)?;
            (SlotId(id), Slot::Passphrase { cost, wrapped })
        }
        SlotText::KeyFile { id, salt, wrapped } => {
            let wrapped = WrappedKey::from_hex(&salt, &wrapped)?;
            (SlotId(id), Slot::KeyFile { wrapped })
        }
        SlotText::Service {
            id,
            service,
            key,
            wrapped,
        } => {
            let wrapped = hex::decode(&wrapped)?;
            if wrapped.len() > MAX_WRAPPED_LEN
                || service.len().max(key.len()) > MAX_SERVICE_NAME_LEN
            {
                return None;
            }
            let slot = Slot::Service {
                service,
                key,
                wrapped,
            };
            (SlotId(id), slot)
        }
    })
}

/// A map of entries whose numbers must ascend.
fn ascending<K: Ord + Copy, V>(
    entries: impl Iterator<Item = Result<(K, V), RingError>>,
) -> Result<BTreeMap<K, V>, RingError> {
    let mut map = BTreeMap::new();
    for entry in entries {
        let (id, value) = entry?;
        if map.last_key_value().is_some_and(|(last, _)| *last >= id) {
            return Err(damaged("its numbers do not ascend"));
        }
        map.insert(id, value);
    }
    Ok(map)
}

fn damaged(why: &str) -> RingError {
    RingError::Damaged(why.into())
}
