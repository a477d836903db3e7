//! Makes files, writes them and makes them stable; most of them are removed again.

use std::time::Duration;

use forebay_client::{Create, Handle, Reply, Request, Stable, Status};
use forebay_crash::random::content;

use super::{Call, Client, FILES, Trouble, wrong};
use crate::ledger::Kept;

/// Pause between two rounds.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of a file.
const BYTES: usize = 16 << 10;

/// Two of this number of files stay, one for each way to make them stable.
const KEPT_OF: u64 = 8;

const CREATE: Call = call("CREATE", true);
const UNSTABLE: Call = call("WRITE 16 KiB, unstable", false);
const COMMIT: Call = call("COMMIT", false);
const STABLE: Call = call("WRITE 16 KiB, stable", false);
const REMOVE: Call = call("REMOVE", true);

const fn call(name: &'static str, has_goal: bool) -> Call {
    Call {
        name,
        has_goal,
        interval: INTERVAL,
    }
}

pub(super) fn round(client: &mut Client, number: u64) -> Result<(), Trouble> {
    let name = format!("file{number}");
    let directory = client.home.files.clone();
    let create = Request::create(&directory, name.as_bytes(), Create::Unchecked, 0o644);
    let file = client.get(&CREATE, &create, Reply::made)?.handle;
    let data = content(number, BYTES);
    if number.is_multiple_of(2) {
        write(client, &STABLE, &file, &data, Stable::FileSync)?;
    } else {
        write_and_commit(client, &file, &data)?;
    }
    if number % KEPT_OF < 2 {
        let kept = Kept {
            seed: number,
            length: BYTES,
        };
        client.world.ledger.keep(format!("{FILES}/{name}"), kept);
        return Ok(());
    }
    let remove = Request::remove(&directory, name.as_bytes());
    client.ask(&REMOVE, &remove, Some(Status::NOENT), Reply::done)?;
    Ok(())
}

fn write(
    client: &mut Client,
    call: &Call,
    file: &Handle,
    data: &[u8],
    stable: Stable,
) -> Result<forebay_client::Verifier, Trouble> {
    let written = client.get(call, &Request::write(file, 0, data, stable), Reply::written)?;
    if written.count as usize != data.len() || written.stable < stable {
        return Err(wrong(format!(
            "{} took {} bytes as {:?}",
            call.name, written.count, written.stable
        )));
    }
    Ok(written.verifier)
}

/// Acts as a kernel's client: if the server's verifier has changed since it took the bytes, they are sent again.
fn write_and_commit(client: &mut Client, file: &Handle, data: &[u8]) -> Result<(), Trouble> {
    for _ in 0..5 {
        let verifier = write(client, &UNSTABLE, file, data, Stable::Unstable)?;
        let request = Request::commit(file);
        if client.get(&COMMIT, &request, Reply::committed)? == verifier {
            return Ok(());
        }
    }
    Err(wrong("five COMMITs had another verifier than their WRITEs"))
}
