//! `forebay keys`: the slots of a sealed volume's key ring, and its data keys.
//!
//! [`forebay_meta::volume::keys`] changes the key ring; this gets the secrets for that, and reports the outcome.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_fs::{Expected, Unlock};
use forebay_kms::{KmsOptions, region_of};
use forebay_meta::VolumeDescriptor;
use forebay_meta::volume::VolumeError;
use forebay_meta::volume::keys::{RingChange, RingChanged, StoredRing, change};
use forebay_object::{Needs, Store};
use forebay_seal::{LockedRing, SlotId, SlotInfo, SlotKind};

use crate::cli::KeysRequest;
use crate::config::{Config, Endpoint, Region, Sealing};
use crate::credentials::{self, Typed};
use crate::store;

/// A request with all secrets that it needs.
#[derive(Debug)]
pub enum Prepared {
    /// Print the key ring.
    List {
        /// As JSON.
        json: bool,
    },
    /// Change it.
    Change {
        /// The credential that opens it.
        unlock: Arc<Unlock>,
        /// The requested change.
        change: RingChange,
    },
}

/// Gets the secrets that a request needs. Called first, because the user may have to type them.
///
/// # Errors
/// Why it cannot be done, as a message to the user.
pub fn prepare(config: &Config, request: KeysRequest) -> Result<Prepared, String> {
    if let KeysRequest::List { json } = request {
        return Ok(Prepared::List { json });
    }
    if config.encryption == Sealing::Off {
        return Err(
            "only a sealed volume has keys: set encryption = \"aes-256-gcm\", and passphrase_file, key_file or kms_key"
                .to_owned(),
        );
    }
    let Expected::Sealed(unlock) = credentials::of(config, Typed::Once)?.expected else {
        return Err("only a sealed volume has keys".to_owned());
    };
    let change = match request {
        KeysRequest::AddPassphrase { file } => {
            RingChange::Add(credentials::new_passphrase(file.as_deref())?)
        }
        KeysRequest::AddKeyFile { file } => RingChange::Add(credentials::key_file("file", &file)?),
        KeysRequest::AddKms {
            key,
            region,
            endpoint,
        } => {
            let options = where_it_is(config, key, region, endpoint);
            RingChange::Add(credentials::kms(config, options)?)
        }
        KeysRequest::ChangePassphrase { file } => {
            RingChange::Exchange(credentials::new_passphrase(file.as_deref())?)
        }
        KeysRequest::Remove { slot } => RingChange::Remove(SlotId(slot)),
        KeysRequest::Rotate | KeysRequest::List { .. } => RingChange::Rotate(now()),
    };
    Ok(Prepared::Change { unlock, change })
}

/// A key has the configured region, unless the command line or its ARN name another one: then the configured endpoint
/// is not used, because it is that of another region.
fn where_it_is(
    config: &Config,
    key: String,
    region: Option<Region>,
    endpoint: Option<Endpoint>,
) -> KmsOptions {
    let of = |key: &str| region_of(key).map(str::to_owned);
    let configured_key = config.kms_key.0.as_deref();
    let configured = (config.kms_region.0.clone()).or(configured_key.and_then(of));
    let region = match region {
        Some(region) => region.0,
        None => of(&key).or(configured.clone()),
    };
    let endpoint = match endpoint {
        Some(endpoint) => endpoint.0,
        None if region == configured => config.kms_endpoint.0.clone(),
        None => None,
    };
    KmsOptions {
        key,
        region,
        endpoint,
        ..KmsOptions::default()
    }
}

/// Executes the request, and returns the text to print.
///
/// # Errors
/// Why it cannot be done, as a message to the user.
pub async fn run(config: &Config, request: Prepared) -> Result<String, String> {
    let store = store::open(config, false).await?;
    store::attempt(&store, Needs::Writes, run_on(config, &store, request)).await
}

async fn run_on(config: &Config, store: &Store, request: Prepared) -> Result<String, String> {
    let done = match request {
        Prepared::List { json } => list(store, json).await,
        Prepared::Change {
            unlock,
            change: what,
        } => {
            let descriptor = sealed(store).await.map_err(|error| message(error, store))?;
            let volume = descriptor.volume;
            let seen = forebay_fs::key_ring_seen(&config.data_dir, volume)
                .map_err(|error| error.to_string())?;
            let changed = change(&store.store, &store.root, volume, &unlock, seen, &what).await;
            changed.map(said)
        }
    };
    done.map_err(|error| message(error, store))
}

fn message(error: VolumeError, store: &Store) -> String {
    error.at(&store.url).to_string()
}

/// The descriptor of the volume, which must be sealed.
async fn sealed(store: &Store) -> Result<VolumeDescriptor, VolumeError> {
    let descriptor = VolumeDescriptor::load(&store.store, &store.root).await?;
    match descriptor.is_sealed() {
        true => Ok(descriptor),
        false => Err(VolumeError::NotSealed {
            root: store.root.to_string(),
        }),
    }
}

async fn list(store: &Store, json: bool) -> Result<String, VolumeError> {
    let descriptor = VolumeDescriptor::load(&store.store, &store.root).await?;
    if !descriptor.is_sealed() {
        return Ok(match json {
            true => format!("{:#}\n", without_ring(&descriptor)),
            false => format!(
                "the volume at {} is not sealed: it has no keys, and anyone with read access to the bucket can read its files\n",
                store.url
            ),
        });
    }
    let stored = StoredRing::load(&store.store, &store.root).await?;
    Ok(match json {
        true => format!("{:#}\n", as_json(&stored.ring)),
        false => as_text(&stored.ring),
    })
}

fn said(changed: RingChanged) -> String {
    match changed {
        RingChanged::Added(slot) => format!("slot {slot} now opens the volume too\n"),
        RingChanged::Exchanged(old, new) => format!(
            "slot {new} opens the volume now, and slot {old} is removed\nanyone with an older copy of the \
             object forebay.keys and the removed passphrase or key can still open the volume: delete \
             earlier versions of that object\n"
        ),
        RingChanged::Removed(slot) => format!(
            "slot {slot} is removed\nanyone with an older copy of the object forebay.keys and the removed \
             passphrase or key can still open the volume: delete earlier versions of that object\n"
        ),
        RingChanged::Rotated(key) => format!(
            "gateways seal new objects with data key {key} from their next start on; existing objects stay \
             readable\n"
        ),
    }
}

fn opened_with(slot: &SlotInfo) -> String {
    match &slot.kind {
        SlotKind::Passphrase(cost) => format!(
            "passphrase (Argon2id: {} KiB, passes: {}, lanes: {})",
            cost.memory_kib, cost.passes, cost.lanes
        ),
        SlotKind::KeyFile => "key file".to_owned(),
        SlotKind::Service { service, key } => format!("{service} {key}"),
    }
}

fn as_text(ring: &LockedRing) -> String {
    let mut text = format!(
        "key ring of volume {}, generation {}\n\nslot  opened with\n",
        ring.volume(),
        ring.generation()
    );
    // Writing to a string never fails.
    for slot in ring.slots() {
        // Names come from the bucket, and must not send control characters to the terminal.
        let opened_with = opened_with(&slot).replace(char::is_control, "?");
        let _ = writeln!(text, "{:<5} {opened_with}", slot.id.0);
    }
    let _ = writeln!(text, "\ndata key  made");
    for (key, created) in ring.data_keys() {
        let _ = writeln!(text, "{:<9} {}", key.0, date(created));
    }
    text
}

/// A volume that is not sealed, in the same format.
fn without_ring(descriptor: &VolumeDescriptor) -> serde_json::Value {
    serde_json::json!({
        "volume": descriptor.volume.to_string(),
        "sealed": false,
        "slots": [],
        "data_keys": [],
    })
}

fn as_json(ring: &LockedRing) -> serde_json::Value {
    let slots = ring.slots().map(|slot| {
        let kind = match &slot.kind {
            SlotKind::Passphrase(_) => "passphrase",
            SlotKind::KeyFile => "key-file",
            SlotKind::Service { .. } => "service",
        };
        let mut shown =
            serde_json::json!({ "id": slot.id.0, "kind": kind, "opened_with": opened_with(&slot) });
        if let SlotKind::Service { service, key } = &slot.kind {
            shown["service"] = service.as_str().into();
            shown["key"] = key.as_str().into();
        }
        shown
    });
    let data_keys = ring
        .data_keys()
        .map(|(key, created)| serde_json::json!({ "id": key.0, "made": date(created) }));
    serde_json::json!({
        "volume": ring.volume().to_string(),
        "sealed": true,
        "generation": ring.generation(),
        "slots": slots.collect::<Vec<_>>(),
        "data_keys": data_keys.collect::<Vec<_>>(),
    })
}

/// A date for people; the number itself if it is beyond the calendar, as in a forged key ring.
fn date(seconds: u64) -> String {
    /// The end of the year 9999.
    const LAST: u64 = 253_402_300_799;
    if seconds > LAST {
        return format!("{seconds} s after 1970");
    }
    let moment = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(moment).to_string()
}

/// Seconds since 1970; 0 if the clock is earlier.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
