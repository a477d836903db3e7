//! Records of one connection, as bytes, through the real engine on a file system in memory.
//!
//! For every input:
//! * every record is answered at once, unless it is no call; then the connection ends;
//! * the reply is well formed: the call's xid, a status of the RFC, exactly the fields that belong to the procedure and
//!   the status, nothing left over; and not longer than the space reserved for it;
//! * a repeated record is answered with the same bytes if its procedure must not be executed twice;
//! * a decoded header of a call is decoded the same after encoding it again.
//!
//! ```text
//! input    flags: 1    records: length 2, bytes
//! flags    1  repair the MACs of file handles     2, 4  who calls: 0 trusted, 1 guest, 2 stranger
//! ```

use forebay_nfs::rpc::{Call, Credential};

use crate::Target;
use crate::input::{Input, put_piece};
use crate::nfs::call::{Caller, message, put_no_attributes, put_opaque, put_u32, put_u64};
use crate::nfs::{GUEST, HANDLE_KEY, STRANGER, TRUSTED, World, handle};
use crate::repair;

/// The target.
pub const TARGET: Target = Target {
    name: "rpc",
    run,
    seeds,
    max_bytes: 4096,
};

/// Most records of an input.
const MAX_RECORDS: usize = 16;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.u8();
    let from = match flags >> 1 & 3 {
        0 => TRUSTED,
        1 => GUEST,
        _ => STRANGER,
    };
    let world = World::new();
    for _ in 0..MAX_RECORDS {
        if input.is_empty() {
            break;
        }
        let mut record = input.piece().to_vec();
        if flags & 1 != 0 {
            repair::handles(&mut record, &HANDLE_KEY);
        }
        decode_again(&record);
        let Some(reply) = world.serve(from, &record) else {
            break;
        };
        if is_replayed(&record) && reply.accepted == Some(0) {
            let again = world.serve(from, &record);
            assert_eq!(again, Some(reply), "another reply to the same call");
        }
    }
}

/// Whether the record is a call of a procedure that must not be executed twice.
pub(crate) fn is_replayed(record: &[u8]) -> bool {
    let number = |at: usize| {
        record
            .get(at..)?
            .first_chunk()
            .copied()
            .map(u32::from_be_bytes)
    };
    number(12) == Some(100_003) && matches!(number(20), Some(2 | 8..=15))
}

/// Decodes the header of a call, encodes it, and decodes it again.
fn decode_again(record: &[u8]) {
    let Ok(call) = Call::decode(record) else {
        return;
    };
    let mut again = Vec::new();
    for number in [call.xid, 0, 2, call.program, call.version, call.procedure] {
        put_u32(&mut again, number);
    }
    match &call.credential {
        Credential::None => again.extend([0; 8]),
        Credential::Tls => again.extend([0, 0, 0, 7, 0, 0, 0, 0]),
        Credential::Sys(caller) => {
            let mut body = vec![0; 8];
            put_u32(&mut body, caller.uid);
            put_u32(&mut body, caller.gid);
            put_u32(&mut body, caller.groups.len() as u32);
            caller
                .groups
                .iter()
                .for_each(|group| put_u32(&mut body, *group));
            put_u32(&mut again, 1);
            put_opaque(&mut again, &body);
        }
    }
    again.extend([0; 8]);
    again.extend(call.arguments.rest());
    let decoded = Call::decode(&again).expect("an encoded header is decoded");
    assert_eq!(
        (
            decoded.xid,
            decoded.program,
            decoded.version,
            decoded.procedure
        ),
        (call.xid, call.program, call.version, call.procedure)
    );
    assert_eq!(decoded.credential, call.credential);
    assert_eq!(decoded.arguments.rest(), call.arguments.rest());
}

/// Arguments of an NFS procedure, for the objects of [`World::new`].
pub(crate) fn arguments(procedure: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let [root, dir, file, link] = [1, 2, 3, 4].map(handle);
    let name = |out: &mut Vec<u8>, directory: &[u8], name: &str| {
        put_opaque(out, directory);
        put_opaque(out, name.as_bytes());
    };
    match procedure {
        1 | 18 | 19 | 20 => put_opaque(&mut out, &root),
        2 => {
            put_opaque(&mut out, &file);
            for number in [1, 0o600, 1, 7, 1, 8, 1, 0, 100, 1, 2, 1_000_000, 5, 0] {
                put_u32(&mut out, number);
            }
        }
        3 => name(&mut out, &root, "file"),
        4 => {
            put_opaque(&mut out, &dir);
            put_u32(&mut out, 0x3f);
        }
        5 => put_opaque(&mut out, &link),
        6 | 21 => {
            put_opaque(&mut out, &file);
            put_u64(&mut out, 1);
            put_u32(&mut out, 100);
        }
        7 => {
            put_opaque(&mut out, &file);
            put_u64(&mut out, 4);
            put_u32(&mut out, 5);
            put_u32(&mut out, 2);
            put_opaque(&mut out, b"bytes");
        }
        8 => {
            name(&mut out, &dir, "new");
            put_u32(&mut out, 2);
            put_u64(&mut out, 0x0102_0304_0506_0708);
        }
        9 => {
            name(&mut out, &dir, "new");
            put_no_attributes(&mut out);
        }
        10 => {
            name(&mut out, &dir, "new");
            put_no_attributes(&mut out);
            put_opaque(&mut out, b"../file");
        }
        11 => {
            name(&mut out, &dir, "new");
            put_u32(&mut out, 4);
            put_no_attributes(&mut out);
            put_u32(&mut out, 1);
            put_u32(&mut out, 3);
        }
        12 => name(&mut out, &root, "file"),
        13 => name(&mut out, &root, "dir"),
        14 => {
            name(&mut out, &root, "file");
            name(&mut out, &dir, "moved");
        }
        15 => {
            put_opaque(&mut out, &file);
            name(&mut out, &dir, "again");
        }
        16 | 17 => {
            put_opaque(&mut out, &root);
            put_u64(&mut out, 0);
            put_u64(&mut out, 0);
            put_u32(&mut out, 1000);
            if procedure == 17 {
                put_u32(&mut out, 4000);
            }
        }
        _ => {}
    }
    out
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let input = |flags: u8, records: &[Vec<u8>]| {
        let mut input = vec![flags];
        records
            .iter()
            .for_each(|record| put_piece(&mut input, record));
        input
    };
    let nfs = |procedure: u32| {
        message(
            50 + procedure,
            100_003,
            3,
            procedure,
            Caller::Root,
            &arguments(procedure),
        )
    };
    let mount = |procedure: u32, path: &str| {
        let mut arguments = Vec::new();
        if matches!(procedure, 1 | 3) {
            put_opaque(&mut arguments, path.as_bytes());
        }
        message(
            80 + procedure,
            100_005,
            3,
            procedure,
            Caller::User,
            &arguments,
        )
    };
    let mut seeds: Vec<_> = forebay_nfs::nfs3::PROCEDURES
        .iter()
        .zip(0..)
        .map(|(name, procedure)| (*name, input(1, &[nfs(procedure)])))
        .collect();
    seeds.extend([
        (
            "mount",
            input(
                0,
                &[1, 2, 5, 3, 4, 2, 0].map(|procedure| mount(procedure, "/dir")),
            ),
        ),
        (
            "mount-guest",
            input(2, &[1, 1, 2, 5].map(|procedure| mount(procedure, "/dir"))),
        ),
        (
            "mount-stranger",
            input(4, &[1, 2, 5].map(|procedure| mount(procedure, "/"))),
        ),
        ("write-read", input(1, &[7, 6, 21, 2, 6].map(nfs))),
        ("names", input(1, &[8, 15, 14, 16, 17, 12, 13].map(nfs))),
        (
            "nobody",
            input(
                1,
                &[message(1, 100_003, 3, 1, Caller::Nobody, &arguments(1))],
            ),
        ),
        (
            "other-version",
            input(0, &[message(1, 100_003, 4, 1, Caller::Root, &[])]),
        ),
        (
            "other-program",
            input(0, &[message(1, 100_227, 3, 0, Caller::Root, &[])]),
        ),
        ("no-call", input(0, &[vec![0, 0, 0, 1, 0, 0, 0, 1]])),
    ]);
    seeds
}
