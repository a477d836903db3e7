//! Locks of many owners on one file.

use forebay_client::xdr::Encoder;
use forebay_client::{Handle, Link, Request, Steady};

use super::{Place, Trouble, file, wrong};

/// The lock manager, version 4.
const NLM: (u32, u32) = (100_021, 4);

const OWNERS: u64 = 400;

/// `nlm4_stats`: granted, denied, no more locks, waits, time of grace.
const ALLOWED: [u32; 5] = [0, 1, 2, 3, 4];

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    let mut first = 0;
    while place.turn() {
        for owner in first..first + 16 {
            let owner = owner % OWNERS;
            // Each fourth owner asks for the lock of another one, and waits.
            let wants = if owner % 4 == 3 { owner - 1 } else { owner };
            link.send(&lock(&file, b"soak", owner, wants, owner % 8 == 3))?;
        }
        // Unlocks those of some turns before: up to 200 stay.
        for owner in first + OWNERS / 2..first + OWNERS / 2 + 16 {
            link.send(&unlock(&file, owner % OWNERS))?;
        }
        first += 16;
        answers(&mut link)?;
    }
    Ok(())
}

/// The byte range of an owner: every second byte of the file, so that ranges do not merge.
fn range(encoder: Encoder, caller: &[u8], file: &Handle, owner: u64, wants: u64) -> Encoder {
    let name = format!("owner{owner}");
    let encoder = encoder
        .opaque(caller)
        .opaque(&file.0)
        .opaque(name.as_bytes());
    encoder.u32s(&[owner as u32]).u64(wants * 2).u64(1)
}

/// LOCK, exclusive.
pub(super) fn lock(file: &Handle, caller: &[u8], owner: u64, wants: u64, waits: bool) -> Request {
    let cookie = Encoder::default().opaque(b"k").u32s(&[u32::from(waits), 1]);
    let arguments = range(cookie, caller, file, owner, wants).u32s(&[0, 1]);
    Request::new(NLM, 2, "NLM_LOCK", arguments)
}

fn unlock(file: &Handle, owner: u64) -> Request {
    let cookie = Encoder::default().opaque(b"k");
    Request::new(
        NLM,
        4,
        "NLM_UNLOCK",
        range(cookie, b"soak", file, owner, owner),
    )
}

/// Takes all answers in flight; each must be one of the lock manager.
pub(super) fn answers(link: &mut Link<Steady>) -> Result<(), Trouble> {
    while let Some(answer) = link.receive()? {
        let mut results = answer.reply.results();
        results.opaque()?;
        let status = results.u32()?;
        if !ALLOWED.contains(&status) {
            return wrong(format!("a lock was answered with status {status}"));
        }
    }
    Ok(())
}
