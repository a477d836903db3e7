//! The place of a restored object.

use forebay_types::{Inode, Lsn};
use forebay_vfs::{Attributes, Error, FileKind};

use super::{Context, ROOT, RestoreError};
use crate::display_path::DisplayPath;
use crate::files::names::NAME_MAX;
use crate::files::names::rename::Onto;
use crate::files::whereabouts::{PathError, names};

/// How many numbered names are tried, for a staged object and for one that is moved aside.
const NUMBERS: usize = 10_000;
/// How often the name is looked at again that clients change meanwhile.
const ATTEMPTS: usize = 100;
/// How many names of a directory are read at a time.
const NAMES: usize = 1024;

/// The path that a restored object gets.
pub(super) struct Target {
    /// The path of its directory.
    above: Vec<u8>,
    pub(super) directory: Inode,
    name: Vec<u8>,
    replace: bool,
}

impl Target {
    /// The place at `path`, whose directory exists. It is free unless `replace`.
    pub(super) async fn find(
        context: &Context,
        path: &[u8],
        replace: bool,
    ) -> Result<Target, RestoreError> {
        let all = names(path)?;
        let (name, above) = all.split_last().ok_or(RestoreError::Root)?;
        let above: Vec<u8> = above
            .iter()
            .flat_map(|name| [b"/", *name].concat())
            .collect();
        let found = context.files.find(match above.as_slice() {
            [] => b"/",
            above => above,
        });
        let found = found.await?;
        if found.kind != forebay_meta::record::Kind::Directory {
            return Err(PathError::NotADirectory(DisplayPath(above)).into());
        }
        let target = Target {
            above,
            directory: found.inode,
            name: name.to_vec(),
            replace,
        };
        match context.entry(target.directory, &target.name).await? {
            Some(_) if !replace => Err(target.exists()),
            _ => Ok(target),
        }
    }

    /// The path.
    pub(super) fn path(&self) -> Vec<u8> {
        self.beside(&self.name)
    }

    fn beside(&self, name: &[u8]) -> Vec<u8> {
        [&self.above, b"/".as_slice(), name].concat()
    }

    /// A free name in the target's directory for the object until it is whole.
    pub(super) async fn staged_name(&self, context: &Context) -> Result<Vec<u8>, RestoreError> {
        self.free(context, b"", b".forebay-restore").await
    }

    /// The first free name of `stem`, `ending`, and a number unless it is 1. The stem is cut so that all fits.
    async fn free(
        &self,
        context: &Context,
        stem: &[u8],
        ending: &[u8],
    ) -> Result<Vec<u8>, RestoreError> {
        for number in 1..NUMBERS {
            let number = match number {
                1 => String::new(),
                number => format!("-{number}"),
            };
            let room = NAME_MAX - ending.len() - number.len();
            let stem = stem.get(..room).unwrap_or(stem);
            let name = [stem, ending, number.as_bytes()].concat();
            // What is restored may have the name of what an earlier restore has left.
            if name != self.name && context.entry(self.directory, &name).await?.is_none() {
                return Ok(name);
            }
        }
        Err(Error::Exists.into())
    }

    /// Gives the staged object its name. An object that has that name gets another one first, if that is allowed; it is
    /// returned as its path. A name of a file leads to the one or the other at any time. What clients do meanwhile is
    /// never replaced. Returns the position that must be stable.
    pub(super) async fn place(
        &self,
        context: &Context,
        staged: &[u8],
    ) -> Result<(Lsn, Option<Vec<u8>>), RestoreError> {
        let is_directory = |entry: &Attributes| entry.kind == FileKind::Directory;
        let own = context.entry(self.directory, staged).await?;
        let own = is_directory(&own.ok_or(Error::NotFound)?);
        for _ in 0..ATTEMPTS {
            let placed = match context.entry(self.directory, &self.name).await? {
                None => {
                    let end = self.rename(context, staged, &self.name, None).await?;
                    end.map(|end| (end, None))
                }
                Some(_) if !self.replace => return Err(self.exists()),
                Some(other) if own || is_directory(&other) => {
                    self.exchange(context, staged).await?
                }
                Some(other) => self.replace_file(context, staged, other.inode).await?,
            };
            if let Some(placed) = placed {
                return Ok(placed);
            }
        }
        Err(self.exists())
    }

    fn exists(&self) -> RestoreError {
        RestoreError::Exists(DisplayPath(self.path()))
    }

    /// Renames within the directory, if the new name leads to `onto`; `None` if it does not.
    async fn rename(
        &self,
        context: &Context,
        from: &[u8],
        to: &[u8],
        onto: Option<Inode>,
    ) -> Result<Option<Lsn>, RestoreError> {
        let (from, to) = ((self.directory, from), (self.directory, to));
        let renamed = context.patiently(|| async {
            let renamed = context.files.rename_onto(ROOT, from, to, Onto::Only(onto));
            match renamed.await {
                Ok(renamed) => Ok(Some(renamed.end)),
                Err(Error::Exists) => Ok(None),
                Err(error) => Err(error.into()),
            }
        });
        renamed.await
    }

    /// Renames the object that has the name, and then the staged one: a name of a directory leads nowhere in between.
    async fn exchange(
        &self,
        context: &Context,
        staged: &[u8],
    ) -> Result<Option<(Lsn, Option<Vec<u8>>)>, RestoreError> {
        let aside = self.aside(context).await?;
        if self
            .rename(context, &self.name, &aside, None)
            .await?
            .is_none()
        {
            return Ok(None);
        }
        match self.rename(context, staged, &self.name, None).await {
            Ok(Some(end)) => Ok(Some((end, Some(self.beside(&aside))))),
            failed => {
                let back = self.rename(context, &aside, &self.name, None).await;
                if !matches!(back, Ok(Some(_))) {
                    return Err(RestoreError::LeftAside(DisplayPath(self.beside(&aside))));
                }
                failed.map(|_| None)
            }
        }
    }

    /// Gives a file a second name, and then its name to the staged one.
    async fn replace_file(
        &self,
        context: &Context,
        staged: &[u8],
        file: Inode,
    ) -> Result<Option<(Lsn, Option<Vec<u8>>)>, RestoreError> {
        let aside = self.aside(context).await?;
        let linked = context.files.link(ROOT, file, self.directory, &aside).await;
        match linked {
            // Stable with the rename that follows.
            Ok(linked) => _ = linked.end,
            Err(Error::Exists | Error::Stale) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let placed = self.rename(context, staged, &self.name, Some(file)).await;
        match placed {
            Ok(Some(end)) => Ok(Some((end, Some(self.beside(&aside))))),
            failed => {
                context.discard(self.directory, &aside).await;
                failed.map(|_| None)
            }
        }
    }

    async fn aside(&self, context: &Context) -> Result<Vec<u8>, RestoreError> {
        self.free(context, &self.name, b".before-restore").await
    }
}

impl Context {
    /// The object of this name, if there is one.
    async fn entry(
        &self,
        directory: Inode,
        name: &[u8],
    ) -> Result<Option<Attributes>, RestoreError> {
        let look = || async {
            match self.files.lookup(ROOT, directory, name).await {
                Ok(found) => Ok(Some(found)),
                Err(Error::NotFound) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        self.patiently(look).await
    }

    /// Removes a staged object and everything below it, as far as that is possible.
    pub(super) async fn discard(&self, directory: Inode, name: &[u8]) {
        let removed = self.patiently(|| async { Ok(self.remove(directory, name).await?) });
        if let Err(error) = removed.await {
            tracing::warn!(
                "{} is left of a restore that failed, and could not be removed: {error}; remove it",
                DisplayPath(name.to_vec())
            );
        }
    }

    async fn remove(&self, directory: Inode, name: &[u8]) -> Result<(), Error> {
        let files = &self.files;
        let top = match files.lookup(ROOT, directory, name).await {
            Err(Error::NotFound) => return Ok(()),
            top => top?,
        };
        let mut path = vec![(directory, name.to_vec(), top)];
        while let Some((parent, name, object)) = path.pop() {
            let is_directory = object.kind == FileKind::Directory;
            let mut below = Vec::new();
            if is_directory {
                let listed = files.readdir(ROOT, object.inode, 0, NAMES, true).await?;
                for entry in listed.entries {
                    let own = [b".".as_slice(), b".."].contains(&entry.name.as_ref());
                    if let Some(attributes) = entry.attributes.filter(|_| !own) {
                        below.push((object.inode, entry.name.to_vec(), attributes));
                    }
                }
            }
            if below.is_empty() {
                tokio::task::yield_now().await;
                let removed = files.remove(ROOT, parent, &name, is_directory).await?;
                // Nothing depends on it.
                let _ = removed.end;
            } else {
                path.push((parent, name, object));
                path.append(&mut below);
            }
        }
        Ok(())
    }
}
