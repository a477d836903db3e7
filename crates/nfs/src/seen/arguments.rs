//! What a call is about, out of its arguments.

use crate::nfs3::{MAX_HANDLE_BYTES, MAX_NAME_BYTES};
use crate::xdr::{Malformed, Reader};

/// The parts of a call's arguments that a trace shows. Those behind bytes that cannot be decoded are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments<'a> {
    pub(super) handle: Option<&'a [u8]>,
    pub(super) name: Option<&'a [u8]>,
    /// Handle of a directory and a name that is made in it.
    pub(super) to: Option<(&'a [u8], &'a [u8])>,
    pub(super) offset: Option<u64>,
    pub(super) size: Option<u64>,
}

impl<'a> Arguments<'a> {
    /// Those of a call of this procedure.
    pub(super) fn of(procedure: &str, arguments: Reader<'a>) -> Arguments<'a> {
        let mut found = Arguments::default();
        // A call whose arguments end early shows what was found until there.
        let _ = found.read(procedure, arguments);
        found
    }

    fn read(&mut self, procedure: &str, mut arguments: Reader<'a>) -> Result<(), Malformed> {
        if procedure == "NULL" {
            return Ok(());
        }
        self.handle = Some(handle(&mut arguments)?);
        match procedure {
            "READ" | "WRITE" | "COMMIT" => {
                self.offset = Some(arguments.u64()?);
                self.size = Some(arguments.u32()?.into());
            }
            "LOOKUP" | "CREATE" | "MKDIR" | "SYMLINK" | "MKNOD" | "REMOVE" | "RMDIR" => {
                self.name = Some(name(&mut arguments)?);
            }
            "RENAME" => {
                self.name = Some(name(&mut arguments)?);
                self.to = Some((handle(&mut arguments)?, name(&mut arguments)?));
            }
            "LINK" => self.to = Some((handle(&mut arguments)?, name(&mut arguments)?)),
            "READDIR" | "READDIRPLUS" => {
                // Cookie and its verifier; of READDIRPLUS also the bytes of names alone.
                arguments.array::<16>()?;
                if procedure == "READDIRPLUS" {
                    arguments.u32()?;
                }
                self.size = Some(arguments.u32()?.into());
            }
            _ => {}
        }
        Ok(())
    }
}

fn handle<'a>(arguments: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    arguments.opaque(MAX_HANDLE_BYTES)
}

fn name<'a>(arguments: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    arguments.opaque(usize::MAX)
}

/// The part of a name that is kept: all of each name that a file can have.
pub(super) fn kept(name: &[u8]) -> Vec<u8> {
    let kept = name.get(..MAX_NAME_BYTES as usize).unwrap_or(name);
    kept.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Writer;

    fn arguments(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut Writer::new(&mut bytes));
        bytes
    }

    #[test]
    fn each_kind_of_call_shows_what_it_is_about() {
        let read = arguments(|to| {
            to.opaque(b"file");
            to.u64(4096);
            to.u32(100);
        });
        let found = Arguments::of("READ", Reader::new(&read));
        assert_eq!(found.handle, Some(&b"file"[..]));
        assert_eq!((found.offset, found.size), (Some(4096), Some(100)));
        let rename = arguments(|to| {
            for part in [&b"from"[..], b"old", b"into", b"new"] {
                to.opaque(part);
            }
        });
        let found = Arguments::of("RENAME", Reader::new(&rename));
        assert_eq!(
            (found.handle, found.name),
            (Some(&b"from"[..]), Some(&b"old"[..]))
        );
        assert_eq!(found.to, Some((&b"into"[..], &b"new"[..])));
        let listing = arguments(|to| {
            to.opaque(b"dir");
            to.u64(7);
            to.u64(0);
            to.u32(512);
            to.u32(8192);
        });
        assert_eq!(
            Arguments::of("READDIRPLUS", Reader::new(&listing)).size,
            Some(8192)
        );
        assert_eq!(
            Arguments::of("READDIR", Reader::new(&listing)).size,
            Some(512)
        );
        assert_eq!(
            Arguments::of("NULL", Reader::new(&read)),
            Arguments::default()
        );
    }

    #[test]
    fn a_call_that_ends_early_shows_its_beginning() {
        let cut = arguments(|to| {
            to.opaque(b"file");
            to.u32(0);
        });
        let found = Arguments::of("READ", Reader::new(&cut));
        assert_eq!((found.handle, found.offset), (Some(&b"file"[..]), None));
        assert_eq!(
            Arguments::of("READ", Reader::new(&[])),
            Arguments::default()
        );
    }

    #[test]
    fn a_name_is_kept_up_to_the_longest_that_a_file_can_have() {
        assert_eq!(kept(b"name"), b"name");
        assert_eq!(kept(&[b'x'; 10_000]).len(), 255);
    }
}
