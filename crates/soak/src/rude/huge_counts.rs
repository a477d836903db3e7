//! Counts that are huge, zero and one.

use forebay_client::Request;
use forebay_client::xdr::Encoder;

use super::{Place, Trouble, expect, file};

const NFS: (u32, u32) = (100_003, 3);

/// NFS3_OK, NFS3ERR_INVAL, NFS3ERR_TOOSMALL.
const ALLOWED: [u32; 3] = [0, 22, 10005];

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    let listing = |directory_bytes: u32, bytes: u32| {
        let arguments = Encoder::default().opaque(&home.0).u64(0).u64(0);
        Request::new(
            NFS,
            17,
            "READDIRPLUS",
            arguments.u32s(&[directory_bytes, bytes]),
        )
    };
    let names = |bytes: u32| {
        let arguments = Encoder::default().opaque(&home.0).u64(0).u64(0);
        Request::new(NFS, 16, "READDIR", arguments.u32s(&[bytes]))
    };
    let commit = Encoder::default()
        .opaque(&file.0)
        .u64(u64::MAX)
        .u32s(&[u32::MAX]);
    let calls = [
        listing(u32::MAX, u32::MAX),
        listing(0, 0),
        listing(1, u32::MAX),
        names(u32::MAX),
        names(1),
        Request::read(&file, 0, u32::MAX),
        Request::new(NFS, 21, "COMMIT", commit),
    ];
    while place.turn() {
        if let Some(call) = calls.get(place.turn as usize % calls.len()) {
            expect(&mut link, call, &ALLOWED)?;
        }
    }
    Ok(())
}
