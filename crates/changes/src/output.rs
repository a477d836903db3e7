//! Yields changes with their paths, which are looked up for many changes at a time.

use std::collections::BTreeSet;
use std::io;

use forebay_meta::StoreError;
use forebay_types::Inode;

use crate::change::{Change, What};
use crate::compare::CompareError;
use crate::pair::Pair;
use crate::paths::{Paths, Place};

/// Changes whose paths are looked up together.
const BATCH: usize = 16_384;

/// A difference, before its path is known.
#[derive(Debug)]
pub(crate) struct Pathless {
    pub(crate) inode: Inode,
    pub(crate) is_directory: bool,
    pub(crate) what: Fact,
    /// `None` for the root.
    pub(crate) place: Option<Place>,
}

/// The kind of difference.
#[derive(Debug)]
pub(crate) enum Fact {
    Made,
    Removed,
    Content,
    Attributes,
    Renamed(Place),
    LinkAdded,
    LinkRemoved,
}

impl Fact {
    /// Whether the path is that of the old moment.
    fn is_of_old(&self) -> bool {
        matches!(self, Fact::Removed | Fact::LinkRemoved)
    }
}

/// The way of changes to the caller.
pub(crate) struct Output<E> {
    old: Paths,
    new: Paths,
    waiting: Vec<Pathless>,
    each: E,
}

impl<E: FnMut(Change) -> io::Result<()>> Output<E> {
    pub(crate) fn new(pair: &Pair, each: E) -> Output<E> {
        Output {
            old: Paths::new(pair.old.clone()),
            new: Paths::new(pair.new.clone()),
            waiting: Vec::new(),
            each,
        }
    }

    /// The place of a directory in the new moment; `None` for the root.
    pub(crate) async fn directory(&mut self, inode: Inode) -> Result<Option<Place>, StoreError> {
        self.new.place(inode).await
    }

    pub(crate) async fn add(&mut self, change: Pathless) -> Result<(), CompareError> {
        self.waiting.push(change);
        if self.waiting.len() >= BATCH {
            self.flush().await?;
        }
        Ok(())
    }

    pub(crate) async fn flush(&mut self) -> Result<(), CompareError> {
        let waiting = std::mem::take(&mut self.waiting);
        let (mut old, mut new) = (BTreeSet::new(), BTreeSet::new());
        for change in &waiting {
            let own = match change.what.is_of_old() {
                true => &mut old,
                false => &mut new,
            };
            own.extend(change.place.iter().map(|place| place.0));
            if let Fact::Renamed(from) = &change.what {
                old.insert(from.0);
            }
        }
        tokio::try_join!(self.old.learn(old), self.new.learn(new))?;
        for change in waiting {
            let paths = match change.what.is_of_old() {
                true => &self.old,
                false => &self.new,
            };
            let path = match &change.place {
                Some(place) => paths.path(place)?,
                None => b"/".to_vec(),
            };
            let what = match change.what {
                Fact::Made => What::Made,
                Fact::Removed => What::Removed,
                Fact::Content => What::Content,
                Fact::Attributes => What::Attributes,
                Fact::Renamed(from) => What::Renamed {
                    from: self.old.path(&from)?,
                },
                Fact::LinkAdded => What::LinkAdded,
                Fact::LinkRemoved => What::LinkRemoved,
            };
            (self.each)(Change {
                path,
                what,
                inode: change.inode,
                is_directory: change.is_directory,
            })?;
        }
        Ok(())
    }
}
