//! The place of a restored object.

use forebay_types::{Inode, Lsn};
use forebay_vfs::{Attributes, Error, FileKind};

use super::{Context, ROOT, RestoreError};
use crate::display_path::DisplayPath;
use crate::files::names::NAME_MAX;
use crate::files::whereabouts::{PathError, names};

/// How many numbered names are tried, for a staged object and for one that is moved aside.
const NUMBERS: usize = 10_000;
/// How many names of a directory are read at a time.
const NAMES: usize = 1024;

/// The path that a restored object gets.
pub(super) struct Target {
    /// The path of its directory.
    above: Vec<u8>,
    pub(super) directory: Inode,
    name: Vec<u8>,
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
        };
        match context.entry(target.directory, &target.name).await? {
            Some(_) if !replace => Err(RestoreError::Exists(DisplayPath(target.path()))),
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
            if context.entry(self.directory, &name).await?.is_none() {
                return Ok(name);
            }
        }
        Err(Error::Exists.into())
    }

    /// Gives the staged object its name. An object that has that name gets another one first, which is returned with
    /// its path; a name of a file leads to the one or the other at any time. Returns the position that must be stable.
    pub(super) async fn place(
        &self,
        context: &Context,
        staged: &[u8],
    ) -> Result<(Lsn, Option<Vec<u8>>), RestoreError> {
        let files = &context.files;
        let mut aside = None;
        if let Some(existing) = context.entry(self.directory, &self.name).await? {
            let name = self.free(context, &self.name, b".before-restore").await?;
            let staged = context.entry(self.directory, staged).await?;
            let is_directory = |entry: &Attributes| entry.kind == FileKind::Directory;
            let any_directory =
                is_directory(&existing) || staged.as_ref().is_some_and(is_directory);
            let (own, other) = ((self.directory, &*self.name), (self.directory, &*name));
            let _ = match any_directory {
                true => files.rename(ROOT, own, other).await?.end,
                false => {
                    let linked = files.link(ROOT, existing.inode, self.directory, &name);
                    linked.await?.end
                }
            };
            aside = Some(self.beside(&name));
        }
        let (from, to) = ((self.directory, staged), (self.directory, &*self.name));
        let renamed = files.rename(ROOT, from, to).await?;
        Ok((renamed.end, aside))
    }
}

impl Context {
    /// The object of this name, if there is one.
    async fn entry(
        &self,
        directory: Inode,
        name: &[u8],
    ) -> Result<Option<Attributes>, RestoreError> {
        match self.files.lookup(ROOT, directory, name).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a staged object and everything below it, as far as that is possible.
    pub(super) async fn discard(&self, directory: Inode, name: &[u8]) {
        if let Err(error) = self.remove(directory, name).await {
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
