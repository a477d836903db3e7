//! The names that differ, and the names of objects that changed.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use forebay_meta::error::Corrupt;
use forebay_meta::record::{NameRecord, Record};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::Inode;
use tokio::sync::mpsc;

use crate::change::{Change, is_directory};
use crate::compare::CompareError;
use crate::objects::{Marks, Objects};
use crate::output::{Fact, Output, Pathless};
use crate::pair::{Difference, Pages, Pair};
use crate::paths::Place;
use crate::workers::Workers;

/// The names that objects of both moments have lost and got.
#[derive(Default)]
struct Moved(BTreeMap<Inode, Names>);

#[derive(Default)]
struct Names {
    is_directory: bool,
    lost: Vec<Place>,
    got: Vec<Place>,
}

/// What a page of names shows.
struct Found {
    /// Objects that changed, and whose names are the same in both moments.
    changed: Vec<(Inode, Place)>,
    differences: Vec<Difference>,
}

/// Sends what the names in a range show, until there are no more or nobody receives it.
async fn walk_names(
    pair: &Pair,
    range: &KeyRange,
    objects: &Objects,
    sender: &mpsc::Sender<Found>,
) -> Result<(), StoreError> {
    let mut walk = pair.walk(range);
    loop {
        let mut named = Vec::new();
        let found = walk.next_with(|key, value| {
            named.extend(changed_name(objects, key, value).transpose());
        });
        let Some(differences) = found.await? else {
            return Ok(());
        };
        let changed = named.into_iter().collect::<Result<_, Corrupt>>()?;
        let found = Found {
            changed,
            differences,
        };
        if sender.send(found).await.is_err() {
            return Ok(());
        }
    }
}

/// Yields everything about names.
pub(crate) async fn compare_names<E>(
    pair: &Pair,
    objects: &Arc<Objects>,
    output: &mut Output<E>,
) -> Result<(), CompareError>
where
    E: FnMut(Change) -> io::Result<()>,
{
    let mut moved = Moved::default();
    let (sender, mut receiver) = mpsc::channel(1);
    let mut workers = Workers::begin(pair.pieces(&KeyRange::all_names()), |piece| {
        let (pair, objects, sender) = (pair.clone(), objects.clone(), sender.clone());
        async move { walk_names(&pair, &piece, &objects, &sender).await }
    });
    loop {
        let found = tokio::select! {
            biased;
            Some(found) = receiver.recv() => found,
            ended = workers.next() => match ended? {
                Some(_) => continue,
                None => match receiver.try_recv() {
                    Ok(found) => found,
                    Err(_) => break,
                },
            },
        };
        for (inode, place) in found.changed {
            show_changed(objects, inode, Some(place), output).await?;
        }
        for difference in found.differences {
            let changes = sort(&difference, objects, &mut moved)?;
            for change in changes.into_iter().flatten() {
                output.add(change).await?;
            }
        }
    }
    for (inode, names) in moved.0 {
        for change in paired(inode, names) {
            if objects.get(inode).is_changed() && !matches!(change.what, Fact::LinkRemoved) {
                show_changed(objects, inode, change.place.clone(), output).await?;
            }
            output.add(change).await?;
        }
    }
    Ok(())
}

/// The changes of up to two objects: the one that has lost a name, and the one that has got it.
fn sort(
    difference: &Difference,
    objects: &Objects,
    moved: &mut Moved,
) -> Result<[Option<Pathless>; 2], CompareError> {
    let (old, new) = difference.records::<NameRecord>()?;
    let is_same = matches!((&old, &new), (Some(old), Some(new)) if old.inode == new.inode);
    let Key::Name(directory, name) = Key::decode(&difference.key)? else {
        return Ok([None, None]);
    };
    if is_same {
        return Ok([None, None]);
    }
    let place = (directory, name);
    let lost = old.and_then(|old| {
        let facts = (Marks::REMOVED, [Fact::Removed, Fact::LinkRemoved]);
        one_sided(old, place.clone(), objects, facts)
            .or_else(|| moved.add(old, |names| names.lost.push(place.clone())))
    });
    let got = new.and_then(|new| {
        let facts = (Marks::MADE, [Fact::Made, Fact::LinkAdded]);
        one_sided(new, place.clone(), objects, facts)
            .or_else(|| moved.add(new, |names| names.got.push(place.clone())))
    });
    Ok([lost, got])
}

/// The change if the object is in one moment only: the first fact for its first name, the second for all others.
fn one_sided(
    record: NameRecord,
    place: Place,
    objects: &Objects,
    (marks, [first, further]): (Marks, [Fact; 2]),
) -> Option<Pathless> {
    let known = objects.get(record.inode);
    if !known.has(marks) {
        return None;
    }
    let what = match known.has(Marks::SHOWN) {
        true => further,
        false => first,
    };
    objects.set(record.inode, Marks::SHOWN);
    Some(Pathless {
        inode: record.inode,
        is_directory: is_directory(record.kind),
        what,
        place: Some(place),
    })
}

impl Moved {
    fn add(&mut self, record: NameRecord, add: impl FnOnce(&mut Names)) -> Option<Pathless> {
        let names = self.0.entry(record.inode).or_default();
        names.is_directory = is_directory(record.kind);
        add(names);
        None
    }
}

/// Each lost name with one that the object has got; the rest are links.
fn paired(inode: Inode, names: Names) -> impl Iterator<Item = Pathless> {
    let Names {
        is_directory,
        mut lost,
        mut got,
    } = names;
    // The names came in any order.
    lost.sort();
    got.sort();
    let (mut lost, mut got) = (lost.into_iter(), got.into_iter());
    std::iter::from_fn(move || {
        let (what, place) = match (lost.next(), got.next()) {
            (Some(from), Some(to)) => (Fact::Renamed(from), to),
            (Some(from), None) => (Fact::LinkRemoved, from),
            (None, Some(to)) => (Fact::LinkAdded, to),
            (None, None) => return None,
        };
        Some(Pathless {
            inode,
            is_directory,
            what,
            place: Some(place),
        })
    })
}

/// Yields the content and the attributes of an object, once.
async fn show_changed<E>(
    objects: &Objects,
    inode: Inode,
    place: Option<Place>,
    output: &mut Output<E>,
) -> Result<(), CompareError>
where
    E: FnMut(Change) -> io::Result<()>,
{
    let marks = objects.get(inode);
    if marks.has(Marks::SHOWN) {
        return Ok(());
    }
    objects.set(inode, Marks::SHOWN);
    let facts = [
        (Marks::CONTENT, Fact::Content),
        (Marks::ATTRIBUTES, Fact::Attributes),
    ];
    for (_, what) in facts.into_iter().filter(|(mark, _)| marks.has(*mark)) {
        let change = Pathless {
            inode,
            is_directory: marks.has(Marks::DIRECTORY),
            what,
            place: place.clone(),
        };
        output.add(change).await?;
    }
    Ok(())
}

/// The object of a name, if it changed and was not yielded, and its place.
fn changed_name(
    objects: &Objects,
    key: &[u8],
    value: &[u8],
) -> Result<Option<(Inode, Place)>, Corrupt> {
    let record = NameRecord::decode(key, value)?;
    let marks = objects.get(record.inode);
    if !marks.is_changed() || marks.has(Marks::SHOWN) {
        return Ok(None);
    }
    Ok(match Key::decode(key)? {
        Key::Name(directory, name) => Some((record.inode, (directory, name))),
        _ => None,
    })
}

/// Yields the objects that changed, and whose names are the same in both moments, if the comparison of names has not come by them.
pub(crate) async fn show_rest<E>(
    pair: &Pair,
    objects: &Objects,
    output: &mut Output<E>,
) -> Result<(), CompareError>
where
    E: FnMut(Change) -> io::Result<()>,
{
    let rest = objects.iter();
    let rest = rest.filter(|(_, marks)| marks.is_changed() && !marks.has(Marks::SHOWN));
    let (directories, others): (Vec<_>, Vec<_>) =
        rest.partition(|(_, marks)| marks.has(Marks::DIRECTORY));
    let mut left = others.len();
    drop(others);
    for (inode, _) in directories {
        let place = output.directory(inode).await?;
        show_changed(objects, inode, place, output).await?;
    }
    if left == 0 {
        return Ok(());
    }
    let mut pages = Pages::ahead(&pair.new, &KeyRange::all_names());
    while left > 0 {
        let page = pages.next().await?;
        if page.is_empty() {
            break;
        }
        for (key, value) in page {
            if let Some((inode, place)) = changed_name(objects, &key, &value)? {
                show_changed(objects, inode, Some(place), output).await?;
                left -= 1;
            }
        }
    }
    Ok(())
}
