//! Decides whether `serve` may make a volume where none exists.
//!
//! A mistyped prefix, an unmounted disk and an emptied bucket all look like a place for a new volume, and clients
//! would find it empty. So a new one [needs a flag](NewVolume::Asked), except in two cases that allow no other
//! interpretation: the default folder, and a bucket in which no other volume is found.
//!
//! Nearby volumes are named in the message: one request for each level of the prefix lists the names beside it, and
//! the nearest of them are checked for a descriptor.

use std::path::Path as Folder;
use std::time::Duration;

use forebay_meta::volume::DESCRIPTOR_NAME;
use forebay_object::Store;
use futures_util::future::join_all;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::time::timeout;

use crate::config::{Config, Source};

/// Number of names beside each part of a prefix that are checked for a descriptor, the nearest first.
const ASKED: usize = 16;

/// Number of levels of a prefix that are searched, from the last one up.
const LEVELS: usize = 3;

/// Time limit for the search for other volumes; its result is only advice.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Number of names in a folder that are compared.
const NAMES: usize = 10_000;

/// Whether the operator has asked for a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewVolume {
    /// It was requested with `serve --create`.
    Asked,
    /// It was not requested.
    NotAsked,
}

impl NewVolume {
    /// Whether a volume may be made without a search for nearby volumes.
    pub(crate) fn is_meant(self, config: &Config) -> bool {
        // No other volume in memory could have been meant.
        let is_memory = config.store.as_str().starts_with("memory:");
        self == NewVolume::Asked || config.source("store") == Source::Default || is_memory
    }

    /// Refuses to make a volume, in `store` or in a folder that does not exist, unless no other volume can have been
    /// meant.
    ///
    /// # Errors
    /// That there is no volume, the volumes nearby, and the remedy, as a message to the user.
    pub(crate) async fn allow(self, config: &Config, store: Option<&Store>) -> Result<(), String> {
        if self.is_meant(config) {
            return Ok(());
        }
        let url = config.store.as_str().trim_end_matches('/');
        let near = match (config.store.folder(), store) {
            (Some(folder), _) => Ok(near_folder(folder)),
            (None, Some(store)) => match timeout(TIMEOUT, near_prefix(store)).await {
                Ok(near) => near,
                Err(_) => Err("no answer in time".to_owned()),
            },
            (None, None) => Ok(Vec::new()),
        };
        let make = "to make a new one here, run `forebay format` with the same settings, or start with `forebay serve --create`";
        let near = match near {
            Ok(near) if near.is_empty() && config.store.folder().is_none() => {
                tracing::warn!(
                    "there is no volume at {url}, nor any other near it: a new one is made"
                );
                return Ok(());
            }
            Ok(near) => near,
            Err(why) => {
                return Err(format!(
                    "there is no volume at {url}, and the search for volumes near it failed ({why}): correct --store if it is wrong; {make}"
                ));
            }
        };
        let meant = match &near[..] {
            [] => "if a disk belongs there, mount it first; correct --store if you mean another folder".to_owned(),
            [one] => format!("there is one at {one}: correct --store if you mean that one"),
            [nearest, others @ ..] => format!(
                "there is one at {nearest}, and {} more near it: correct --store if you mean one of them",
                others.len()
            ),
        };
        Err(format!(
            "there is no volume at {url}. {}; {make}",
            capital(&meant)
        ))
    }
}

/// Volumes near a prefix of a bucket, the nearest name first.
async fn near_prefix(store: &Store) -> Result<Vec<String>, String> {
    let parts: Vec<String> = (store.root.parts())
        .map(|part| part.as_ref().to_owned())
        .collect();
    let bucket = store.url.strip_suffix(store.root.as_ref());
    let bucket = bucket.unwrap_or(&store.url).trim_end_matches('/');
    for level in (0..parts.len()).rev().take(LEVELS) {
        let (above, own, below) = (&parts[..level], &parts[level], &parts[level + 1..]);
        let parent: Path = above.iter().map(String::as_str).collect();
        let listed = store.store.list_with_delimiter(Some(&parent)).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let names = listed.common_prefixes.iter().filter_map(Path::filename);
        let mut places = candidates(names.map(str::to_owned), above, own, below);
        places.insert(0, above.to_vec());
        let found = join_all(places.iter().map(|place| is_volume(store, place))).await;
        let found = places.iter().zip(found).filter(|(_, found)| *found);
        let found: Vec<_> = found
            .map(|(place, _)| format!("{bucket}/{}", place.join("/")))
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

async fn is_volume(store: &Store, place: &[String]) -> bool {
    let parts = place.iter().map(String::as_str);
    let descriptor: Path = parts.chain([DESCRIPTOR_NAME]).collect();
    store.store.head(&descriptor).await.is_ok()
}

/// Volumes beside a folder, and the one that contains it; the nearest name first.
fn near_folder(folder: &Folder) -> Vec<String> {
    let (Some(parent), Some(own)) = (folder.parent(), folder.file_name()) else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let beside = candidates(names.take(NAMES), &[], &own.to_string_lossy(), &[]);
    let beside = beside.into_iter().flatten().map(|name| parent.join(name));
    let places = [parent.to_owned()].into_iter().chain(beside);
    let found = places.filter(|place| place.join(DESCRIPTOR_NAME).is_file());
    found
        .map(|place| format!("file://{}", place.display()))
        .collect()
}

/// Places where a volume may be if `own` was mistyped: each of `names`, with `below` behind it and without. The nearest
/// names come first.
fn candidates(
    names: impl Iterator<Item = String>,
    above: &[String],
    own: &str,
    below: &[String],
) -> Vec<Vec<String>> {
    let mut names: Vec<_> = names
        .filter(|name| name != own)
        .map(|name| (strsim::jaro_winkler(&name, own), name))
        .collect();
    names.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let places = names.into_iter().take(ASKED).flat_map(|(_, name)| {
        let beside = [above, &[name]].concat();
        let there = (!below.is_empty()).then(|| [&beside, below].concat());
        there.into_iter().chain([beside])
    });
    places.collect()
}

/// With a capital letter, to begin a sentence.
fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(text.len().min(1));
    format!("{}{rest}", first.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_object::RetrySettings;
    use object_store::memory::InMemory;

    use super::*;
    use crate::config::Inputs;

    fn config(store: &str) -> Config {
        let inputs = Inputs {
            flags: vec![("store", store.to_owned())],
            file: None,
            variables: Vec::new(),
            system_file: "/nonexistent".into(),
            is_root: true,
        };
        Config::load(&inputs).unwrap()
    }

    /// A bucket with these objects, opened at this prefix.
    async fn bucket(prefix: &str, objects: &[&str]) -> Store {
        let inner = InMemory::new();
        for object in objects {
            inner
                .put(&Path::from(*object), "text".into())
                .await
                .unwrap();
        }
        let url = format!("s3://b/{prefix}");
        let url = url.trim_end_matches('/').to_owned();
        Store::new(
            Arc::new(inner),
            Path::from(prefix),
            url,
            RetrySettings::default(),
        )
    }

    async fn allow(prefix: &str, objects: &[&str]) -> Result<(), String> {
        let store = bucket(prefix, objects).await;
        let config = config(&store.url);
        NewVolume::NotAsked.allow(&config, Some(&store)).await
    }

    #[tokio::test]
    async fn a_mistyped_prefix_names_the_volume_that_is_near() {
        let objects = [
            "prod/forebay.volume",
            "prod/packs/1",
            "test/forebay.volume",
            "logs/x",
        ];
        let refusal = allow("prd", &objects).await.unwrap_err();
        for part in [
            "no volume at s3://b/prd",
            "There is one at s3://b/prod, and 1 more",
            "forebay format",
            "--create",
        ] {
            assert!(refusal.contains(part), "{refusal}");
        }
    }

    #[tokio::test]
    async fn so_does_one_that_is_wrong_further_up_or_above_or_below_a_volume() {
        for (prefix, objects, near) in [
            (
                "taem/prod",
                &["team/prod/forebay.volume"][..],
                "s3://b/team/prod",
            ),
            ("a/b/c", &["a/b/forebay.volume"], "s3://b/a/b"),
            ("x", &["forebay.volume"], "s3://b"),
        ] {
            let refusal = allow(prefix, objects).await.unwrap_err();
            assert!(
                refusal.contains(&format!("There is one at {near}:")),
                "{refusal}"
            );
        }
    }

    #[tokio::test]
    async fn without_any_other_volume_in_the_bucket_nothing_else_can_be_meant() {
        allow("prd", &[]).await.unwrap();
        allow("", &[]).await.unwrap();
        allow("a/b", &["a/c/holiday.jpg", "prod/packs/1"])
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_volume_that_is_asked_for_is_made() {
        let store = bucket("prd", &["prod/forebay.volume"]).await;
        let config = config(&store.url);
        NewVolume::Asked.allow(&config, Some(&store)).await.unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_is_not_the_default_has_to_be_asked_for() {
        let dir = tempfile::TempDir::new().unwrap();
        let parent = dir.path();
        let missing = config(&format!("file://{}/prd", parent.display()));
        let refusal = NewVolume::NotAsked.allow(&missing, None).await.unwrap_err();
        assert!(refusal.contains("If a disk belongs there"), "{refusal}");
        let prod = parent.join("prod");
        std::fs::create_dir(&prod).unwrap();
        std::fs::write(prod.join(DESCRIPTOR_NAME), "text").unwrap();
        let refusal = NewVolume::NotAsked.allow(&missing, None).await.unwrap_err();
        let near = format!("There is one at file://{}:", prod.display());
        assert!(refusal.contains(&near), "{refusal}");
        NewVolume::Asked.allow(&missing, None).await.unwrap();
    }
}
