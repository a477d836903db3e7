//! The engine: `forebay-nfs` from the record of a call to its reply, over a file system in memory.

use std::sync::Arc;
use std::time::Instant;

use forebay_nfs::measuring::Gateway;
use forebay_nfs::record::MARK_BYTES;
use forebay_types::Inode;
use forebay_vfs::memory::MemoryFileSystem;
use forebay_vfs::{CreateMode, Credentials, FileSystem, SetAttributes, Stability};

use crate::calls;
use crate::operation::{Operation, Turn, ready};
use crate::surroundings;

const KIB_4: usize = 4 << 10;
const MIB: usize = 1 << 20;

const NAME: &[u8] = b"file";

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation::new("nfs/GETATTR", 4096, || {
            serve(|file| calls::call(calls::GETATTR, file, |_| {}))
        }),
        Operation::new("nfs/SETATTR", 4096, || {
            // No attributes are set, and there is no guard.
            let nothing = [0; 7];
            serve(move |file| {
                calls::call(calls::SETATTR, file, |writer| {
                    nothing.iter().for_each(|word| writer.u32(*word));
                })
            })
        }),
        Operation::new("nfs/LOOKUP", 4096, || {
            serve(|_| calls::call(calls::LOOKUP, Inode::ROOT, |writer| writer.opaque(NAME)))
        }),
        Operation::new("nfs/READ 4 KiB", 4096, || read(KIB_4)),
        Operation::new("nfs/READ 1 MiB", 64, || read(MIB)),
        Operation::new("nfs/WRITE 4 KiB", 4096, || write(KIB_4)),
        Operation::new("nfs/WRITE 1 MiB", 64, || write(MIB)),
    ]
}

/// A file system with a file of 1 MiB that the caller owns.
async fn file_system() -> (Arc<MemoryFileSystem>, Inode) {
    let fs = Arc::new(MemoryFileSystem::new());
    let (root, caller) = (Credentials::default(), calls::caller());
    let open_to_all = SetAttributes {
        mode: Some(0o777),
        ..SetAttributes::default()
    };
    let set = fs.setattr(&root, Inode::ROOT, &open_to_all, None).await;
    set.expect("root may do that");
    let mode = CreateMode::Guarded(SetAttributes::default());
    let made = fs.create(&caller, Inode::ROOT, NAME, &mode).await;
    let file = made.expect("a new file").attributes.inode;
    let data = surroundings::noise(1, MIB);
    let written = fs.write(&caller, file, 0, &data, Stability::Unstable).await;
    written.expect("written");
    (fs, file)
}

/// Repeats a call, each time with another transaction number.
fn serve(call: impl FnOnce(Inode) -> Vec<u8>) -> Turn {
    let (fs, file) = ready(file_system());
    let gateway = Gateway::new(fs, &calls::config());
    let connected = gateway.connect(calls::peer());
    let mut record = call(file);
    // Without reading a clock, which is a system call.
    let (now, mut xid, mut buffer) = (Instant::now(), 0_u32, Vec::new());
    Box::new(move || {
        xid = xid.wrapping_add(1);
        calls::set_xid(&mut record, xid);
        let reply = connected.serve(&record, now, std::mem::take(&mut buffer));
        buffer = ready(reply).expect("an answer");
        // Accepted, and NFS3_OK.
        assert!(buffer[MARK_BYTES + 20..][..8] == [0; 8], "{buffer:?}");
    })
}

fn read(bytes: usize) -> Turn {
    serve(|file| {
        calls::call(calls::READ, file, |writer| {
            writer.u64(0);
            writer.u32(bytes as u32);
        })
    })
}

/// An unstable WRITE.
fn write(bytes: usize) -> Turn {
    let data = surroundings::noise(2, bytes);
    serve(|file| {
        calls::call(calls::WRITE, file, |writer| {
            writer.u64(0);
            writer.u32(bytes as u32);
            writer.u32(0);
            writer.opaque(&data);
        })
    })
}
