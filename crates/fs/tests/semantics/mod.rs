//! The rules of POSIX and RFC 1813 for files, names and permissions; a module for each subject.

mod attributes;
mod data;
mod links;
mod listing;
mod names;
mod permission;
mod rename;

use crate::common::*;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, Error, FileSystem, NewNode, SetAttributes};

const TOP: Inode = Inode::ROOT;

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..Default::default()
    }
}

/// Makes a file with a caller's credentials and a mode.
fn create_as(
    life: &Life,
    caller: &Credentials,
    at: (Inode, &[u8]),
    bits: u32,
) -> Result<Inode, Error> {
    life.run(|volume| async move {
        let made = volume
            .create(caller, at.0, at.1, &CreateMode::Guarded(mode(bits)))
            .await?;
        Ok(made.attributes.inode)
    })
}

fn mkdir_as(
    life: &Life,
    caller: &Credentials,
    at: (Inode, &[u8]),
    bits: u32,
) -> Result<Inode, Error> {
    life.run(|volume| async move {
        let made = volume
            .make(caller, at.0, at.1, NewNode::Directory, &mode(bits))
            .await?;
        Ok(made.attributes.inode)
    })
}

/// A directory with all rights for every user.
fn open_directory(life: &Life, name: &[u8]) -> Inode {
    mkdir_as(life, &ROOT, (TOP, name), 0o777).unwrap()
}
