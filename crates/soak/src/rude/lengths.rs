//! Records whose lengths contradict each other.

use std::time::Duration;

use forebay_client::xdr::Encoder;
use forebay_client::{Caller, Handle, Request};

use super::{Place, Trouble, file};
use crate::wire::LAST_FRAGMENT;

const NFS: (u32, u32) = (100_003, 3);

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    while place.turn() {
        let number = place.world.first_call();
        let bytes = wrong_record(place.turn % 13, number, &file);
        let mut wire = place.wire()?;
        // The server may have closed in the middle of it.
        let _ = wire.send(&bytes);
        let _ = wire.record(Duration::from_millis(20));
    }
    Ok(())
}

fn wrong_record(which: u64, number: u32, file: &Handle) -> Vec<u8> {
    let marked = |mark: u32, bytes: usize| {
        let mut record = mark.to_be_bytes().to_vec();
        record.resize(4 + bytes, 0);
        record
    };
    let call = |procedure, arguments| {
        let request = Request::new(NFS, procedure, "wrong", arguments);
        request.record(number, Caller::ROOT)
    };
    let arguments = Encoder::default;
    match which {
        0 => marked(LAST_FRAGMENT, 0),
        1 => marked(u32::MAX, 0),
        2 => marked(u32::MAX, 64 << 10),
        3 => marked(LAST_FRAGMENT | 3, 3),
        4 => marked(LAST_FRAGMENT | 2 << 20, 1000),
        // Empty fragments, none of which is the last.
        5 => [0; 4].repeat(10_000),
        // A handle of 65 bytes, one of 4 GiB, and a missing one.
        6 => call(1, arguments().opaque(&[7; 65])),
        7 => call(1, arguments().u32s(&[u32::MAX])),
        8 => call(1, arguments()),
        // A name of 4 GiB.
        9 => call(
            3,
            arguments().opaque(&file.0).u32s(&[u32::MAX, 0x6161_6161]),
        ),
        // A WRITE whose count differs from its number of bytes.
        10 => {
            let head = arguments().opaque(&file.0).u64(0).u32s(&[u32::MAX, 2]);
            call(7, head.opaque(b"four"))
        }
        // Extra bytes behind the arguments.
        11 => call(1, arguments().opaque(&file.0).u32s(&[1, 2, 3])),
        // A credential of 4 GiB.
        _ => {
            let mut record = Request::getattr(file).record(number, Caller::ROOT);
            if let Some(length) = record.get_mut(32..36) {
                length.copy_from_slice(&u32::MAX.to_be_bytes());
            }
            record
        }
    }
}
