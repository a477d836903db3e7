//! MOUNT with all kinds of paths.

use std::collections::BTreeMap;

use forebay_client::Request;
use forebay_client::xdr::Encoder;

use super::{Place, Trouble, wrong};

const MOUNT: (u32, u32) = (100_005, 3);

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let long = vec![b'/'; 1024];
    let paths: [&[u8]; 7] = [b"/", b"/none", b"", b"../..", b"/\0", b"//mounts//", &long];
    while place.turn() {
        let mut roots = BTreeMap::new();
        for path in paths {
            roots.insert(link.send(&Request::mount(path))?, path);
            let unmount = Encoder::default().opaque(path);
            link.send(&Request::new(MOUNT, 3, "UMNT", unmount))?;
        }
        // DUMP, UMNTALL, EXPORT
        for procedure in [2, 4, 5] {
            link.send(&Request::new(MOUNT, procedure, "MOUNT", Encoder::default()))?;
        }
        while let Some(answer) = link.receive()? {
            if let Some(path) = roots.remove(&answer.call)
                && path == b"/"
                && let Err(failure) = answer.reply.mounted()
            {
                return wrong(format!("MNT of the root: {failure}"));
            }
        }
    }
    Ok(())
}
