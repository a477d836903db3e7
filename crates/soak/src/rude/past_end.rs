//! Offsets behind the end of a file, and behind the largest offset.

use forebay_client::{Failure, Reply, Request, Stable};

use super::{Place, Trouble, expect, file, wrong};

/// NFS3ERR_FBIG and NFS3ERR_INVAL.
const REFUSED: [u32; 2] = [27, 22];

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    expect(
        &mut link,
        &Request::write(&file, 0, b"short", Stable::FileSync),
        &[0],
    )?;
    while place.turn() {
        match place.turn % 6 {
            0 => nothing(&mut link, &file, 5)?,
            1 => nothing(&mut link, &file, 1 << 40)?,
            2 => nothing(&mut link, &file, u64::MAX)?,
            3 => nothing(&mut link, &file, u64::MAX - (1 << 19))?,
            4 => {
                let write = Request::write(&file, u64::MAX, b"x", Stable::FileSync);
                expect(&mut link, &write, &REFUSED)?;
            }
            _ => {
                let size = Request::setattr(&file, None, Some(u64::MAX));
                expect(&mut link, &size, &REFUSED)?;
            }
        }
    }
    Ok(())
}

/// A READ that must return nothing: NFS3_OK and no bytes, or a refusal.
fn nothing(
    link: &mut forebay_client::Link<forebay_client::Steady>,
    file: &forebay_client::Handle,
    offset: u64,
) -> Result<(), Trouble> {
    match Reply::data(link.call(&Request::read(file, offset, 1 << 20))?) {
        Ok((data, true)) if data.is_empty() => Ok(()),
        Err(Failure::Status(status)) if REFUSED.contains(&status.0) => Ok(()),
        other => wrong(format!(
            "a READ at {offset}, behind the end, gave {other:?}"
        )),
    }
}
