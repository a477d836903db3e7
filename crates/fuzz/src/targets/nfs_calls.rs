//! Well-formed calls, each building on the earlier ones, through the real engine. An input chooses the procedure, the
//! values, and which of the received handles it uses. Some calls are damaged before they are sent.
//!
//! For every input:
//! * a reply is well formed, as for [`rpc`](super::rpc);
//! * a call that was not damaged is accepted, with arguments that can be decoded;
//! * a damaged call is answered as well;
//! * a repeated call is answered with the same bytes if its procedure must not be executed twice.
//!
//! ```text
//! input    calls: procedure 1, how 1, bytes for the arguments
//! how      1, 2  caller      4  send it twice      8  damage a byte      16  cut the end off
//! ```

use crate::Target;
use crate::input::Input;
use crate::nfs::call::{Caller, message, put_opaque, put_u32, put_u64};
use crate::nfs::{TRUSTED, World, handle};
use crate::targets::rpc::is_replayed;

/// The target.
pub const TARGET: Target = Target {
    name: "nfs_calls",
    run,
    seeds,
    max_bytes: 1024,
};

/// Most calls of an input.
const MAX_CALLS: u32 = 64;

/// Number of NFS procedures; higher numbers stand for MOUNT.
const NFS_PROCEDURES: u32 = 22;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let world = World::new();
    let mut handles = vec![handle(1).to_vec()];
    for xid in 100..100 + MAX_CALLS {
        if input.is_empty() {
            break;
        }
        let procedure = u32::from(input.u8()) % (NFS_PROCEDURES + 6);
        let how = input.u8();
        let caller = match how & 3 {
            0 | 1 => Caller::Root,
            2 => Caller::User,
            _ => Caller::Nobody,
        };
        let (program, procedure) = match procedure.checked_sub(NFS_PROCEDURES) {
            None => (100_003, procedure),
            Some(mount) => (100_005, mount),
        };
        let mut arguments = Arguments {
            input: &mut input,
            handles: &handles,
            out: Vec::new(),
        };
        if program == 100_003 {
            arguments.nfs(procedure);
        } else if matches!(procedure, 1 | 3) {
            arguments.path();
        }
        let arguments = arguments.out;
        let mut record = message(xid, program, 3, procedure, caller, &arguments);
        let damaged = how & 24 != 0;
        if how & 8 != 0 {
            let at = usize::from(input.u8());
            // Behind the xid, by which the reply is matched.
            let at = 4 + at % record.len().saturating_sub(4).max(1);
            record[at] ^= input.u8();
        }
        if how & 16 != 0 {
            let end = record.len().saturating_sub(usize::from(input.u8()));
            record.truncate(end);
        }
        let Some(reply) = world.serve(TRUSTED, &record) else {
            assert!(damaged, "a call was taken for none");
            break;
        };
        if !damaged {
            assert_eq!(
                reply.accepted,
                Some(0),
                "a good call was refused: {record:02x?}"
            );
        }
        if how & 4 != 0 && is_replayed(&record) && reply.accepted == Some(0) {
            let again = world.serve(TRUSTED, &record);
            assert_eq!(
                again.as_ref(),
                Some(&reply),
                "another reply to the same call"
            );
        }
        for handle in reply.handles {
            if !handles.contains(&handle) {
                handles.push(handle);
            }
        }
    }
}

/// Arguments of a call that is being made.
struct Arguments<'a, 'b> {
    input: &'a mut Input<'b>,
    handles: &'a [Vec<u8>],
    out: Vec<u8>,
}

impl Arguments<'_, '_> {
    fn nfs(&mut self, procedure: u32) {
        match procedure {
            1 | 5 | 18 | 19 | 20 => self.handle(),
            2 => {
                self.handle();
                self.attributes();
                let guarded = self.input.u8() & 1;
                put_u32(&mut self.out, guarded.into());
                if guarded == 1 {
                    self.time();
                }
            }
            3 | 12 | 13 => self.name(),
            4 => {
                self.handle();
                let access = self.input.u8();
                put_u32(&mut self.out, access.into());
            }
            6 | 21 => {
                self.handle();
                self.position();
                let count = self.count();
                put_u32(&mut self.out, count);
            }
            7 => self.write(),
            8 => self.create(),
            9 => {
                self.name();
                self.attributes();
            }
            10 => {
                self.name();
                self.attributes();
                self.path();
            }
            11 => self.make_node(),
            14 => {
                self.name();
                self.name();
            }
            15 => {
                self.handle();
                self.name();
            }
            16 | 17 => {
                self.handle();
                self.position();
                put_u64(&mut self.out, 0);
                let count = self.count();
                put_u32(&mut self.out, count);
                if procedure == 17 {
                    let count = self.count();
                    put_u32(&mut self.out, count);
                }
            }
            _ => {}
        }
    }

    fn handle(&mut self) {
        let choice = usize::from(self.input.u8());
        match self.handles.get(choice % (self.handles.len() + 1)) {
            Some(handle) => put_opaque(&mut self.out, handle),
            None => {
                let length = usize::from(self.input.u8()) % 65;
                let forged = self.input.take(length);
                put_opaque(&mut self.out, forged);
            }
        }
    }

    /// A directory and a name in it.
    fn name(&mut self) {
        self.handle();
        let long = [b'n'; 300];
        let choice = self.input.u8();
        let name: &[u8] = match choice {
            0..=15 => b"abcdefghijklmnop"
                .get(choice.into()..=choice.into())
                .unwrap_or_default(),
            16 => b"dir",
            17 => b"file",
            18 => b"link",
            19 => b"fifo",
            20 => b".",
            21 => b"..",
            22 => b"",
            23 => b"a/b",
            24 => b"a\0b",
            25 => &long[..255],
            26 => &long[..256],
            _ => self.input.take((choice & 31).into()),
        };
        put_opaque(&mut self.out, name);
    }

    fn path(&mut self) {
        let long = [b'p'; 1000];
        let choice = self.input.u8();
        let path: &[u8] = match choice {
            0 => b"/",
            1 => b"/dir",
            2 => b"/dir/../file",
            3 => b"/link",
            4 => b"//dir//",
            5 => b"",
            6 => &long,
            _ => self.input.take((choice & 31).into()),
        };
        put_opaque(&mut self.out, path);
    }

    /// `sattr3`.
    fn attributes(&mut self) {
        let which = self.input.u8();
        for bit in 0..3 {
            let set = which >> bit & 1;
            put_u32(&mut self.out, set.into());
            if set == 1 {
                let value = self.input.u16();
                put_u32(&mut self.out, value.into());
            }
        }
        let set = which >> 3 & 1;
        put_u32(&mut self.out, set.into());
        if set == 1 {
            self.position();
        }
        for bits in [4, 6] {
            let how = u32::from(which >> bits & 3) % 3;
            put_u32(&mut self.out, how);
            if how == 2 {
                self.time();
            }
        }
    }

    fn time(&mut self) {
        for _ in 0..2 {
            let number = match self.input.u8() {
                0 => u32::MAX,
                1 => 999_999_999,
                2 => 1_000_000_000,
                small => small.into(),
            };
            put_u32(&mut self.out, number);
        }
    }

    /// An offset, a size, or a cookie.
    fn position(&mut self) {
        let choice = self.input.u8();
        let position = match choice {
            0..=99 => choice.into(),
            100..=149 => u64::from(choice - 100) * 4096 - u64::from(choice & 1),
            150 => (4 << 20) - 1,
            151 => 4 << 20,
            152 => i64::MAX as u64,
            153 => i64::MAX as u64 + 1,
            154 => i64::MAX as u64 - 4096,
            155 => u64::MAX,
            156 => 1 << 40,
            _ => self.input.u64() >> (choice & 63),
        };
        put_u64(&mut self.out, position);
    }

    fn count(&mut self) -> u32 {
        match self.input.u8() {
            0 => u32::MAX,
            1 => 1 << 20,
            2 => 65_536,
            3 => 0,
            other => u32::from(other) * 8,
        }
    }

    fn write(&mut self) {
        self.handle();
        self.position();
        let stability = u32::from(self.input.u8()) % 3;
        let data = vec![0xd5; usize::from(self.input.u8()) * 20];
        put_u32(&mut self.out, data.len() as u32);
        put_u32(&mut self.out, stability);
        put_opaque(&mut self.out, &data);
    }

    fn create(&mut self) {
        self.name();
        let mode = u32::from(self.input.u8()) % 3;
        put_u32(&mut self.out, mode);
        match mode {
            2 => {
                let verifier = self.input.u8();
                put_u64(&mut self.out, verifier.into());
            }
            _ => self.attributes(),
        }
    }

    fn make_node(&mut self) {
        self.name();
        // The values of `ftype3`.
        let kind = 1 + u32::from(self.input.u8()) % 7;
        put_u32(&mut self.out, kind);
        match kind {
            3 | 4 => {
                self.attributes();
                put_u64(&mut self.out, 0x0000_0001_0000_0003);
            }
            6 | 7 => self.attributes(),
            _ => {}
        }
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    // The handles of the root directory and of forged ones are 0 and 1 at first; each LOOKUP adds one.
    let lookups = [3, 0, 0, 16, 3, 0, 0, 17, 3, 0, 0, 18, 3, 0, 0, 19];
    let then = |calls: &[u8]| [&lookups[..], calls].concat();
    vec![
        ("lookups", lookups.to_vec()),
        (
            "data",
            then(&[
                7, 0, 2, 10, 0, 9, 6, 0, 2, 0, 50, 21, 0, 2, 0, 3, 2, 4, 2, 8, 5, 0, 6, 0, 2, 0, 50,
            ]),
        ),
        (
            "names",
            then(&[
                8, 4, 1, 0, 2, 7, 8, 4, 1, 0, 2, 7, 9, 4, 1, 1, 0, 10, 4, 0, 2, 0, 2, 14, 4, 1, 0,
                0, 3, 15, 4, 2, 1, 4, 17, 0, 1, 0, 0, 1, 16, 0, 1, 0, 100, 12, 4, 0, 3, 13, 4, 1,
                1,
            ]),
        ),
        (
            "nodes",
            [
                11, 4, 0, 0, 3, 0, 11, 0, 0, 1, 6, 0, 11, 0, 0, 2, 0, 11, 2, 0, 3, 5, 0xff,
            ]
            .to_vec(),
        ),
        (
            "volume",
            [18, 0, 0, 19, 0, 0, 20, 0, 0, 1, 0, 0, 4, 2, 0, 0x3f].to_vec(),
        ),
        (
            "mount",
            [23, 0, 1, 24, 0, 25, 0, 1, 26, 0, 27, 0, 22, 0].to_vec(),
        ),
        (
            "damage",
            [1, 8, 0, 40, 1, 1, 16, 0, 8, 3, 24, 0, 16, 30, 1, 4].to_vec(),
        ),
        ("forged", [1, 0, 1, 32, 1, 0, 0, 0].to_vec()),
    ]
}
